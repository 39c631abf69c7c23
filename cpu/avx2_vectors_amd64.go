//go:build !noasm

package cpu

//go:generate go -C _asm run ./avx2vec -out ../avx2_vectors_amd64.s -pkg cpu

// avx2Vectors never uses fused operations: NUMERICS.md rounds each product.
var avx2Vectors = vectors{
	squares: squaresAVX2, normScale: normScaleAVX2, absMax: absMaxAVX2,
	quantize: [4]func([]int8, []float32, float32) int64{1: quantize1AVX2, 2: quantize2AVX2, 3: quantize3AVX2},
	siluMul:  siluMulAVX2, add: addAVX2,
	toHalf: toHalfAVX2, fromHalf: fromHalfAVX2, fromInt8: fromInt8AVX2, rotate: rotateWholeAVX2,
	scores: scoresAVX2, expSub: expSubAVX2, mix: mixAVX2, addScaled: addScaledAVX2, scale: scaleAVX2,
}

// rotateWholeAVX2 rotates eight pairs at a time, then one.
func rotateWholeAVX2(a, b, cos, sin []float32) {
	rotateAVX2(a, b, cos, sin)
	n := len(a) &^ 7
	rotateGeneric(a[n:], b[n:], cos[n:], sin[n:])
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
func expSubAVX2(p []float32, m float32)

//go:noescape
func siluMulAVX2(y, g, u []float32)

//go:noescape
func scoresAVX2(s, q, keys []float32, scale float32)

//go:noescape
func mixAVX2(o, p, v []float32)
