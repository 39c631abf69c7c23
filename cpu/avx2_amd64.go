//go:build !noasm

package cpu

import "encoding/binary"

//go:generate go -C _asm/avx2 run . -out ../../avx2_amd64.s -pkg cpu

var avx2 = kernels{
	name: "avx2", about: "256-bit integers, x86-64 since 2013",
	present:   hasAVX2,
	linear:    tableLinears(),
	int8Bytes: func(planes int) int { return int8Digits(planes) * 2 * blockCols },
	int8Pack:  int8PackAVX2,
	int8Dot:   int8DotAVX2,
	vec:       &avx2Vectors,
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
