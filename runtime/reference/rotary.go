package reference

import (
	"math"
	"math/big"
)

// Rotary is the table of rotary embeddings: for position p and pair i,
// Cos[p*Pairs+i] and Sin[p*Pairs+i] are the cosine and sine of
// p * theta^(-2i/dims), rounded to float32, keep_50. It is made once on the
// host and given to every backend, so that no device computes an angle.
type Rotary struct {
	Pairs    int       // rotary_dims / 2
	Cos, Sin []float32 // [Positions * Pairs]
	freq     []float64 // [Pairs]
}

// NewRotary returns an empty table for dims rotated dimensions; Grow fills it.
func NewRotary(dims int, theta float32) *Rotary {
	return &Rotary{Pairs: dims / 2, freq: frequencies(dims, theta)}
}

// Grow makes sure the table holds the positions below n.
func (t *Rotary) Grow(n int) {
	for p := len(t.Cos) / max(t.Pairs, 1); p < n; p++ {
		for _, f := range t.freq {
			s, c := sincos(float64(p) * f)
			t.Cos = append(t.Cos, Keep(float32(c), 50))
			t.Sin = append(t.Sin, Keep(float32(s), 50))
		}
	}
}

// frequencies returns theta^(-2i/dims) for i < dims/2, each rounded once to
// float64 from a value good to 160 bits. math/big is integer arithmetic, so the
// result is the same on every platform.
func frequencies(dims int, theta float32) []float64 {
	f := make([]float64, dims/2)
	ln := bigLog(theta)
	for i := range f {
		x := newBig().Mul(ln, newBig().Quo(newBig().SetInt64(int64(-2*i)), newBig().SetInt64(int64(dims))))
		f[i], _ = bigExp(x).Float64()
	}
	return f
}

func newBig() *big.Float { return new(big.Float).SetPrec(192) }

// bigExp returns e^x: the Taylor series at x/2^k, squared k times.
func bigExp(x *big.Float) *big.Float {
	k := max(x.MantExp(nil)+8, 0) // |x| / 2^k < 2^-8
	r := newBig().SetMantExp(x, -k)
	sum, term := newBig().SetInt64(1), newBig().SetInt64(1)
	for n := int64(1); n < 30; n++ { // 2^(-8*30) / 30! is below 2^-340
		term.Quo(term.Mul(term, r), newBig().SetInt64(n))
		sum.Add(sum, term)
	}
	for range k {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLog returns ln(x) for normal x > 0: with x = m * 2^e, ln m = 2 artanh((m-1)/(m+1)).
func bigLog(x float32) *big.Float {
	m := newBig()
	e := newBig().SetFloat64(float64(x)).MantExp(m) // 0.5 <= m < 1
	ln := artanh2(m)
	ln2 := artanh2(newBig().SetFloat64(0.5)) // ln 1/2
	return ln.Sub(ln, ln2.Mul(ln2, newBig().SetInt64(int64(e))))
}

// artanh2 returns ln m = 2 artanh((m-1)/(m+1)) for 0.5 <= m < 1.
func artanh2(m *big.Float) *big.Float {
	one := newBig().SetInt64(1)
	z := newBig().Quo(newBig().Sub(m, one), newBig().Add(m, one)) // |z| <= 1/3
	zz := newBig().Mul(z, z)
	sum, pow := newBig(), newBig().Set(z)
	for n := int64(1); n < 130; n += 2 { // 3^-130 is below 2^-206
		sum.Add(sum, newBig().Quo(pow, newBig().SetInt64(n)))
		pow.Mul(pow, zz)
	}
	return sum.Add(sum, sum)
}

// Pi/2 in three parts of at most 33 bits and a rest, so that n*part is exact
// for n < 2^20 (fdlibm, e_rem_pio2.c), and the Taylor coefficients of sine and
// cosine on |r| <= pi/4.
const (
	pio2a = 0x1.921fb544p+00
	pio2b = 0x1.0b4611a6p-34
	pio2c = 0x1.3198a2ep-69
	pio2d = 0x1.b839a252049c1p-104

	MaxPositions = 1 << 20 // radians, and so positions: the first frequency is 1
)

// sincos returns the sine and cosine of 0 <= x < 2^20 to about 1 ulp of
// float64, with no fused operation.
func sincos(x float64) (sin, cos float64) {
	n := math.RoundToEven(x * (2 / math.Pi))
	// r + w is x - n*pi/2: three exact products, each difference exact or its
	// error carried along.
	r, w := twoDiff(x, float64(n*pio2a))
	for _, part := range [...]float64{float64(n * pio2b), float64(n * pio2c), float64(n * pio2d)} {
		var lost float64
		r, lost = twoDiff(r, part)
		w += lost
	}
	r, w = twoSum(r, w)

	z := float64(r * r)
	s, c := sinCoef[0], cosCoef[0]
	for i := 1; i < len(sinCoef); i++ {
		s = float64(s*z) + sinCoef[i]
		c = float64(c*z) + cosCoef[i]
	}
	// sin(r+w) = r + (r*z*S + w*(1 - z/2)); cos(r+w) = 1 - (z/2 - (z*z*C - r*w)).
	s = r + (float64(float64(r*z)*s) + float64(w*(1-float64(0.5*z))))
	h := float64(0.5 * z)
	a := 1 - h
	c = a + ((1 - a - h) + (float64(float64(z*z)*c) - float64(r*w)))

	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}

// Taylor coefficients, highest first: sin r = r + r^3*S(r^2), cos r = 1 - r^2/2 + r^4*C(r^2).
var (
	sinCoef = [...]float64{-1. / 121645100408832000, 1. / 355687428096000, -1. / 1307674368000, 1. / 6227020800, -1. / 39916800, 1. / 362880, -1. / 5040, 1. / 120, -1. / 6}
	cosCoef = [...]float64{1. / 2432902008176640000, -1. / 6402373705728000, 1. / 20922789888000, -1. / 87178291200, 1. / 479001600, -1. / 3628800, 1. / 40320, -1. / 720, 1. / 24}
)

// twoSum returns a+b rounded and what the rounding lost (Knuth).
func twoSum(a, b float64) (sum, lost float64) {
	sum = a + b
	bb := sum - a
	return sum, (a - (sum - bb)) + (b - bb)
}

// twoDiff returns a-b rounded and what the rounding lost.
func twoDiff(a, b float64) (diff, lost float64) { return twoSum(a, -b) }
