//go:build !noasm

package cpu

import "npack/ternary"

// tableLinears are products by tables, on tiles of 64 rows. The 16 sums of any of four
// activations are made once for all rows and then looked up for 32 rows at a time, in
// digits of 4 to 7 bits: 128 weights take 6 lookups and 8 additions and shifts for one
// plane, 12 and 20 for three, where codes would take 8 products and as many additions,
// or 24, and be more work to make than nibbles.
func tableLinears() (set [4]*linear) {
	for i, k := range []struct {
		tables     func(tables, x *int8, blocks int) (more int64)
		lookUp     func(sums *int32, w *byte, tables *int8, blocks int)
		lookUpMany func(sums *int32, w *byte, tables *int8, blocks, columns, stride int, scratch *byte)
	}{{tables1AVX2, lookUp1AVX2, lookUpMany1AVX2}, {tables2AVX2, lookUp2AVX2, lookUpMany2AVX2}, {tables3AVX2, lookUp3AVX2, lookUpMany3AVX2}} {
		planes := i + 1
		digits := len(tableDigits[planes])
		set[planes] = &linear{
			planes: planes, rows: 64, maxCols: tableCols,
			arrange: arrangeBitTiles,
			form:    func(dst, x []int8, blocks int) int64 { return k.tables(&dst[0], &x[0], blocks) }, formBytes: 8 * digits * 16,
			dot: func(sums []int32, w []byte, x []int8, blocks int) { k.lookUp(&sums[0], &w[0], &x[0], blocks) },
			many: func(sums []int32, w []byte, x []int8, blocks, columns, stride int, scratch []byte) {
				k.lookUpMany(&sums[0], &w[0], &x[0], blocks, columns, stride, &scratch[0])
			},
			direct:  1,
			scratch: func(columns int) int { return 8*1536 + columns*digits*12*32 },
			finish: func(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32) {
				finishAVX2(&y[0], &sums[0], &lo[0], &hi[0], planes, len(y), xsum, before, after)
			},
		}
	}
	return set
}

// tableDigits are the bits of the digits of a sum of four activations of P planes,
// lowest first, of which a byte can hold several.
var tableDigits = [4][]int{{}, {5, 4}, {6, 6, 5}, {7, 6, 6, 6}}

// tableCols is the number of columns up to which 32-bit sums of looked up digits
// are safe: a block adds at most 8*3*(127+63*128) to one, and 4,096 such 8.1e8.
const tableCols = 1 << 17

// arrangeBits is [linear].arrange for any R. A block has 4 parts of 8 columns, 3R
// bytes each: for each row a byte of bits p, then of q, then of n, so that 2p+n is
// the code t+1 of a weight, 2q+n the code q+1.
func arrangeBits(dst []byte, part *ternary.Matrix, row, R, blocks int) (valid bool) {
	var bad uint32
	for r := range R {
		var bp, bn, br []byte // empty behind the last row: weights of 0
		if row+r < part.Rows {
			at := (row + r) * part.Stride
			bp, bn, br = part.BP[at:at+part.Stride], part.BN[at:at+part.Stride], part.BR[at:at+part.Stride]
		}
		for b := range blocks {
			plus, minus, high := word(bp, b), word(bn, b), word(br, b)
			bad |= plus&minus | high&^(plus|minus)
			if b == blocks-1 {
				bad |= (plus | minus) &^ (1<<(part.Cols-b*blockCols) - 1) // a shift by 32 gives all bits
			}
			for g := range 4 {
				to := dst[(b*4+g)*3*R+r:]
				to[0], to[R], to[2*R] = byte(plus>>(8*g)), byte((plus^high)>>(8*g)), byte(^(plus|minus)>>(8*g))
			}
		}
	}
	return bad == 0
}

// arrangeBitTiles is arrangeBits, as arrangeTiles is arrangeCodes.
func arrangeBitTiles(dst []byte, part *ternary.Matrix, row, R, blocks int) (valid bool) {
	const cols = 8 * blockCols
	if part.Cols%cols != 0 || part.Rows-row < R {
		return arrangeBits(dst, part, row, R, blocks)
	}
	var bad uint32
	for r := 0; r < R; r += 8 {
		at := (row + r) * part.Stride
		bad |= arrangeBitsAVX2(&dst[r], &part.BP[at], &part.BN[at], &part.BR[at], part.Stride, part.Cols/cols, R)
	}
	return bad == 0
}

// arrangeBitsAVX2 is like [arrangeCodesAVX2]; part is R.
//
//go:noescape
func arrangeBitsAVX2(dst, bp, bn, br *byte, stride, groups, part int) (bad uint32)

// tables1AVX2 is [linear].form: for every four columns the sums of all choices of
// them, less the least of those, [blocks][8][digit][16], in the digits of tableDigits.
// Entry i has the columns whose bit in i is set. A test has its reference.
//
//go:noescape
func tables1AVX2(tables, x *int8, blocks int) (more int64)

//go:noescape
func tables2AVX2(tables, x *int8, blocks int) (more int64)

//go:noescape
func tables3AVX2(tables, x *int8, blocks int) (more int64)

// lookUp1AVX2 is dot on arrangeBits and those tables.
//
//go:noescape
func lookUp1AVX2(sums *int32, w *byte, tables *int8, blocks int)

//go:noescape
func lookUp2AVX2(sums *int32, w *byte, tables *int8, blocks int)

//go:noescape
func lookUp3AVX2(sums *int32, w *byte, tables *int8, blocks int)

// lookUpMany1AVX2 is many. scratch has 8 blocks of nibbles, 1,536 bytes each, and
// for each column and digit 12 vectors of 16-bit sums.
//
//go:noescape
func lookUpMany1AVX2(sums *int32, w *byte, tables *int8, blocks, columns, stride int, scratch *byte)

//go:noescape
func lookUpMany2AVX2(sums *int32, w *byte, tables *int8, blocks, columns, stride int, scratch *byte)

//go:noescape
func lookUpMany3AVX2(sums *int32, w *byte, tables *int8, blocks, columns, stride int, scratch *byte)
