package foreign

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"npack/ternary"
)

// misfit says why a row cannot be held: which values it has.
type misfit struct {
	found    string
	expected string
	distinct int // magnitudes of the row that are not 0
}

const signBit = 1 << 31

// nonzero is 1 if the magnitude a, below 2^31, is not 0.
func nonzero(a uint32) uint32 { return (a + signBit - 1) >> 31 }

// magnitudes returns the bits of the two magnitudes of v that are not 0, the
// smaller one first: twice the same if there is one, and 0 if there is none.
// -0 counts as 0. It fails if there are more than two, or one that is not finite.
func magnitudes(v []float32) (lo, hi uint32, err *misfit) {
	for _, f := range v {
		a := math.Float32bits(f) &^ signBit
		if min(a, a^lo, a^hi) == 0 {
			continue
		}
		switch {
		case lo == 0:
			lo = a
		case hi == 0:
			hi = a
		default:
			return 0, 0, tooMany(v)
		}
	}
	if hi == 0 {
		hi = lo
	}
	lo, hi = min(lo, hi), max(lo, hi)
	if hi >= infinity {
		return 0, 0, &misfit{found: "a value that is not finite", expected: "finite weights"}
	}
	return lo, hi, nil
}

const infinity = 0x7f800000 // bits of it; larger ones are no numbers

// tooMany counts the magnitudes of a row that has more than two.
func tooMany(v []float32) *misfit {
	seen := map[uint32]bool{}
	for _, f := range v {
		if a := math.Float32bits(f) &^ signBit; a != 0 {
			seen[a] = true
		}
	}
	return &misfit{distinct: len(seen), found: fmt.Sprintf("%d different magnitudes", len(seen)), expected: "at most 2 in a row"}
}

// putRow writes v as row r of m: planes, magnitudes and their sums. Magnitudes
// that a row does not use are the one it does. given says that m has magnitudes
// for the row, to be kept where they are v's; br, where not nil, is its plane.
//
// Every weight is compared with v, bit for bit but for the sign of 0: what its
// code stands for as it is made, and the codes that the planes hold once they are
// written.
func putRow(m *ternary.Matrix, r int, v []float32, given bool, br []byte) *misfit {
	// Two magnitudes, if there are, show at a row's start; if there are more, the
	// comparison fails and all of the row is looked at.
	lo, hi, err := magnitudes(v[:min(64, len(v))])
	for whole := false; ; whole = true {
		if err != nil {
			return err
		}
		if a, b := math.Float32bits(m.SLo[r]), math.Float32bits(m.SHi[r]); given && fits(lo, a, b) && fits(hi, a, b) {
			lo, hi = a, b
		}
		if writePlanes(m, r, v, lo, hi, br) {
			break
		}
		if whole {
			return &misfit{found: "the weights that were made differ from the source's", expected: "the same bits; the file beside the model is wrong, or this program"}
		}
		lo, hi, err = magnitudes(v)
	}
	m.SLo[r], m.SHi[r] = math.Float32frombits(lo), math.Float32frombits(hi)
	if !given { // they came with the magnitudes
		m.RSLo[r], m.RSHi[r] = rowSums(m, r)
	}
	return nil
}

// fits reports whether magnitude a, if it is not 0, is one of two that are
// finite and not negative.
func fits(a, lo, hi uint32) bool {
	return lo < infinity && hi < infinity && (a == 0 || a == lo || a == hi)
}

// A weight's code has the bits of bp, bn and br in its lowest bits. noWeight is
// what no weight is equal to.
const noWeight = infinity + 1

// writePlanes sets the planes of row r and reports whether they hold v. br may be
// nil.
func writePlanes(m *ternary.Matrix, r int, v []float32, lo, hi uint32, br []byte) bool {
	value := [8]uint32{0, lo, lo | signBit, noWeight, noWeight, hi, hi | signBit, noWeight}
	if hi == 0 { // the row has zeros alone, and -0 is one of them
		value[2], value[6] = 0, 0
	}
	bp, bn, h := planeRow(m.BP, m, r), planeRow(m.BN, m, r), planeRow(m.BR, m, r)
	var bad uint32
	var tail [8]float32
	for i := range (len(v) + 7) / 8 {
		var eight *[8]float32
		if 8*i+8 <= len(v) {
			eight = (*[8]float32)(v[8*i:])
		} else {
			copy(tail[:], v[8*i:])
			eight = &tail
		}
		var codes uint64
		for _, f := range eight {
			b := math.Float32bits(f)
			a := b &^ signBit
			set := nonzero(a)
			code := set + set&(b>>31) + set&nonzero(a^lo)<<2
			bad |= value[code&7] ^ b&-set
			codes = codes>>8 | uint64(code)<<56
		}
		if br != nil {
			codes = codes&(3*lowBits) | spread[br[i]]<<2
			for j, f := range eight {
				b := math.Float32bits(f)
				bad |= value[codes>>(8*j)&7] ^ b&-nonzero(b&^signBit)
			}
		}
		bp[i], bn[i], h[i] = gather(codes), gather(codes>>1), gather(codes>>2)
		if spread[bp[i]]|spread[bn[i]]<<1|spread[h[i]]<<2 != codes {
			bad = 1
		}
	}
	for _, plane := range [][]byte{bp, bn, h} {
		clear(plane[(len(v)+7)/8:])
	}
	return bad == 0
}

// rowSums returns the sums of a row's signs by magnitude.
func rowSums(m *ternary.Matrix, r int) (lo, hi int32) {
	bp, bn, br := planeRow(m.BP, m, r), planeRow(m.BN, m, r), planeRow(m.BR, m, r)
	for i := 0; i < len(bp); i += 8 {
		p, n, h := word(bp[i:]), word(bn[i:]), word(br[i:])
		lo += int32(bits.OnesCount64(p&^h) - bits.OnesCount64(n&^h))
		hi += int32(bits.OnesCount64(p&h) - bits.OnesCount64(n&h))
	}
	return lo, hi
}

func planeRow(plane []byte, m *ternary.Matrix, r int) []byte {
	return plane[r*m.Stride : (r+1)*m.Stride]
}

// word returns the first 64 bits of b, or those that there are.
func word(b []byte) (w uint64) {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	for i, x := range b {
		w |= uint64(x) << (8 * i)
	}
	return w
}

const lowBits = 0x0101010101010101 // of eight bytes

// gather returns the lowest bits of eight bytes as one byte.
func gather(x uint64) byte { return byte(x & lowBits * 0x0102040810204080 >> 56) }

// spread[b] has the bits of b as eight bytes.
var spread = func() (t [256]uint64) {
	for b := range t {
		for i := range 8 {
			t[b] |= uint64(b>>i&1) << (8 * i)
		}
	}
	return t
}()
