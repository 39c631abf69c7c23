//go:build !noasm

package cpu

import "encoding/binary"

//go:generate go -C _asm/avx2 run . -out ../../avx2_amd64.s -pkg cpu

var avx2 = kernels{
	name: "avx2", about: "256-bit integers, x86-64 since 2013",
	present:   hasAVX2,
	linear:    avx2Linears(),
	int8Bytes: func(planes int) int { return int8Digits(planes) * 2 * blockCols },
	int8Pack:  int8PackAVX2,
	int8Dot:   int8DotAVX2,
	vec:       &avx2Vectors,
}

// avx2Linears are products of digits with codes for tiles of 8 rows, where a part
// of a block is one 256-bit vector, and for more than one digit tables.
func avx2Linears() [4]*linear {
	set := codeLinears(8, [4]func([]int32, []byte, []int8, int){
		1: func(sums []int32, w []byte, x []int8, blocks int) { dot1AVX2(&sums[0], &w[0], &x[0], blocks) },
	}, func(u, w []byte, blocks int) { expandAVX2(&u[0], &w[0], blocks) }, [4]func([]int32, []byte, []int8, int, int, int){
		1: func(sums []int32, u []byte, x []int8, blocks, columns, stride int) {
			dotMany1AVX2(&sums[0], &u[0], &x[0], blocks, columns, stride)
		},
	}, func(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32) {
		finishAVX2(&y[0], &sums[0], &lo[0], &hi[0], planes, len(y), xsum, before, after)
	})
	tableLinears(&set)
	return set
}

// int8Digits returns how many 16-bit digits, base 4096, an activation needs.
func int8Digits(planes int) int { return min(planes, 2) }

// int8PackAVX2 writes [block][digit][32] int16, lowest digit first.
func int8PackAVX2(dst []byte, x []int8, planes, blocks int) {
	digits := int8Digits(planes)
	for b := range blocks {
		for c := range blockCols {
			q := activation(x, planes, b, c)
			for d := range digits {
				digit := q
				if d < digits-1 {
					digit = q << 20 >> 20 // the low 12 bits, sign extended
				}
				binary.LittleEndian.PutUint16(dst[2*((b*digits+d)*blockCols+c):], uint16(digit))
				q = (q - digit) >> 12
			}
		}
	}
}

// int8DotAVX2 lets 32-bit sums run for 1024 blocks at most.
func int8DotAVX2(sums []int64, w []int8, stride int, x []byte, planes, blocks int) {
	kernel := int8Dot2AVX2
	if planes == 1 {
		kernel = int8Dot1AVX2
	}
	size := int8Digits(planes) * 2 * blockCols
	clear(sums)
	for b := 0; b < blocks && len(sums) > 0; b += 1024 {
		kernel(&sums[0], &w[b*blockCols], stride, &x[b*size], min(1024, blocks-b), len(sums))
	}
}

// The functions below want counts above 0. Where they do not say otherwise,
// their reference is the generic kernel of the same name.

//go:noescape
func dot1AVX2(sums *int32, w *byte, x *int8, blocks int)

//go:noescape
func expandAVX2(u, w *byte, blocks int)

//go:noescape
func dotMany1AVX2(sums *int32, u *byte, x *int8, blocks, columns, stride int)

//go:noescape
func finishAVX2(y *float32, sums *int32, lo, hi *float32, planes, rows int, xsum int64, before, after float32)

// int8Dot1AVX2 adds to sums what int8Dot writes, with activations in one digit;
// blocks <= 1024.
//
//go:noescape
func int8Dot1AVX2(sums *int64, w *int8, stride int, x *byte, blocks, rows int)

// int8Dot2AVX2 is int8Dot1AVX2 for two digits.
//
//go:noescape
func int8Dot2AVX2(sums *int64, w *int8, stride int, x *byte, blocks, rows int)
