//go:build !noasm

package cpu

import (
	"github.com/klauspost/cpuid/v2"

	"npack/ternary"
)

//go:generate go -C _asm run ./avx512 -out ../avx512_amd64.s -pkg cpu

// avx512vnni works on tiles of 16 rows: a part of a block is one 512-bit vector.
// GF2P8AFFINEQB serves planes in place alone: see dot in _asm/avx512.
var avx512vnni = kernels{
	name: "avx512vnni", about: "512-bit integers with VNNI, x86-64 servers since 2019",
	present: func() bool {
		return hasAVX2() && cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI)
	},
	linear: placed(codeLinears(16, [4]func([]int32, []byte, []int8, int){
		1: func(sums []int32, w []byte, x []int8, blocks int) { dot1AVX512(&sums[0], &w[0], &x[0], blocks) },
		2: func(sums []int32, w []byte, x []int8, blocks int) { dot2AVX512(&sums[0], &w[0], &x[0], blocks) },
		3: func(sums []int32, w []byte, x []int8, blocks int) { dot3AVX512(&sums[0], &w[0], &x[0], blocks) },
	}, func(u, w []byte, blocks int) { expandAVX512(&u[0], &w[0], blocks) }, [4]func([]int32, []byte, []int8, int, int, int){
		1: func(sums []int32, u []byte, x []int8, blocks, columns, stride int) {
			dotMany1AVX512(&sums[0], &u[0], &x[0], blocks, columns, stride)
		},
		2: func(sums []int32, u []byte, x []int8, blocks, columns, stride int) {
			dotMany2AVX512(&sums[0], &u[0], &x[0], blocks, columns, stride)
		},
		3: func(sums []int32, u []byte, x []int8, blocks, columns, stride int) {
			dotMany3AVX512(&sums[0], &u[0], &x[0], blocks, columns, stride)
		},
	}, func(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32) {
		finishAVX512(&y[0], &sums[0], &lo[0], &hi[0], planes, xsum, before, after)
	}), func(planes int) inPlace {
		return inPlace{
			present: func() bool { return cpuid.CPU.Supports(cpuid.GFNI) },
			form:    formInPlaceAVX512, dot: dotInPlaceAVX512(planes),
			direct: 8, // as many as a draft's check has; by instructions (_asm/count) 13 would do
		}
	}),
	// Twice what a block needs, so that the last may have no partner.
	int8Bytes: func(planes int) int { return planes * 2 * blockCols },
	int8Pack:  int8PackAVX512,
	int8Dot:   int8DotAVX512,
	vec:       &avx512Vectors,
}

// avx512Vectors takes what only copies from AVX2: memory is its bound.
var avx512Vectors = func() vectors {
	v := avx2Vectors
	v.squares, v.normScale, v.siluMul = squaresAVX512, normScaleAVX512, siluMulAVX512
	v.quantize = [4]func([]int8, []float32, float32) int64{1: quantize1AVX512, 2: quantize2AVX512, 3: quantize3AVX512}
	v.scores, v.mix, v.softmax = scoresAVX512, mixAVX512, softmaxAVX512
	v.scoresHalf, v.mixHalf = scoresHalfAVX512, mixHalfAVX512
	return v
}()

// headsTogether returns for how many of n heads there is one kernel.
func headsTogether(n int) int {
	switch {
	case n >= 4:
		return 4
	case n >= 2:
		return 2
	}
	return 1
}

// scoresHalfAVX512 splits the heads into groups. Only the first fetches what is
// ahead.
func scoresHalfAVX512(s, q []float32, k, ahead []uint16, dim int, scale float32) {
	n := len(k) / dim
	for len(q) > 0 {
		heads := headsTogether(len(q) / dim)
		kernel := [...]func(s, q *float32, k, ahead *uint16, dim, n int, scale float32){1: scoresHalf1AVX512, 2: scoresHalf2AVX512, 4: scoresHalf4AVX512}[heads]
		kernel(&s[0], &q[0], &k[0], &ahead[0], dim, n, scale)
		q, s, ahead = q[heads*dim:], s[heads*64:], k
	}
}

// mixHalfAVX512 splits like [scoresHalfAVX512].
func mixHalfAVX512(o, p []float32, v, ahead []uint16, dim int) {
	n := len(v) / dim
	for len(o) > 0 {
		heads := headsTogether(len(o) / dim)
		kernel := [...]func(o, p *float32, v, ahead *uint16, dim, n int){1: mixHalf1AVX512, 2: mixHalf2AVX512, 4: mixHalf4AVX512}[heads]
		kernel(&o[0], &p[0], &v[0], &ahead[0], dim, n)
		o, p, ahead = o[heads*dim:], p[heads*64:], v
	}
}

// dotInPlaceAVX512 is [inPlace].dot: whole groups, then what bytes the last one has.
func dotInPlaceAVX512(planes int) func(sums []int32, m *ternary.Matrix, row int, x []int8) {
	kernel := [...]func(sums *int32, bp, bn, br *byte, stride, groups int, tail uint64, x *int8){1: dotInPlace1AVX512, 2: dotInPlace2AVX512, 3: dotInPlace3AVX512}[planes]
	return func(sums []int32, m *ternary.Matrix, row int, x []int8) {
		at, end, n := row*m.Stride, (row+16)*m.Stride, (m.Cols+7)/8
		bp, bn, br := m.BP[at:end], m.BN[at:end], m.BR[at:end]
		kernel(&sums[0], &bp[0], &bn[0], &br[0], m.Stride, n/groupBytes, 1<<(n%groupBytes)-1, &x[0])
	}
}

// formInPlaceAVX512 leaves what is no whole group to the definition.
func formInPlaceAVX512(dst, x []int8, planes, blocks int) {
	kernel := [...]func(dst, x *int8, groups int){1: formInPlace1AVX512, 2: formInPlace2AVX512, 3: formInPlace3AVX512}[planes]
	groups, left := blocks/groupBlocks, blocks%groupBlocks
	if groups > 0 {
		kernel(&dst[0], &x[0], groups)
	}
	if left > 0 {
		done := groups * groupCols * planes
		formInPlaceGeneric(dst[done:], x[done:], planes, left)
	}
}

// int8PackAVX512 writes [blocks/2][planes][64], the digits as they are.
func int8PackAVX512(dst []byte, x []int8, planes, blocks int) {
	for b := range blocks {
		for p := range planes {
			to := dst[((b/2*planes+p)*2+b%2)*blockCols:][:blockCols]
			for c, v := range x[(b*planes+p)*blockCols:][:blockCols] {
				to[c] = byte(v)
			}
		}
	}
}

// int8DotAVX512 lets 32-bit sums run for 2^15 blocks, 2^14 steps, at most.
func int8DotAVX512(sums []int64, w []int8, stride int, x []byte, planes, blocks int) {
	kernel := [...]func(sums *int64, w *int8, stride int, x *byte, blocks, rows int){1: int8Dot1AVX512, 2: int8Dot2AVX512, 3: int8Dot3AVX512}[planes]
	const run = 1 << 15
	clear(sums)
	for b := 0; b < blocks; b += run {
		kernel(&sums[0], &w[b*blockCols], stride, &x[b*planes*blockCols], min(run, blocks-b), len(sums))
	}
}

// The functions below want counts above 0. Where they do not say otherwise,
// their reference is the generic kernel of the same name.

//go:noescape
func dot1AVX512(sums *int32, w *byte, x *int8, blocks int)

//go:noescape
func dot2AVX512(sums *int32, w *byte, x *int8, blocks int)

//go:noescape
func dot3AVX512(sums *int32, w *byte, x *int8, blocks int)

//go:noescape
func expandAVX512(u, w *byte, blocks int)

//go:noescape
func dotMany1AVX512(sums *int32, u *byte, x *int8, blocks, columns, stride int)

//go:noescape
func dotMany2AVX512(sums *int32, u *byte, x *int8, blocks, columns, stride int)

//go:noescape
func dotMany3AVX512(sums *int32, u *byte, x *int8, blocks, columns, stride int)

//go:noescape
func finishAVX512(y *float32, sums *int32, lo, hi *float32, planes int, xsum int64, before, after float32)

// int8Dot1AVX512 adds to sums what int8Dot writes, for one digit;
// blocks <= 2^15.
//
//go:noescape
func int8Dot1AVX512(sums *int64, w *int8, stride int, x *byte, blocks, rows int)

// int8Dot2AVX512 is int8Dot1AVX512 for two digits.
//
//go:noescape
func int8Dot2AVX512(sums *int64, w *int8, stride int, x *byte, blocks, rows int)

// int8Dot3AVX512 is int8Dot1AVX512 for three digits.
//
//go:noescape
func int8Dot3AVX512(sums *int64, w *int8, stride int, x *byte, blocks, rows int)

// dotInPlace1AVX512 writes the sums of 16 rows of groups*64 bytes and, if tail is not 0,
// those bytes of 64 more whose bits are set in it.
//
//go:noescape
func dotInPlace1AVX512(sums *int32, bp, bn, br *byte, stride, groups int, tail uint64, x *int8)

//go:noescape
func dotInPlace2AVX512(sums *int32, bp, bn, br *byte, stride, groups int, tail uint64, x *int8)

//go:noescape
func dotInPlace3AVX512(sums *int32, bp, bn, br *byte, stride, groups int, tail uint64, x *int8)

// formInPlace1AVX512 is form for whole groups.
//
//go:noescape
func formInPlace1AVX512(dst, x *int8, groups int)

//go:noescape
func formInPlace2AVX512(dst, x *int8, groups int)

//go:noescape
func formInPlace3AVX512(dst, x *int8, groups int)

//go:noescape
func squaresAVX512(lanes *[256]float32, x []float32)

//go:noescape
func normScaleAVX512(y, x, g []float32, r float32)

//go:noescape
func quantize1AVX512(q []int8, x []float32, up float32) int64

//go:noescape
func quantize2AVX512(q []int8, x []float32, up float32) int64

//go:noescape
func quantize3AVX512(q []int8, x []float32, up float32) int64

//go:noescape
func siluMulAVX512(y, g, u []float32)

//go:noescape
func scoresAVX512(s, q, keys []float32, scale float32)

//go:noescape
func mixAVX512(o, p, v []float32)

//go:noescape
func softmaxAVX512(s *[64]float32, n int) (m, l float32, finite bool)

// Of scoresHalf and mixHalf the references are scoresGeneric and mixGeneric
// behind fromHalfGeneric.

//go:noescape
func scoresHalf1AVX512(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func scoresHalf2AVX512(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func scoresHalf4AVX512(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func mixHalf1AVX512(o, p *float32, v, ahead *uint16, dim, n int)

//go:noescape
func mixHalf2AVX512(o, p *float32, v, ahead *uint16, dim, n int)

//go:noescape
func mixHalf4AVX512(o, p *float32, v, ahead *uint16, dim, n int)
