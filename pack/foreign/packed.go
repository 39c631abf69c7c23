package foreign

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"npack/pack"
	"npack/pack/safetensors"
	"npack/ternary"
)

// packed is a matrix of BitNet b1.58 as the transformers library stores it: two
// bits a weight, -1, 0 and +1 as 0, 1 and 2. Byte [p][c] of [rows/4][cols] holds
// the weights of rows p, p+rows/4, p+2·rows/4 and p+3·rows/4 in column c, the
// first in the lowest bits. All have one magnitude.
type packed struct {
	origin
	t     *safetensors.Tensor
	cols  int
	scale float32
}

const packedZeros = 0x5555555555555555 // weights of 0

func (x *packed) matrix(m *ternary.Matrix, r0 int, _ known) error {
	quarter := int(x.t.Shape[0])
	step := max(1, pieceBytes/x.cols)
	return parallel(quarter, step, func(from, to int) error {
		if !x.wants(m, r0, from, to) {
			return nil
		}
		// Whole words of columns: the last one is filled up with zeros.
		padded := (x.cols + 7) &^ 7
		bytes := byteBufs.Get().(*[]byte)
		defer byteBufs.Put(bytes)
		*bytes = slices.Grow((*bytes)[:0], (to-from)*x.cols)[:(to-from)*x.cols]
		buf, row := *bytes, make([]byte, padded)
		if _, err := x.t.ReadAt(buf, int64(from)*int64(x.cols)); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(row[padded-8:], packedZeros)
		for p := from; p < to; p++ {
			copy(row, buf[(p-from)*x.cols:(p-from+1)*x.cols])
			if err := x.unpack(m, r0, p, row); err != nil {
				return err
			}
		}
		return nil
	})
}

// wants reports whether m, which starts at row r0, has rows that the bytes of
// rows from to to hold.
func (x *packed) wants(m *ternary.Matrix, r0, from, to int) bool {
	for k := range 4 {
		first := k * int(x.t.Shape[0])
		if max(r0, first+from) < min(r0+m.Rows, first+to) {
			return true
		}
	}
	return false
}

// unpack sets those of the four rows in row p that m has, and packs them again
// to compare.
func (x *packed) unpack(m *ternary.Matrix, r0, p int, row []byte) error {
	quarter := int(x.t.Shape[0])
	for k := range 4 {
		r := k*quarter + p - r0
		if r < 0 || r >= m.Rows {
			continue
		}
		bp, bn, br := m.BP[r*m.Stride:(r+1)*m.Stride], m.BN[r*m.Stride:(r+1)*m.Stride], m.BR[r*m.Stride:(r+1)*m.Stride]
		var bad uint64
		for c := 0; c < len(row); c += 8 {
			code := binary.LittleEndian.Uint64(row[c:]) >> (2 * k) & (3 * lowBits)
			p, n := gather(code>>1), ^gather(code|code>>1)
			bp[c/8], bn[c/8] = p, n
			bad |= code ^ (lowBits + spread[p] - spread[n])
		}
		if bad != 0 { // 3 is neither +1 nor -1
			return x.invalid(p, k, row)
		}
		clear(bp[len(row)/8:])
		clear(bn[len(row)/8:])
		clear(br)
		m.SLo[r], m.SHi[r] = x.scale, x.scale
		m.RSLo[r], m.RSHi[r] = rowSums(m, r)
	}
	return nil
}

func (x *packed) invalid(p, k int, row []byte) error {
	for c, b := range row {
		if b>>(2*k)&3 == 3 {
			e := x.wrong(pack.ErrCorrupt, k*int(x.t.Shape[0])+p, fmt.Sprintf("column %d: the code 3", c), "0, 1 or 2, for -1, 0 and +1", hintDamaged)
			e.Offset += int64(p)*int64(x.cols) + int64(c)
			return e
		}
	}
	panic("foreign: weights that were made differ from the source's")
}

func (x *packed) table(*ternary.Int8Matrix, int, known) error {
	return x.wrong(pack.ErrUnsupported, -1, "a packed embedding", "a table of numbers", "")
}

// finiteScale reports whether s can be a magnitude.
func finiteScale(s float32) bool { return s > 0 && math.Float32bits(s) < infinity }
