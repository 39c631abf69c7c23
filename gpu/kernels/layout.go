package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"npack/ternary"
)

// # Ternary weights
//
// Sixteen rows are a strip, 256 columns of a strip a tile; rows and columns that a
// matrix lacks are weights of 0. A tile is [3][32][4] words: for each of the planes bp,
// bn and br, lane 4g+t holds four words of 32 columns, bit i of a word for column i,
//
//	row g, columns 32t..        row g+8, the same
//	row g, columns 128+32t..    row g+8, the same
//
// so that a warp brings a plane of a tile with one load of 16 bytes a lane, in the order
// in which mma.sync.m16n8k256 wants it.
//
// # int8 rows
//
// The same tiles of 16 rows and 256 columns, [8][32][4] words. Word h*2+r of lane 4g+t and
// step 4w+i holds the columns 128w+32t+16h+i, +4, +8 and +12 of row g+8r: the order in
// which the kernels unpack ternary weights, so that both share the activations.
//
// # Digits
//
// Slot c*planes+p is digit p of column c. Eight slots are a group, [tiles][4][32][4] words:
// word 2*(step%2)+h of lane 4(slot%8)+t in quarter step/2 holds the columns that int8 rows
// have there.
//
// # Bits
//
// [columns][tiles][planes][32][2] words: word w of lane 4g+t in plane j holds bit 8j+g of
// the fixed-point activations, in two's complement, of columns 128w+32t to 128w+32t+31.
const (
	StripRows  = 16
	TileCols   = 256
	GroupSlots = 8

	planeWords = 3 * 128 // of a tile of ternary weights
	tableWords = 8 * 128 // of a tile of int8 rows
	groupWords = 4 * 128 // of a tile of digits of a group
	bitWords   = 64      // of a tile of bits of a column and plane

	// manySlots is the number of slots that tern_many takes at once; buffers of digits
	// hold a multiple of it, so that no kernel reads past their end.
	manySlots = 72

	// MaxCols is the largest number of columns of a matrix, MaxHeadDim that of the width
	// of a head, for which the kernels' sums and shared memory suffice.
	MaxCols    = 1 << 16
	MaxHeadDim = 512

	// CacheStep is the number of positions by which a cache grows, and Chunk the number
	// that attention takes together (NUMERICS.md, 5).
	CacheStep = 256
	Chunk     = 64
)

// Strips returns how many strips hold the given number of rows, and Tiles how many tiles
// hold the given number of columns.
func Strips(rows int) int { return (rows + StripRows - 1) / StripRows }
func Tiles(cols int) int  { return (cols + TileCols - 1) / TileCols }

// PlaneBytes is the size of a ternary matrix, TableBytes that of int8 rows.
func PlaneBytes(strips, tiles int) int64 { return int64(strips) * int64(tiles) * planeWords * 4 }
func TableBytes(strips, tiles int) int64 { return int64(strips) * int64(tiles) * tableWords * 4 }

// DigitsBytes is the size of the digits of n columns, BitsBytes that of their bits.
func DigitsBytes(n, planes, tiles int) int64 {
	slots := (n*planes + manySlots - 1) / manySlots * manySlots
	return int64(slots/GroupSlots) * int64(tiles) * groupWords * 4
}
func BitsBytes(n, planes, tiles int) int64 {
	return int64(n) * int64(tiles) * int64(planes) * bitWords * 4
}

// HeadPad is the number of elements that a head vector takes in the cache and in the
// queries.
func HeadPad(dim int) int { return (dim + 63) &^ 63 }

// Place says which rows of the strips a matrix takes.
type Place int

const (
	Whole Place = iota // row r is row r%16 of strip r/16
	Gate               // row r is row r%8 of strip r/8
	Up                 // row r is row 8 + r%8 of strip r/8
)

// Row returns the row in the strips, counted through, of row r.
func (p Place) Row(r int) int {
	switch p {
	case Gate:
		return r/8*16 + r%8
	case Up:
		return r/8*16 + 8 + r%8
	}
	return r
}

// PackPlanes writes part, the rows of a matrix from row first on, into dst, the whole
// matrix [strips][tiles][3][32][4] words, whose other rows it leaves alone; dst starts as
// zeros. It refuses a weight that is both +1 and -1, or 0 with a magnitude, and bits behind
// the last column. Parts of different rows may be packed at the same time.
func PackPlanes(dst []byte, part *ternary.Matrix, first int, place Place) error {
	tiles := Tiles(part.Cols)
	words := (part.Cols + 31) / 32
	for r := range part.Rows {
		at := place.Row(first + r)
		strip, g, half := at/StripRows, at%8, at%StripRows/8
		to := dst[4*(strip*tiles*planeWords+16*g+half):]
		row := part.Stride * r
		bp, bn, br := part.BP[row:row+part.Stride], part.BN[row:row+part.Stride], part.BR[row:row+part.Stride]
		var bad uint32
		for i := range words {
			var p, n, b uint32
			if at := 4 * i; at+4 <= len(bp) {
				p, n, b = binary.LittleEndian.Uint32(bp[at:]), binary.LittleEndian.Uint32(bn[at:]), binary.LittleEndian.Uint32(br[at:])
			} else {
				p, n, b = lastWord(bp), lastWord(bn), lastWord(br)
			}
			bad |= p&n | b&^(p|n)
			if i == words-1 {
				bad |= (p | n) &^ columnMask(part.Cols-32*i)
			}
			tile := to[4*(i/8*planeWords+i%4*4+i/4%2*2):][:1028]
			binary.LittleEndian.PutUint32(tile, p)
			binary.LittleEndian.PutUint32(tile[512:], n)
			binary.LittleEndian.PutUint32(tile[1024:], b)
		}
		if bad != 0 {
			return fmt.Errorf("row %d: planes that are no weights, or bits behind column %d", first+r, part.Cols)
		}
	}
	return nil
}

// lastWord returns the word that begins the last 1 to 3 bytes of a row.
func lastWord(row []byte) uint32 {
	var last [4]byte
	copy(last[:], row[len(row)&^3:])
	return binary.LittleEndian.Uint32(last[:])
}

// columnMask has a bit for each of the next n columns of a word.
func columnMask(n int) uint32 {
	if n >= 32 {
		return math.MaxUint32
	}
	return 1<<n - 1
}

// PackScales writes the magnitudes of part's rows into dst [16*strips][2], and PackBias
// its biases after keep_50 into dst [16*strips].
func PackScales(dst []float32, part *ternary.Matrix, first int, place Place) {
	for r := range part.Rows {
		at := 2 * place.Row(first+r)
		dst[at], dst[at+1] = part.SLo[r], part.SHi[r]
	}
}
func PackBias(dst []float32, part *ternary.Matrix, first int, place Place) {
	for r, v := range part.Bias {
		if math.Abs(float64(v)) >= 0x1p-50 {
			dst[place.Row(first+r)] = v
		}
	}
}

// PackTable writes part, the rows of a table from row first on, into dst, the whole table
// [strips][tiles][8][32][4] words, which starts as zeros.
func PackTable(dst []byte, part *ternary.Int8Matrix, first int) {
	tiles := Tiles(part.Cols)
	for r := range part.Rows {
		g, half := (first+r)%8, (first+r)%StripRows/8
		to := dst[4*((first+r)/StripRows*tiles*tableWords+16*g+half):]
		q := part.Row(r)
		row := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q))), len(q))
		for c := 0; c < len(row); c += 16 {
			from := row[c:]
			if len(from) < 16 {
				var last [16]byte
				copy(last[:], from)
				from = last[:]
			}
			// Word i of the four, one for each of as many steps, has columns i, i+4,
			// i+8 and i+12: four words of four columns each, transposed.
			a0, a1 := binary.LittleEndian.Uint32(from), binary.LittleEndian.Uint32(from[4:])
			a2, a3 := binary.LittleEndian.Uint32(from[8:]), binary.LittleEndian.Uint32(from[12:])
			const even = 0x00ff00ff
			e0, o0 := a0&even|a1&even<<8, a0>>8&even|a1&^even
			e1, o1 := a2&even|a3&even<<8, a2>>8&even|a3&^even
			step, t, h := c>>7&1*4, c>>5&3, c>>4&1
			tile := to[4*(c/TileCols*tableWords+step*128+t*4+h*2):][:1540]
			binary.LittleEndian.PutUint32(tile, e0&0xffff|e1<<16)
			binary.LittleEndian.PutUint32(tile[512:], o0&0xffff|o1<<16)
			binary.LittleEndian.PutUint32(tile[1024:], e0>>16|e1&^0xffff)
			binary.LittleEndian.PutUint32(tile[1536:], o0>>16|o1&^0xffff)
		}
	}
}
