package engine

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// bigExp returns e to the x with far more than 53 bits, by halving the
// argument 20 times and squaring the Taylor sum back up.
func bigExp(x float64) *big.Float {
	const prec, halvings = 200, 20
	r := new(big.Float).SetPrec(prec).SetFloat64(x)
	r.SetMantExp(r, -halvings)
	sum := new(big.Float).SetPrec(prec).SetInt64(1)
	term := new(big.Float).SetPrec(prec).SetInt64(1)
	for k := int64(1); k < 40; k++ {
		term.Mul(term, r)
		term.Quo(term, new(big.Float).SetPrec(prec).SetInt64(k))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// ulps is how far got lies from want, in units of want's last place.
func ulps(got float64, want *big.Float) float64 {
	w, _ := want.Float64()
	ulp := math.Nextafter(w, math.Inf(1)) - w
	d := new(big.Float).SetPrec(200).SetFloat64(got)
	d.Sub(d, want)
	e, _ := d.Float64()
	return math.Abs(e) / ulp
}

func TestExpError(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	xs := []float64{0, math.Copysign(0, -1), -1e-300, -1e-17, -math.Ln2 / 2, -math.Ln2, -31.2, -699.999, -700}
	n := 5_000
	if testing.Short() { // under an emulator
		n = 200
	}
	for range n {
		xs = append(xs, -40*rng.Float64(), -math.Ln2*rng.Float64())
	}
	for range n / 2 {
		xs = append(xs, -700*rng.Float64())
	}
	worst, at := 0.0, 0.0
	for _, x := range xs {
		if u := ulps(exp(x), bigExp(x)); u > worst {
			worst, at = u, x
		}
	}
	t.Logf("largest error %.4f ulp at %v", worst, at)
	if worst > 0.8 {
		t.Errorf("exp(%v) is off by %.4f ulp, documented as 0.8", at, worst)
	}
}

func TestExpEdges(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{0, 1}, {math.Inf(-1), 0}, {math.NaN(), 0}, {-700.0001, 0}, {-1e300, 0},
	} {
		if got := exp(c.x); got != c.want {
			t.Errorf("exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	// The same bits on every platform.
	for _, c := range []struct {
		x    float64
		bits uint64
	}{{-1, 0x3fd78b56362cef38}, {-0.1, 0x3fecf46d99d52b3a}, {-20.5, 0x3e157a3afeed00ab}} {
		if got := math.Float64bits(exp(c.x)); got != c.bits {
			t.Errorf("exp(%v) has bits %#x, want %#x", c.x, got, c.bits)
		}
	}
}
