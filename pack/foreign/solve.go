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
// for the row, to be kept where they are v's; br, where not nil, is its plane. It
// then decodes what it has written and compares each weight with v, bit for bit
// but for the sign of 0.
func putRow(m *ternary.Matrix, r int, v []float32, given bool, br []byte) *misfit {
	lo, hi, err := magnitudes(v)
	if err != nil {
		return err
	}
	if a, b := math.Float32bits(m.SLo[r]), math.Float32bits(m.SHi[r]); given && fits(lo, a, b) && fits(hi, a, b) {
		lo, hi = a, b
	}
	bp, bn, h := planeRow(m.BP, m, r), planeRow(m.BN, m, r), planeRow(m.BR, m, r)
	var sumLo, sumHi int
	for c := 0; c < len(bp); c += 8 {
		p, n, q := planes(v[min(8*c, len(v)):min(8*c+64, len(v))], lo, hi)
		if br != nil {
			q = word(br[c:])
		}
		putWord(bp[c:], p)
		putWord(bn[c:], n)
		putWord(h[c:], q)
		sumLo += bits.OnesCount64(p&^q) - bits.OnesCount64(n&^q)
		sumHi += bits.OnesCount64(p&q) - bits.OnesCount64(n&q)
	}
	m.SLo[r], m.SHi[r] = math.Float32frombits(lo), math.Float32frombits(hi)
	if !given { // they came with the magnitudes
		m.RSLo[r], m.RSHi[r] = int32(sumLo), int32(sumHi)
	}
	return checkRow(m, r, v)
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

// putWord sets the first 64 bits of b, or those that there are.
func putWord(b []byte, w uint64) {
	if len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, w)
		return
	}
	for i := range b {
		b[i] = byte(w >> (8 * i))
	}
}

// fits reports whether magnitude a, if it is not 0, is one of two that are
// finite and not negative.
func fits(a, lo, hi uint32) bool {
	return lo < infinity && hi < infinity && (a == 0 || a == lo || a == hi)
}

// planes returns 64 weights, or as many as v has, whose magnitudes are lo and hi.
func planes(v []float32, lo, hi uint32) (p, n, h uint64) {
	for i, f := range v {
		b := math.Float32bits(f)
		a := b &^ signBit
		set, neg := uint64(nonzero(a)), uint64(b>>31)
		p |= (set &^ neg) << (i & 63)
		n |= (set & neg) << (i & 63)
		h |= (set & uint64(nonzero(a^lo))) << (i & 63)
	}
	return p, n, h
}

// checkRow compares the weights of row r, as the container defines them, with v.
func checkRow(m *ternary.Matrix, r int, v []float32) *misfit {
	lo, hi := math.Float32bits(m.SLo[r]), math.Float32bits(m.SHi[r])
	const wrong = infinity + 1 // equal to no weight
	// By the bits of br, bn and bp, the highest first.
	value := [8]uint32{0, lo, lo | signBit, wrong, wrong, hi, hi | signBit, wrong}
	if lo == 0 { // -0 is 0
		value[2] = 0
	}
	var bad uint32
	bp, bn, br := planeRow(m.BP, m, r), planeRow(m.BN, m, r), planeRow(m.BR, m, r)
	for c := 0; c < len(v); c += 64 {
		p, n, h := word(bp[c/8:]), word(bn[c/8:]), word(br[c/8:])
		for _, f := range v[c:min(c+64, len(v))] {
			b := math.Float32bits(f)
			b &= -nonzero(b &^ signBit)
			bad |= b ^ value[p&1|n&1<<1|h&1<<2]
			p, n, h = p>>1, n>>1, h>>1
		}
	}
	if bad != 0 {
		return &misfit{found: "the weights that were made differ from the source's", expected: "the same bits; this is an error of the program"}
	}
	return nil
}
