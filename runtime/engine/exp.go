package engine

import "math"

const (
	log2e = 0x1.71547652b82fep+0
	// ln2Hi has 32 significant bits, so that n*ln2Hi is exact for |n| < 2^21.
	ln2Hi = 0x1.62e42fee00000p-1
	ln2Lo = 0x1.a39ef35793c76p-33
	// expZero is the argument below which exp returns 0. Weights of tokens are
	// multiples of 2^-39, so nothing that far down is ever drawn.
	expZero = -700
)

// expPoly are the Taylor coefficients 1/k! of exp from k = 13 down to 2. On
// |r| <= ln2/2 the first one left out adds less than 2^-57.
var expPoly = [...]float64{
	1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
	1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2,
}

// exp returns e to the x for x <= 0, within 0.8 ulp, and 0 below -700. The
// library's exp is assembly on some platforms; this one gives the same bits on
// all of them: every product is rounded before it is added (no fused
// operation), and only add, multiply and round-to-even are used.
func exp(x float64) float64 {
	if !(x >= expZero) { // also NaN
		return 0
	}
	n := math.RoundToEven(x * log2e)
	hi := x - float64(n*ln2Hi) // exact
	lo := float64(n * ln2Lo)
	r := hi - lo
	c := (hi - r) - lo // what rounding r lost
	q := expPoly[0]
	for _, k := range expPoly[1:] {
		q = float64(q*r) + k
	}
	y := 1 + (r + (float64(float64(r*r)*q) + c))
	// 2^n for n in -1010..0 by its exponent bits: no subnormal is reached.
	return y * math.Float64frombits(uint64(1023+int64(n))<<52)
}
