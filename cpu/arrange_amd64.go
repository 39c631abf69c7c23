//go:build !noasm

package cpu

import "npack/ternary"

//go:generate go -C _asm/arrange run . -out ../../arrange_amd64.s -pkg cpu

var useArrangeAVX2 = hasAVX2()

// arrangeTiles is [arrangeCodes]. Whole tiles of whole groups of 8 blocks, which
// is all of a real model, take an eighth of the time.
func arrangeTiles(dst []byte, part *ternary.Matrix, row, R, blocks int) (valid bool) {
	const rows, cols = 8, 8 * blockCols
	if !useArrangeAVX2 || R%rows != 0 || part.Cols%cols != 0 || part.Rows-row < R {
		return arrangeCodes(dst, part, row, R, blocks)
	}
	var bad uint32
	for r := 0; r < R; r += rows {
		at := (row + r) * part.Stride
		bad |= arrangeCodesAVX2(&dst[4*r], &part.BP[at], &part.BN[at], &part.BR[at], part.Stride, part.Cols/cols, 4*R)
	}
	return bad == 0
}

// arrangeCodesAVX2 arranges 8 rows of groups*256 columns; part is the number of
// bytes of a part of a block, 4R. bad is not 0 if a weight is both +1 and -1, or
// 0 with a magnitude.
//
//go:noescape
func arrangeCodesAVX2(dst, bp, bn, br *byte, stride, groups, part int) (bad uint32)
