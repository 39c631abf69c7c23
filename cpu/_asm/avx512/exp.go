package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// exp returns reference.Exp of each x, which it leaves as they are. The vectors
// run through it in step: the chains of dependent operations are long.
func exp(x []VecVirtual) []VecVirtual {
	n := len(x)
	t, r, p := vectors(n), vectors(n), vectors(n)
	// n = rhe(x*log2e), which also stands in the low bits of t.
	each(n, func(i int) { VMULPS_BCST(number("log2e", 1.4426950408889634), x[i], t[i]) })
	each(n, func(i int) { VADDPS_BCST(number("roundShift", 3<<22), t[i], t[i]) })
	each(n, func(i int) { VSUBPS_BCST(number("roundShift", 3<<22), t[i], p[i]) })
	each(n, func(i int) { VMULPS_BCST(number("ln2Hi", 0.693359375), p[i], r[i]) })
	each(n, func(i int) { VSUBPS(r[i], x[i], r[i]) })
	each(n, func(i int) { VMULPS_BCST(number("ln2Lo", -2.12194440e-4), p[i], p[i]) })
	each(n, func(i int) { VSUBPS(p[i], r[i], r[i]) })
	coefficients := []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}
	each(n, func(i int) { VMULPS_BCST(number("expC0", coefficients[0]), r[i], p[i]) })
	for c, f := range coefficients[1:] {
		if c > 0 {
			each(n, func(i int) { VMULPS(r[i], p[i], p[i]) })
		}
		each(n, func(i int) { VADDPS_BCST(number(fmt.Sprintf("expC%d", c+1), f), p[i], p[i]) })
	}
	one := number("one", 1)
	s := vectors(n)
	each(n, func(i int) { VMULPS(r[i], r[i], s[i]) })
	each(n, func(i int) { VMULPS(s[i], p[i], p[i]) })
	each(n, func(i int) { VADDPS(r[i], p[i], p[i]) })
	each(n, func(i int) { VADDPS_BCST(one, p[i], p[i]) })
	// 2^n.
	each(n, func(i int) { VPSLLD(Imm(23), t[i], t[i]) })
	each(n, func(i int) { VPADDD_BCST(one, t[i], t[i]) })
	each(n, func(i int) { VMULPS(t[i], p[i], p[i]) })
	// 1 for tiny x, 0 below -30.
	ones := spread(one)
	each(n, func(i int) {
		tiny, large := K(), K()
		VPANDD_BCST(signless(), x[i], r[i])
		VCMPPS_BCST(less, pow2(30), r[i], tiny)
		VMOVAPS(ones, tiny, p[i])
		VCMPPS_BCST(notLess, number("minus30", -30), x[i], large)
		VMOVAPS_Z(p[i], large, p[i])
	})
	return p
}

func siluMul() {
	begin("siluMul", "func(y, g, u []float32)")
	y, g, u, n := base("y"), base("g"), base("u"), length("g")
	const together = 2
	while("silu", n, together*lanes, func() {
		minus := vectors(together)
		each(together, func(i int) { minus[i] = load(at(g, i)) })
		each(together, func(i int) { VPXORD_BCST(words("sign", 1<<31), minus[i], minus[i]) })
		d := exp(minus)
		one := spread(number("one", 1))
		each(together, func(i int) { VADDPS(one, d[i], d[i]) })
		// recip(d)
		r, t := vectors(together), vectors(together)
		each(together, func(i int) {
			r[i] = spread(words("recipSeed", 0x7EF311C7))
			VPSUBD(d[i], r[i], r[i])
		})
		for range 4 {
			each(together, func(i int) { VMULPS(d[i], r[i], t[i]) })
			each(together, func(i int) { VSUBPS(t[i], one, t[i]) })
			each(together, func(i int) { VMULPS(t[i], r[i], t[i]) })
			each(together, func(i int) { VADDPS(t[i], r[i], r[i]) })
		}
		each(together, func(i int) {
			x, large := load(at(g, i)), K()
			VCMPPS_BCST(notLess, number("minus40", -40), x, large)
			VMULPS_Z(x, r[i], large, r[i])
			keep(50, r[i])
			v := load(at(u, i))
			keep(50, v)
			VMULPS(v, r[i], r[i])
			VMOVUPS(r[i], at(y, i))
		})
		advance(together*vec, y, g, u)
	})
	end()
}

// each writes an instruction for vectors 0 to n-1.
func each(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}
