//go:build !noasm

package cpu

// Sums of a tile: see [kernels]. References: dotGeneric, finishGeneric,
// expandGeneric.

//go:noescape
func dotSDOT1(sums []int32, w []byte, x []int8, blocks int)

//go:noescape
func dotSDOT2(sums []int32, w []byte, x []int8, blocks int)

//go:noescape
func dotSDOT3(sums []int32, w []byte, x []int8, blocks int)

//go:noescape
func dotNEON1(sums []int32, w []byte, x []int8, blocks int)

//go:noescape
func dotNEON2(sums []int32, w []byte, x []int8, blocks int)

//go:noescape
func dotNEON3(sums []int32, w []byte, x []int8, blocks int)

//go:noescape
func finishNEON(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32)

//go:noescape
func expandNEON(u, w []byte, blocks int)

// manyFunc is dotMany for one digit of P, at sums[p*R] and x[p*32]; blocks is
// not 0. Its reference is dotManyGeneric.
type manyFunc func(sums *int32, u *byte, x *int8, blocks, columns, stride, planes int)

//go:noescape
func manySDOT(sums *int32, u *byte, x *int8, blocks, columns, stride, planes int)

//go:noescape
func manySMMLA(sums *int32, u *byte, x *int8, blocks, columns, stride, planes int)

//go:noescape
func manyNEON(sums *int32, u *byte, x *int8, blocks, columns, stride, planes int)

// dotManyOf makes dotMany of f, which can take run blocks at a time.
func dotManyOf(f manyFunc, run int) (many [4]func(sums []int32, u []byte, x []int8, blocks, columns, stride int)) {
	for planes := 1; planes <= 3; planes++ {
		many[planes] = func(sums []int32, u []byte, x []int8, blocks, columns, stride int) {
			for b := 0; b < blocks; b += run {
				for p := range planes {
					f(&sums[4*p], &u[256*b], &x[(b*planes+p)*blockCols], min(run, blocks-b), columns, stride, planes)
				}
			}
		}
	}
	return many
}

// int8Func adds to sums [rows] the products of rows of w with x, the digits as
// they are. Its reference is int8DotGeneric.
type int8Func func(sums *int64, w *int8, stride int, x *byte, rows, blocks int)

//go:noescape
func int8DotSDOT1(sums *int64, w *int8, stride int, x *byte, rows, blocks int)

//go:noescape
func int8DotSDOT2(sums *int64, w *int8, stride int, x *byte, rows, blocks int)

//go:noescape
func int8DotSDOT3(sums *int64, w *int8, stride int, x *byte, rows, blocks int)

//go:noescape
func int8DotNEON1(sums *int64, w *int8, stride int, x *byte, rows, blocks int)

//go:noescape
func int8DotNEON2(sums *int64, w *int8, stride int, x *byte, rows, blocks int)

//go:noescape
func int8DotNEON3(sums *int64, w *int8, stride int, x *byte, rows, blocks int)

func int8DigitsBytes(planes int) int { return planes * blockCols }

func int8PackDigits(dst []byte, x []int8, planes, blocks int) {
	for i, d := range x[:blocks*planes*blockCols] {
		dst[i] = byte(d)
	}
}

// int8DotOf makes int8Dot of f for one, two and three digits. f has sums of 32
// bits, of 8 products of at most 2^14 a block.
func int8DotOf(f ...int8Func) func(sums []int64, w []int8, stride int, x []byte, planes, blocks int) {
	const run = 1 << 13
	return func(sums []int64, w []int8, stride int, x []byte, planes, blocks int) {
		clear(sums)
		for b := 0; b < blocks; b += run {
			f[planes-1](&sums[0], &w[b*blockCols], stride, &x[b*planes*blockCols], len(sums), min(run, blocks-b))
		}
	}
}
