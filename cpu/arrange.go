package cpu

import (
	"encoding/binary"

	"npack/ternary"
)

// matrix is a ternary linear arranged for one set of kernels.
type matrix struct {
	rows, cols int
	blocks     int       // of columns
	w          []byte    // [tiles][blocks][12R]
	lo, hi     []float32 // [tiles*R]
	bias       []float32 // [rows], after keep_50, or nil
}

// roundUp returns the multiple of n that is not below x.
func roundUp(x, n int) int { return (x + n - 1) / n * n }

// arrangeTile writes a tile of R rows of part, from row on; rows that part does
// not have count as 0. dst is [blocks][12R] (see [kernels]).
func arrangeTile(dst []byte, part *ternary.Matrix, row, R, blocks int) {
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
