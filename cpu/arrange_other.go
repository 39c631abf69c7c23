//go:build noasm || !amd64

package cpu

import "npack/ternary"

func arrangeTiles(dst []byte, part *ternary.Matrix, row, R, blocks int) (valid bool) {
	return arrangeCodes(dst, part, row, R, blocks)
}
