package reference

import (
	"math"

	"npack/runtime/backend"
)

// width is one row of the table of activation widths: q has Q fraction bits
// below the exponent and never exceeds limit, the largest value whose base-256
// digits in -128..127 are Activations many.
var width = map[backend.Activations]struct{ q, limit int32 }{
	backend.Int8:  {7, 127},
	backend.Int16: {15, 32639},
	backend.Exact: {23, 8355711},
}

// Fixed is a vector in fixed point: x[c] is Q[c] * Scale up to rounding.
type Fixed struct {
	Q     []int32
	Scale float32
	// After says when a linear multiplies by Scale: at the end (BitNet, whose
	// Scale is not a power of two) or in the row's magnitudes (all others).
	After bool
}

// Quantize writes x in fixed point of the given width to q (len(q) == len(x))
// and returns the scale 2^(e-Q). ok is false if x holds a NaN or an infinity.
func Quantize(q []int32, x []float32, a backend.Activations) (scale float32, ok bool) {
	m, ok := absMax(x)
	if !ok {
		return 0, false
	}
	if m < pow2(-40) {
		clear(q)
		return 1, true
	}
	up, scale := FixedScale(m, a)
	for c, v := range x {
		q[c] = int32(math.RoundToEven(float64(v) * float64(up)))
	}
	return scale, true
}

// FixedScale returns, for a vector whose largest magnitude is m >= 2^-40, the
// powers of two 2^(Q-e), by which its values are multiplied before they are
// rounded, and 2^(e-Q). Scaling by them is exact in float64; in float32 it is
// exact or gives a subnormal, which rounds to the same integer, 0.
func FixedScale(m float32, a backend.Activations) (up, scale float32) {
	w := width[a]
	_, e := math.Frexp(float64(m)) // 2^(e-1) <= m < 2^e
	if int32(math.RoundToEven(math.Ldexp(float64(m), int(w.q)-e))) > w.limit {
		e++
	}
	n := int32(w.q) - int32(e)
	return pow2(n), pow2(-n)
}

// QuantizeBitNet writes x as 8-bit integers with the model-defined scale of
// BitNet b1.58 and returns that scale, m/127 with m = max(max|x|, 1e-5).
func QuantizeBitNet(q []int32, x []float32) (scale float32, ok bool) {
	m, ok := absMax(x)
	if !ok {
		return 0, false
	}
	return QuantizeInt8(q, x, max(m, 1e-5)), true
}

// QuantizeInt8 writes round(x * 127/m), clamped to -127..127, and returns m/127,
// both by the written operations. m >= 2^-40.
func QuantizeInt8(q []int32, x []float32, m float32) (scale float32) {
	s := mul(127, Recip(m))
	for c, v := range x {
		q[c] = min(max(int32(math.RoundToEven(float64(mul(v, s)))), -127), 127)
	}
	return mul(m, 1.0/127)
}

// absMax returns the largest magnitude in x, and false if x is not finite.
func absMax(x []float32) (m float32, ok bool) {
	for _, v := range x {
		if !finite(v) {
			return 0, false
		}
		m = max(m, abs(v))
	}
	return m, true
}
