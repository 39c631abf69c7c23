//go:build !noasm

package cpu

// neonVectors serves every set of this architecture. Nothing in it is fused:
// NUMERICS.md rounds each product. References: the functions of generic.go.
var neonVectors = vectors{
	squares: squaresNEON, normScale: normScaleNEON, absMax: absMaxNEON,
	quantize: [4]func([]int8, []float32, float32) int64{1: quantizeNEON1, 2: quantizeNEON2, 3: quantizeNEON3},
	siluMul:  siluMulNEON, add: addNEON,
	toHalf: toHalfNEON, fromHalf: fromHalfNEON, fromInt8: fromInt8NEON, rotate: rotateAny,
	scores: scoresNEON, mix: mixNEON, addScaled: addScaledNEON, scale: scaleNEON,
	softmax: softmaxNEON, scoresHalf: scoresHalfNEON, mixHalf: mixHalfNEON,
}

// rotateAny leaves to rotateNEON all but a rest below four.
func rotateAny(a, b, cos, sin []float32) {
	n := len(a) &^ 3
	rotateNEON(a[:n], b, cos, sin)
	rotateGeneric(a[n:], b[n:], cos[n:], sin[n:])
}

// scoresHalfNEON splits the heads into groups for which there are kernels. Only
// the first group fetches what is ahead.
func scoresHalfNEON(s, q []float32, k, ahead []uint16, dim int, scale float32) {
	n := len(k) / dim
	for len(q) > 0 {
		heads := 1
		switch {
		case len(q) >= 4*dim:
			heads = 4
			scoresHalf4NEON(&s[0], &q[0], &k[0], &ahead[0], dim, n, scale)
		case len(q) >= 2*dim:
			heads = 2
			scoresHalf2NEON(&s[0], &q[0], &k[0], &ahead[0], dim, n, scale)
		default:
			scoresHalf1NEON(&s[0], &q[0], &k[0], &ahead[0], dim, n, scale)
		}
		q, s, ahead = q[heads*dim:], s[heads*64:], k
	}
}

// mixHalfNEON splits like [scoresHalfNEON].
func mixHalfNEON(o, p []float32, v, ahead []uint16, dim int) {
	n := len(v) / dim
	for len(o) > 0 {
		heads := 1
		switch {
		case len(o) >= 4*dim:
			heads = 4
			mixHalf4NEON(&o[0], &p[0], &v[0], &ahead[0], dim, n)
		case len(o) >= 2*dim:
			heads = 2
			mixHalf2NEON(&o[0], &p[0], &v[0], &ahead[0], dim, n)
		default:
			mixHalf1NEON(&o[0], &p[0], &v[0], &ahead[0], dim, n)
		}
		o, p, ahead = o[heads*dim:], p[heads*64:], v
	}
}

//go:noescape
func squaresNEON(lanes *[256]float32, x []float32)

//go:noescape
func normScaleNEON(y, x, g []float32, r float32)

//go:noescape
func absMaxNEON(x []float32) uint32

//go:noescape
func quantizeNEON1(q []int8, x []float32, up float32) int64

//go:noescape
func quantizeNEON2(q []int8, x []float32, up float32) int64

//go:noescape
func quantizeNEON3(q []int8, x []float32, up float32) int64

//go:noescape
func siluMulNEON(y, g, u []float32)

//go:noescape
func addNEON(x, y []float32)

// toHalfNEON keeps the payload of a NaN, which F32toF16 does not; a NaN is an
// error in any case.
//
//go:noescape
func toHalfNEON(dst []uint16, src []float32)

//go:noescape
func fromHalfNEON(dst []float32, src []uint16)

//go:noescape
func fromInt8NEON(dst []float32, src []int8, scale float32)

// rotateNEON takes a multiple of 4 pairs, as many as a has.
//
//go:noescape
func rotateNEON(a, b, cos, sin []float32)

//go:noescape
func scoresNEON(s, q, keys []float32, scale float32)

//go:noescape
func mixNEON(o, p, v []float32)

//go:noescape
func addScaledNEON(o, x []float32, w float32)

//go:noescape
func scaleNEON(o []float32, w float32)

//go:noescape
func softmaxNEON(s *[64]float32, n int) (m, l float32, finite bool)

// For n keys or values and as many heads as the name says; n is not 0. The
// references are scoresGeneric and mixGeneric behind fromHalfGeneric.

//go:noescape
func scoresHalf4NEON(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func scoresHalf2NEON(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func scoresHalf1NEON(s, q *float32, k, ahead *uint16, dim, n int, scale float32)

//go:noescape
func mixHalf4NEON(o, p *float32, v, ahead *uint16, dim, n int)

//go:noescape
func mixHalf2NEON(o, p *float32, v, ahead *uint16, dim, n int)

//go:noescape
func mixHalf1NEON(o, p *float32, v, ahead *uint16, dim, n int)
