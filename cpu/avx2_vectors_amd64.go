//go:build !noasm

package cpu

//go:generate go -C _asm run ./avx2vec -out ../avx2_vectors_amd64.s -pkg cpu

// avx2Vectors never uses fused operations: NUMERICS.md rounds each product.
var avx2Vectors = vectors{
	squares: squaresAVX2, normScale: normScaleAVX2, absMax: absMaxAVX2,
	quantize: [4]func([]int8, []float32, float32) int64{1: quantize1AVX2, 2: quantize2AVX2, 3: quantize3AVX2},
	siluMul:  siluMulAVX2, add: addAVX2,
	toHalf: toHalfAVX2, fromHalf: fromHalfAVX2, fromInt8: fromInt8AVX2, rotate: rotateWholeAVX2,
	scores: scoresAVX2, mix: mixAVX2, addScaled: addScaledAVX2, scale: scaleAVX2,
	softmax: softmaxAVX2, scoresHalf: scoresHalfAVX2, mixHalf: mixHalfAVX2,
}

// rotateWholeAVX2 rotates eight pairs at a time, then one.
func rotateWholeAVX2(a, b, cos, sin []float32) {
	rotateAVX2(a, b, cos, sin)
	n := len(a) &^ 7
	rotateGeneric(a[n:], b[n:], cos[n:], sin[n:])
}

// scoresHalfAVX2 splits the heads into groups for which there are kernels. Only
// the first group fetches what is ahead.
func scoresHalfAVX2(s, q []float32, k, ahead []uint16, dim int, scale float32) {
	n := len(k) / dim
	for len(q) > 0 {
		heads := 1
		switch {
		case len(q) >= 4*dim:
			heads = 4
			scoresHalf4AVX2(&s[0], &q[0], &k[0], &ahead[0], dim, n, scale)
		case len(q) >= 2*dim:
			heads = 2
			scoresHalf2AVX2(&s[0], &q[0], &k[0], &ahead[0], dim, n, scale)
		default:
			scoresHalf1AVX2(&s[0], &q[0], &k[0], &ahead[0], dim, n, scale)
		}
		q, s, ahead = q[heads*dim:], s[heads*64:], k
	}
}

// mixHalfAVX2 splits like [scoresHalfAVX2].
func mixHalfAVX2(o, p []float32, v, ahead []uint16, dim int) {
	n := len(v) / dim
	for len(o) > 0 {
		heads := 1
		switch {
		case len(o) >= 4*dim:
			heads = 4
			mixHalf4AVX2(&o[0], &p[0], &v[0], &ahead[0], dim, n)
		case len(o) >= 2*dim:
			heads = 2
			mixHalf2AVX2(&o[0], &p[0], &v[0], &ahead[0], dim, n)
		default:
			mixHalf1AVX2(&o[0], &p[0], &v[0], &ahead[0], dim, n)
		}
		o, p, ahead = o[heads*dim:], p[heads*64:], v
	}
}

// The references of these are the functions Generic of the same name. They
// believe the lengths that the comments of type vectors give.

//go:noescape
func squaresAVX2(lanes *[256]float32, x []float32)

//go:noescape
func normScaleAVX2(y, x, g []float32, r float32)

//go:noescape
func absMaxAVX2(x []float32) uint32

//go:noescape
func addAVX2(x, y []float32)

//go:noescape
func addScaledAVX2(o, x []float32, w float32)

//go:noescape
func scaleAVX2(o []float32, w float32)

// rotateAVX2 leaves out len(a)%8 pairs at the end.
//
//go:noescape
func rotateAVX2(a, b, cos, sin []float32)

//go:noescape
func toHalfAVX2(dst []uint16, src []float32)

//go:noescape
func fromHalfAVX2(dst []float32, src []uint16)

//go:noescape
func fromInt8AVX2(dst []float32, src []int8, scale float32)

//go:noescape
func quantize1AVX2(q []int8, x []float32, up float32) int64

//go:noescape
func quantize2AVX2(q []int8, x []float32, up float32) int64

//go:noescape
func quantize3AVX2(q []int8, x []float32, up float32) int64

//go:noescape
func siluMulAVX2(y, g, u []float32)

//go:noescape
func scoresAVX2(s, q, keys []float32, scale float32)

//go:noescape
func mixAVX2(o, p, v []float32)

//go:noescape
func softmaxAVX2(s *[64]float32, n int) (m, l float32, finite bool)

// Of scoresHalf and mixHalf the references are scoresGeneric and mixGeneric
// behind fromHalfGeneric.

//go:noescape
func scoresHalf1AVX2(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func scoresHalf2AVX2(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func scoresHalf4AVX2(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func mixHalf1AVX2(o, p *float32, v, ahead *uint16, dim, n int)

//go:noescape
func mixHalf2AVX2(o, p *float32, v, ahead *uint16, dim, n int)

//go:noescape
func mixHalf4AVX2(o, p *float32, v, ahead *uint16, dim, n int)
