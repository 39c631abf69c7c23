package reference

import "math"

// The constants of recip, rsqrt and exp. NUMERICS.md lists them as bit
// patterns; TestConstants compares.
const (
	recipSeed = 0x7EF311C7
	rsqrtSeed = 0x5F3759DF

	log2e = 1.4426950408889634 // 0x3FB8AA3B
	ln2Hi = 0.693359375        // 0x3F318000, 9 bits: n*ln2Hi is exact for |n| < 2^15
	ln2Lo = -2.12194440e-4     // 0xB95E8083
)

// expPoly are the coefficients of (exp(r) - 1 - r) / r^2, highest first
// (Cephes expf).
var expPoly = [6]float32{
	1.9875691500e-4, // 0x39506967
	1.3981999507e-3, // 0x3AB743CE
	8.3334519073e-3, // 0x3C088908
	4.1665795894e-2, // 0x3D2AA9C1
	1.6666665459e-1, // 0x3E2AAAAA
	5.0000001201e-1, // 0x3F000000
}

// Recip returns 1/x for normal x > 0 whose reciprocal is normal, to 1.25 ulp.
func Recip(x float32) float32 {
	y := math.Float32frombits(recipSeed - math.Float32bits(x))
	for range 4 {
		y = add(y, mul(y, sub(1, mul(x, y))))
	}
	return y
}

// RSqrt returns 1/sqrt(x) for normal x > 0, to 1.45 ulp.
func RSqrt(x float32) float32 {
	y := math.Float32frombits(rsqrtSeed - math.Float32bits(x)>>1)
	h := mul(x, 0.5)
	for range 4 {
		y = mul(y, sub(1.5, mul(mul(h, y), y)))
	}
	return y
}

// Exp returns e^x for x <= 40: 0 below -30, and 1 where |x| < 2^-30, which is
// what the polynomial would round to, by way of subnormal squares.
func Exp(x float32) float32 {
	if x < -30 {
		return 0
	}
	if abs(x) < pow2(-30) {
		return 1
	}
	n := roundEven(mul(x, log2e))
	r := sub(sub(x, mul(n, ln2Hi)), mul(n, ln2Lo))
	p := expPoly[0]
	for _, c := range expPoly[1:] {
		p = add(mul(p, r), c)
	}
	p = add(add(mul(p, mul(r, r)), r), 1)
	return mul(p, pow2(int32(n)))
}

// SiLU returns x / (1 + e^-x): 0 below -40.
func SiLU(x float32) float32 {
	if x < -40 {
		return 0
	}
	return mul(x, Recip(add(1, Exp(-x))))
}

// roundEven rounds |x| < 2^22 to an integer, halves to even: at 1.5*2^23 the
// spacing of float32 is 1.
func roundEven(x float32) float32 {
	const shift = 3 << 22
	return sub(add(x, shift), shift)
}
