package mlx

import "math"

// grid is how a row's magnitudes lie on evenly spaced values: the low one is
// lo·step, the high one hi·step. One that the row does not use is 0.
type grid struct {
	step   float32
	lo, hi int
	err    float64 // largest relative error of a weight as MLX computes it
}

// widths are the bits of affine packing that are used.
var widths = []int{2, 3, 4, 5, 6, 8}

// zero is the code of weight 0, and one more than the largest multiple of the
// step. Being a power of two, it makes -zero·step, the bias, exact.
func zero(bits int) int {
	if bits == 2 {
		return 1
	}
	return 1 << (bits - 1)
}

func most(bits int) int {
	if bits == 2 {
		return 1
	}
	return zero(bits) - 1
}

// newGrid returns the grid of fewest steps that is exact for a row of these
// magnitudes, of which it uses those that it says, or false. Of a row that uses
// one of them the grid is the nearest in any case.
func newGrid(lo, hi float32, usesLo, usesHi bool, bits int) (grid, bool) {
	switch {
	case usesLo && lo == 0 || usesHi && hi == 0:
		return grid{}, false // the code of 0 would not tell the weight
	case !usesLo && !usesHi:
		return grid{step: lo}, true
	case !usesHi || !usesLo:
		g := grid{step: lo, lo: 1}
		if usesHi {
			g = grid{step: hi, hi: 1}
		}
		g.err = g.measure(lo, hi, bits)
		return g, g.err == 0
	}
	for n := 1; n <= most(bits); n++ {
		// n steps are the larger magnitude.
		large := max(abs(lo), abs(hi))
		step := large / float32(n)
		g := grid{step: step, lo: int(math.Round(float64(lo) / float64(step))), hi: int(math.Round(float64(hi) / float64(step)))}
		if g.lo != 0 && g.hi != 0 && float32(g.lo)*step == lo && float32(g.hi)*step == hi && g.measure(lo, hi, bits) == 0 {
			return g, true
		}
	}
	return grid{}, false
}

// nearestGrid returns the grid with the least relative error.
func nearestGrid(lo, hi float32, usesLo, usesHi bool, bits int) grid {
	if g, ok := newGrid(lo, hi, usesLo, usesHi, bits); ok || !usesLo || !usesHi {
		return g
	}
	best := grid{err: math.Inf(1)}
	l, h := math.Abs(float64(lo)), math.Abs(float64(hi))
	sign := func(x float32, n int) int {
		if x < 0 {
			return -n
		}
		return n
	}
	try := func(a, b int) {
		if a < 1 || b < 1 {
			return
		}
		// Both errors are the same: a·step is as much above its magnitude as
		// b·step is below, or the other way round.
		step := float32(2 / (float64(a)/l + float64(b)/h))
		g := grid{step: step, lo: sign(lo, a), hi: sign(hi, b)}
		if g.err = g.measure(lo, hi, bits); g.err < best.err {
			best = g
		}
	}
	for n := 1; n <= most(bits); n++ {
		if l <= h {
			a := int(l / h * float64(n))
			try(a, n)
			try(a+1, n)
		} else {
			b := int(h / l * float64(n))
			try(n, b)
			try(n, b+1)
		}
	}
	return best
}

// measure returns the largest relative error of the row's weights, as
// scale·code + bias in float32 with or without a rounding in between.
func (g *grid) measure(lo, hi float32, bits int) (worst float64) {
	bias := -float32(zero(bits)) * g.step
	for _, x := range []struct {
		w float32
		n int
	}{{lo, g.lo}, {hi, g.hi}, {-lo, -g.lo}, {-hi, -g.hi}} {
		if x.n == 0 {
			continue // not used
		}
		code := float32(zero(bits) + x.n)
		product := g.step * code
		for _, got := range []float32{product + bias, float32(math.FMA(float64(g.step), float64(code), float64(bias)))} {
			worst = max(worst, math.Abs(float64(got)-float64(x.w))/math.Abs(float64(x.w)))
		}
	}
	return worst
}

// tableError returns the largest error, in steps, of a table's row as MLX
// computes it: int8 values as scale·code - 128·scale.
func tableError(scale float32) (worst float64) {
	if math.Float32bits(scale)&0xff == 0 { // 16 significant bits: exact
		return 0
	}
	bias := -128 * scale
	for q := range 256 {
		product := scale * float32(q)
		worst = max(worst, math.Abs(float64(product+bias)-float64(q-128)*float64(scale)))
	}
	return worst / math.Abs(float64(scale))
}

func abs(f float32) float32 { return math.Float32frombits(math.Float32bits(f) &^ (1 << 31)) }
