package reference

import (
	"fmt"
	"math"
	"math/big"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// sweep calls f for every step-th bit pattern of from..to, both included, on
// all cores. It returns the largest error and a checksum of the results' bits.
func sweep(from, to float32, step uint64, f func(x float32) (y float32, err float64)) (worst float64, sum uint64) {
	a, b := uint64(math.Float32bits(from)), uint64(math.Float32bits(to))
	workers := uint64(runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			var m float64
			var h uint64
			for p := a + w*step; p <= b; p += workers * step {
				y, err := f(math.Float32frombits(uint32(p)))
				m = max(m, err)
				h += uint64(math.Float32bits(y)) * (2*p + 1)
			}
			mu.Lock()
			defer mu.Unlock()
			worst, sum = max(worst, m), sum+h
		})
	}
	wg.Wait()
	return worst, sum
}

// ulps is the distance of got from the true value, in ulps of the float32
// nearest to it.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(float64(float32(want)))
	return math.Abs(float64(got)-want) / math.Ldexp(1, e-24)
}

// The largest errors over every float32 of the domain, and a checksum of the
// results. exp has 600 million arguments: all of them with NPACK_EXHAUSTIVE=1
// (make exhaustive), else every 97th.
func TestFunctionErrors(t *testing.T) {
	below := func(x float32) float32 { return math.Nextafter32(x, 0) }
	exhaustive := os.Getenv("NPACK_EXHAUSTIVE") != ""
	for _, c := range []struct {
		name     string
		from, to float32
		step     uint64
		f        func(float32) float32
		exact    func(float64) float64
		worst    float64 // over the whole domain
		sum      uint64  // with this step
	}{
		{"recip, one binade", 1, below(2), 1, Recip, func(x float64) float64 { return 1 / x }, 1.2496, 0x140f5d1aade3ddc1},
		{"rsqrt, two binades", 1, below(4), 1, RSqrt, func(x float64) float64 { return 1 / math.Sqrt(x) }, 1.7184, 0xc50d85be6c7e34b5},
		{"exp, -30..-0", float32(math.Copysign(0, -1)), -30, 97, Exp, math.Exp, 0.9801, 0x8c2f4ff07d32a22},
		{"exp, 0..40", 0, 40, 97, Exp, math.Exp, 0.9754, 0x56bff74be587e135},
	} {
		step := c.step
		if exhaustive {
			step = 1
		}
		worst, sum := sweep(c.from, c.to, step, func(x float32) (float32, float64) {
			y := c.f(x)
			return y, ulps(y, c.exact(float64(x)))
		})
		t.Logf("%s, every %d: largest error %.4f ulp", c.name, step, worst)
		if worst > c.worst+5e-5 || step == 1 && worst < c.worst-5e-5 {
			t.Errorf("%s: largest error %.6f ulp, recorded %.4f", c.name, worst, c.worst)
		}
		if step == c.step && sum != c.sum {
			t.Errorf("%s: checksum of the results is %#x, recorded %#x", c.name, sum, c.sum)
		}
	}
}

// Recip and RSqrt of other binades are the same bits with another exponent.
func TestSeedsScale(t *testing.T) {
	for m := float32(1); m < 4; m += 0.00137 {
		for e := int32(-60); e <= 60; e++ {
			if m < 2 && Recip(mul(m, pow2(e))) != mul(Recip(m), pow2(-e)) {
				t.Fatalf("recip(%g * 2^%d) has another significand", m, e)
			}
			if RSqrt(mul(m, pow2(2*e))) != mul(RSqrt(m), pow2(-e)) {
				t.Fatalf("rsqrt(%g * 2^%d) has another significand", m, 2*e)
			}
		}
	}
}

func TestExpEdges(t *testing.T) {
	for _, c := range []struct{ x, want float32 }{
		{0, 1}, {float32(math.Copysign(0, -1)), 1}, {-30, 9.357623e-14}, {math.Nextafter32(-30, -31), 0},
		{-1e30, 0}, {float32(math.Inf(-1)), 0}, {pow2(-30), 1}, {-pow2(-31), 1}, {1, math.E},
	} {
		if got := Exp(c.x); got != c.want {
			t.Errorf("exp(%g) = %g, want %g", c.x, got, c.want)
		}
	}
	// The shortcut near 0 is what the polynomial gives.
	for _, x := range []float32{pow2(-30), -pow2(-30), pow2(-27), -pow2(-27)} {
		if got := Exp(mul(x, 1.5)); got != 1 {
			t.Errorf("exp(%g) = %b, want 1", mul(x, 1.5), got)
		}
	}
	if nan := float32(math.NaN()); finite(Exp(nan)) || finite(SiLU(nan)) {
		t.Error("NaN is lost")
	}
	if SiLU(-40.1) != 0 || SiLU(0) != 0 || SiLU(100) != 100 {
		t.Errorf("silu: %g %g %g", SiLU(-40.1), SiLU(0), SiLU(100))
	}
}

// The constants are those of the table in NUMERICS.md, name by name.
func TestConstants(t *testing.T) {
	doc, err := os.ReadFile("../../NUMERICS.md")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float32{"log2e": log2e, "ln2_hi": ln2Hi, "ln2_lo": ln2Lo, "1/127": 1.0 / 127, "1e-5": 1e-5}
	for i, c := range expPoly {
		values[fmt.Sprintf("exp c%d", i)] = c
	}
	bits := map[string]uint32{"recip seed (integer)": recipSeed, "rsqrt seed (integer)": rsqrtSeed}
	for name, v := range values {
		bits[name] = math.Float32bits(v)
	}
	for name, b := range bits {
		if cell := fmt.Sprintf("| %s | 0x%08X |", name, b); !strings.Contains(string(doc), cell) {
			t.Errorf("NUMERICS.md does not say %q", cell)
		}
	}
}

// All 65,536 halves convert to float32 exactly and back; between two halves
// that follow each other, the middle goes to the even one and its neighbours to
// the nearer one.
func TestHalf(t *testing.T) {
	value := func(h uint16) float64 { // by the definition of the format
		sign, exp, frac := 1-2*float64(h>>15), int(h>>10&31), float64(h&0x3ff)
		if exp == 0 {
			return sign * math.Ldexp(frac, -24)
		}
		return sign * math.Ldexp(1024+frac, exp-25)
	}
	for i := range 1 << 16 {
		h := uint16(i)
		x := F16toF32(h)
		switch {
		case h&0x7fff > 0x7c00:
			if x == x || F32toF16(x)&0x7fff != 0x7e00 {
				t.Fatalf("half %04x: NaN lost", h)
			}
			continue
		case h&0x7fff == 0x7c00:
			if !math.IsInf(float64(x), 1-2*int(h>>15)) {
				t.Fatalf("half %04x: %g", h, x)
			}
		case float64(x) != value(h):
			t.Fatalf("half %04x: %g, want %g", h, x, value(h))
		}
		if F32toF16(x) != h {
			t.Fatalf("half %04x comes back as %04x", h, F32toF16(x))
		}
		if h&0x7fff >= 0x7c00 {
			continue
		}
		// The middle to the next half is a float32; 2^16 follows the largest.
		next := value(h + 1)
		if h&0x7fff == 0x7bff {
			next = math.Copysign(65536, value(h))
		}
		middle := float32((value(h) + next) / 2)
		even := h + h&1
		if got := F32toF16(middle); got != even {
			t.Fatalf("middle above half %04x goes to %04x, want %04x", h, got, even)
		}
		if got := F32toF16(math.Nextafter32(middle, 0)); got != h {
			t.Fatalf("just below the middle above half %04x: %04x", h, got)
		}
		if got := F32toF16(math.Nextafter32(middle, 2*middle)); got != h+1 {
			t.Fatalf("just above the middle above half %04x: %04x", h, got)
		}
	}
}

// The rotary table against math/big, at positions that stress the reduction.
func TestRotary(t *testing.T) {
	const pi = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
	bigPi, _, _ := big.ParseFloat(pi, 10, 320, big.ToNearestEven)
	worst := 0.0
	check := func(x float64) {
		s, c := sincos(x)
		// Reduce by pi/2 in 320 bits, then the series in float64 of a value
		// that is below 0.8 and correct to 2^-60 of itself.
		q := new(big.Float).SetPrec(320).SetFloat64(x)
		n := math.RoundToEven(x / (math.Pi / 2))
		q.Sub(q, new(big.Float).SetPrec(320).Mul(bigPi, new(big.Float).SetPrec(320).SetFloat64(n/2)))
		ws, wc := bigSinCos(q)
		switch int64(n) & 3 {
		case 1:
			ws, wc = wc, ws.Neg(ws)
		case 2:
			ws, wc = ws.Neg(ws), wc.Neg(wc)
		case 3:
			ws, wc = wc.Neg(wc), ws
		}
		for _, p := range []struct {
			got  float64
			want *big.Float
		}{{s, ws}, {c, wc}} {
			w, _ := p.want.Float64()
			_, e := math.Frexp(w)
			d := new(big.Float).SetPrec(320).SetFloat64(p.got)
			diff, _ := d.Sub(d, p.want).Float64()
			if err := math.Abs(diff) / math.Ldexp(1, e-53); w != 0 && err > worst {
				worst = err
			}
		}
	}
	check(0)
	for _, x := range []float64{1e-9, 0.1, 0.7853981633974483, 0.7853981633974484, 1, 2, 3, 4, 5, 6, 710, 40959, 131071, 262143, 1048575} {
		check(x)
	}
	for n := 1; n < 1<<19; n += 3001 { // next to multiples of pi/2, where the result is near 0
		x := float64(n) * (math.Pi / 2)
		check(x)
		check(math.Nextafter(x, 0))
	}
	for _, f := range frequencies(128, 1e6) {
		for p := 1; p < 1<<17; p = p*3/2 + 1 {
			check(float64(p) * f)
		}
	}
	t.Logf("sine and cosine: largest error %.3f ulp of float64", worst)
	if worst > 1 {
		t.Errorf("largest error %.3f ulp", worst)
	}
}

// bigSinCos returns sine and cosine of |x| < 1 by their series in 320 bits.
func bigSinCos(x *big.Float) (s, c *big.Float) {
	s, c = new(big.Float).SetPrec(320), new(big.Float).SetPrec(320)
	term := new(big.Float).SetPrec(320).SetInt64(1)
	for n := int64(0); n < 60; n++ {
		sum := c
		if n&1 == 1 {
			sum = s
		}
		if n&2 == 0 {
			sum.Add(sum, term)
		} else {
			sum.Sub(sum, term)
		}
		term.Mul(term, x)
		term.Quo(term, new(big.Float).SetInt64(n+1))
	}
	return s, c
}

// theta^(-2i/dims) to the power dims/2 is theta^-i: so each frequency can be
// checked for correct rounding without a logarithm.
func TestFrequencies(t *testing.T) {
	for _, theta := range []float32{10000, 500000, 1e6, 5e6, 1.5} {
		for _, dims := range []int{2, 20, 32, 64, 128} {
			for i, f := range frequencies(dims, theta) {
				p := new(big.Float).SetPrec(400).SetInt64(1)
				for range dims / 2 {
					p.Mul(p, new(big.Float).SetFloat64(f))
				}
				w := new(big.Float).SetPrec(400).SetInt64(1)
				for range i {
					w.Quo(w, new(big.Float).SetFloat64(float64(theta)))
				}
				// Half an ulp of f, dims/2 times.
				rel, _ := new(big.Float).Quo(p.Sub(p, w), w).Float64()
				if math.Abs(rel) > float64(dims/2)*0x1.01p-53 {
					t.Errorf("theta %g, dims %d, i %d: not correctly rounded: relative error %g of the power", theta, dims, i, rel)
				}
			}
		}
	}
}
