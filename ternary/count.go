package ternary

import (
	"encoding/binary"
	"math/bits"
)

// rowCount is what one row of the three planes holds.
type rowCount struct {
	plusLo, plusHi   int // weights of +SLo and +SHi
	minusLo, minusHi int // weights of -SLo and -SHi
}

// countRow counts one row of Stride bytes in each plane. ok is false if the
// row breaks a rule: bp and bn both set, br without either, or a bit set from
// column cols on; findBad then says where, and the counts mean nothing.
func countRow(bp, bn, br []byte, cols int) (c rowCount, ok bool) {
	bn, br = bn[:len(bp)], br[:len(bp)]
	full := cols / 64 * 8 // at most a row: cols <= 8*stride
	sums := countPlanes(bp[:full], bn[:full], br[:full])
	plus, minus, hi, plusHi := int(sums[sumBP]), int(sums[sumBN]), int(sums[sumBR]), int(sums[sumBPBR])
	bad := sums[badBits]
	// The rest of the row holds up to 63 columns, then padding that must be 0.
	for i := full; i < len(bp); i += 8 {
		p, n, r := tailWord(bp[i:]), tailWord(bn[i:]), tailWord(br[i:])
		var valid uint64
		if left := cols - i*8; left > 0 {
			valid = 1<<left - 1
		}
		bad |= p&n | r&^(p|n) | (p|n)&^valid
		plus += bits.OnesCount64(p)
		minus += bits.OnesCount64(n)
		hi += bits.OnesCount64(r)
		plusHi += bits.OnesCount64(p & r)
	}
	return rowCount{
		plusLo: plus - plusHi, plusHi: plusHi,
		minusLo: minus - (hi - plusHi), minusHi: hi - plusHi,
	}, bad == 0
}

// What countPlanes returns: the bits set in bp, bn, br and bp&br, and a word
// that is not 0 if bp and bn share a bit or br has one that neither has.
const (
	sumBP = iota
	sumBN
	sumBR
	sumBPBR
	badBits
)

// countPlanes counts planes of equal length, a multiple of 8 bytes.
func countPlanes(bp, bn, br []byte) (sums [5]uint64) {
	n := countPlanesFast(bp, bn, br, &sums)
	countPlanesGeneric(bp[n:], bn[n:], br[n:], &sums)
	return sums
}

// countPlanesGeneric adds to sums what is defined for countPlanes: four
// population counts for 24 bytes.
func countPlanesGeneric(bp, bn, br []byte, sums *[5]uint64) {
	var bad uint64
	var plus, minus, hi, plusHi int
	bn, br = bn[:len(bp)], br[:len(bp)] // ends bounds checks
	for i := 0; i+8 <= len(bp); i += 8 {
		p := binary.LittleEndian.Uint64(bp[i : i+8])
		n := binary.LittleEndian.Uint64(bn[i : i+8])
		r := binary.LittleEndian.Uint64(br[i : i+8])
		bad |= p&n | r&^(p|n)
		plus += bits.OnesCount64(p)
		minus += bits.OnesCount64(n)
		hi += bits.OnesCount64(r)
		plusHi += bits.OnesCount64(p & r)
	}
	sums[sumBP] += uint64(plus)
	sums[sumBN] += uint64(minus)
	sums[sumBR] += uint64(hi)
	sums[sumBPBR] += uint64(plusHi)
	sums[badBits] |= bad
}

// tailWord returns up to eight bytes as a little-endian word.
func tailWord(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	var w uint64
	for i, v := range b {
		w |= uint64(v) << (8 * i)
	}
	return w
}

// findBad returns the lowest column of the row that breaks a rule, the plane
// to blame and what is wrong. It is called for rows that countRow refused.
func findBad(bp, bn, br []byte, cols int) (col int, part, found, expected string) {
	for i := range bp {
		p, n, r := bp[i], bn[i], br[i]
		valid := byte(0)
		if left := cols - i*8; left >= 8 {
			valid = 0xff
		} else if left > 0 {
			valid = 1<<left - 1
		}
		bad := p&n | r&^(p|n) | (p|n|r)&^valid
		if bad == 0 {
			continue
		}
		bit := bits.TrailingZeros8(bad)
		m := byte(1) << bit
		col = i*8 + bit
		switch {
		case m&valid == 0:
			part = PartBR
			if p&m != 0 {
				part = PartBP
			} else if n&m != 0 {
				part = PartBN
			}
			return col, part, part + " set past the last column", "0 in the padding"
		case p&n&m != 0:
			return col, PartBN, "bp and bn both set", "at most one of them"
		default:
			return col, PartBR, "br set on a zero weight", "br only where bp or bn is set"
		}
	}
	return -1, "", "", ""
}

// sumInt8 returns the sum of q.
func sumInt8(q []int8) int64 {
	sum, n := sumInt8Fast(q)
	return sum + sumInt8Generic(q[n:])
}

// sumInt8Generic is what is defined for sumInt8.
//
// Eight values at a time are made unsigned by adding 128 and summed in lanes of
// 16 bits. A lane takes at most 510 from a word, so 128 words, one block, fit
// two sets of lanes with room to spare.
func sumInt8Generic(q []int8) int64 {
	const block = 1024
	var sum int64
	b := bytesOf(q)
	for ; len(b) >= block; b = b[block:] {
		k := (*[block]byte)(b) // a fixed length needs no bounds checks
		var lanes0, lanes1 uint64
		for i := 0; i < block; i += 16 {
			lanes0 += lanes(binary.LittleEndian.Uint64(k[i : i+8]))
			lanes1 += lanes(binary.LittleEndian.Uint64(k[i+8 : i+16]))
		}
		sum += addLanes(lanes0) + addLanes(lanes1) - 128*block
	}
	for ; len(b) >= 8; b = b[8:] {
		sum += addLanes(lanes(binary.LittleEndian.Uint64(b))) - 128*8
	}
	for _, v := range b {
		sum += int64(int8(v))
	}
	return sum
}

// lanes adds 128 to each of eight int8 values and adds them in pairs, giving
// four lanes of 16 bits.
func lanes(w uint64) uint64 {
	const even = 0x00ff00ff00ff00ff
	w ^= 0x8080808080808080
	return w&even + w>>8&even
}

func addLanes(w uint64) int64 {
	return int64(w&0xffff + w>>16&0xffff + w>>32&0xffff + w>>48)
}
