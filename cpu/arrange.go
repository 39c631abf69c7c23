package cpu

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

// matrix is a ternary linear for one set of kernels: arranged, or in place.
type matrix struct {
	rows, cols int
	blocks     int       // of columns
	w          []byte    // [tiles][blocks][12R], unless the weights are in place
	lo, hi     []float32 // [tiles*R]
	bias       []float32 // [rows], after keep_50, or nil

	planes *ternary.Matrix // where the weights lie if they are in place, else nil
	right  []bool          // [tiles]: of planes, that all rows are there and have been found right

	left atomic.Int64 // rows that are still to be arranged
}

// roundUp returns the multiple of n that is not below x.
func roundUp(x, n int) int { return (x + n - 1) / n * n }

// arrangeCodes is [linear].arrange for any R, and what arrangeTiles does faster. A
// block has parts A, B and Z of 4R bytes. Byte 4r+k of a part belongs to row r, and
//
//	bits 2s+1, 2s of A: bp, nz̄ of column 4s+k          (s = 0..3)
//	bits 2s+1, 2s of B: bp, nz̄ of column 16+4s+k
//	bit  2s+1     of Z: br of column 4s+k; bit 2s: br of column 16+4s+k
//
// where nz̄ is 1 for a weight of 0. So two bits of A or B are the code t+1.
// Flipping the upper one where br is set gives the code q+1: codes are had by
// XOR and shifts alone, for all rows and sixteen columns at a time.
func arrangeCodes(dst []byte, part *ternary.Matrix, row, R, blocks int) (valid bool) {
	var bad uint32
	const zero = 0x55 // nz̄ of four columns of weight 0
	n := 4 * R
	for b := range blocks {
		ab, z := dst[b*3*n:][:2*n], dst[b*3*n+2*n:][:n]
		for i := range ab {
			ab[i] = zero
		}
		clear(z)
	}
	for r := range min(R, part.Rows-row) {
		at := (row + r) * part.Stride
		bp, bn, br := part.BP[at:at+part.Stride], part.BN[at:at+part.Stride], part.BR[at:at+part.Stride]
		for b := range blocks {
			p, m, h := word(bp, b), word(bn, b), word(br, b)
			bad |= p&m | h&^(p|m)
			if b == blocks-1 {
				bad |= (p | m) &^ (1<<(part.Cols-b*blockCols) - 1) // a shift by 32 gives all bits
			}
			// Columns 4s+k of each half, as byte k, bit 2s: first bp and bn,
			// then br.
			p0, p1 := spread(p), spread(p>>16)
			n0, n1 := p0|spread(m), p1|spread(m>>16)
			tile := dst[b*3*n+4*r:]
			binary.LittleEndian.PutUint32(tile, p0<<1|n0^0x55555555)
			binary.LittleEndian.PutUint32(tile[n:], p1<<1|n1^0x55555555)
			binary.LittleEndian.PutUint32(tile[2*n:], spread(h)<<1|spread(h>>16))
		}
	}
	return bad == 0
}

// word returns the bits of block b of a row of a plane; what is behind the
// row's end is 0.
func word(plane []byte, b int) uint32 {
	if plane = plane[min(4*b, len(plane)):]; len(plane) >= 4 {
		return binary.LittleEndian.Uint32(plane)
	}
	var w [4]byte
	copy(w[:], plane)
	return binary.LittleEndian.Uint32(w[:])
}

// spread moves bit 4s+k of x, s and k from 0 to 3, to bit 2s of byte k.
func spread(x uint32) uint32 { return spread8[x&0xff] | spread8[x>>8&0xff]<<4 }

// spread8 is spread for 8 bits.
var spread8 = func() (t [256]uint32) {
	for x := range t {
		for i := range 8 {
			t[x] |= uint32(x>>i&1) << (i%4*8 + i/4*2)
		}
	}
	return t
}()

// rowsPad is the number of rows that outputs have room for.
func (m *matrix) rowsPad(l *linear) int { return roundUp(m.rows, l.unit()) }

// tile is the number of bytes of a tile.
func (m *matrix) tile(l *linear) int { return m.blocks * 12 * l.rows }

// wBytes is what the arranged weights take, bytes what all of m does.
func (m *matrix) wBytes(l *linear) int {
	if m.planes != nil {
		return 0
	}
	return m.rowsPad(l) / l.rows * m.tile(l)
}
func (m *matrix) bytes(l *linear) int { return m.wBytes(l) + roundUp(8*m.rowsPad(l), 64) }

// place gives m its part of raw and returns the rest.
func (m *matrix) place(raw []byte, l *linear) []byte {
	n, rows := m.wBytes(l), m.rowsPad(l)
	m.w, m.lo, m.hi = raw[:n:n], view[float32](raw[n:], rows), view[float32](raw[n+4*rows:], rows)
	return raw[m.bytes(l):]
}

// arrange arranges the rows of m from r0, a multiple of R, on.
func (m *matrix) arrange(part *ternary.Matrix, r0 int, l *linear) error {
	tile := m.tile(l)
	for r := 0; r < part.Rows; r += l.rows {
		if !l.arrange(m.w[(r0+r)/l.rows*tile:][:tile], part, r, l.rows, m.blocks) {
			return m.invalid(r0+r, l)
		}
	}
	copy(m.lo[r0:], part.SLo)
	copy(m.hi[r0:], part.SHi)
	return nil
}

// invalid is the error for the tile that begins at row r.
func (m *matrix) invalid(r int, l *linear) error {
	return fmt.Errorf("rows %d to %d: %w", r, min(r+l.rows, m.rows)-1, ErrInvalid)
}

// shape sets all of m but its weights from s, where they stay if they are in place.
func (m *matrix) shape(name string, s *ternary.Matrix, l *linear, inPlace bool) error {
	if s.Cols > l.maxCols {
		return fmt.Errorf("%s has %d columns; these kernels take up to %d", name, s.Cols, l.maxCols)
	}
	m.rows, m.cols, m.blocks = s.Rows, s.Cols, roundUp(s.Cols, blockCols)/blockCols
	m.left.Store(int64(s.Rows))
	if inPlace {
		m.planes, m.right = s, make([]bool, m.rowsPad(l)/l.rows)
	}
	m.bias = slices.Clone(s.Bias)
	for r, b := range m.bias {
		m.bias[r] = reference.Keep(b, 50)
	}
	return backend.CheckTensor(ternary.Tensor{Name: name, Ternary: &ternary.Matrix{Bias: s.Bias}})
}
