package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// together is the number of vectors that run through a function in step: the
// chains of dependent operations are long.
const together = 2

// exp returns reference.Exp of each x, which it leaves as they are.
func exp(x []VecVirtual) []VecVirtual {
	n := len(x)
	t, r, p := vectors(n), vectors(n), vectors(n)
	// n = rhe(x*log2e), which also stands in the low bits of t.
	each(n, func(i int) { VMULPS(number("log2e", 1.4426950408889634), x[i], t[i]) })
	each(n, func(i int) { VADDPS(number("roundShift", 3<<22), t[i], t[i]) })
	each(n, func(i int) { VSUBPS(number("roundShift", 3<<22), t[i], p[i]) })
	each(n, func(i int) { VMULPS(number("ln2Hi", 0.693359375), p[i], r[i]) })
	each(n, func(i int) { VSUBPS(r[i], x[i], r[i]) })
	each(n, func(i int) { VMULPS(number("ln2Lo", -2.12194440e-4), p[i], p[i]) })
	each(n, func(i int) { VSUBPS(p[i], r[i], r[i]) })
	coefficients := []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}
	each(n, func(i int) { VMULPS(number("expC0", coefficients[0]), r[i], p[i]) })
	for c, f := range coefficients[1:] {
		if c > 0 {
			each(n, func(i int) { VMULPS(r[i], p[i], p[i]) })
		}
		each(n, func(i int) { VADDPS(number(fmt.Sprintf("expC%d", c+1), f), p[i], p[i]) })
	}
	one := number("one", 1)
	s := vectors(n)
	each(n, func(i int) { VMULPS(r[i], r[i], s[i]) })
	each(n, func(i int) { VMULPS(s[i], p[i], p[i]) })
	each(n, func(i int) { VADDPS(r[i], p[i], p[i]) })
	each(n, func(i int) { VADDPS(one, p[i], p[i]) })
	// 2^n.
	each(n, func(i int) { VPSLLD(Imm(23), t[i], t[i]) })
	each(n, func(i int) { VPADDD(one, t[i], t[i]) })
	each(n, func(i int) { VMULPS(t[i], p[i], p[i]) })
	// 1 for tiny x, 0 below -30.
	ones := register(one)
	each(n, func(i int) {
		VANDPS(signless(), x[i], r[i])
		VCMPPS(less, pow2(30), r[i], r[i])
		VBLENDVPS(r[i], ones, p[i], p[i])
		VCMPPS(notLess, number("minus30", -30), x[i], r[i])
		VANDPS(r[i], p[i], p[i])
	})
	return p
}

func siluMul() {
	const run = 128
	begin("siluMul", "func(y, g, u []float32)")
	y, g, u, n := base("y"), base("g"), base("u"), length("g")
	room := GP64() // 1+exp(-g), aligned within the frame
	LEAQ(AllocLocal(4*run+vec).Offset(vec-1), room)
	ANDQ(I8(-vec), room)
	count, left, in, d := GP64(), GP64(), GP64(), GP64()
	JMP(LabelRef("check"))

	Label("run")
	MOVQ(U32(run), count)
	CMPQ(n, count)
	CMOVQLT(n, count)
	MOVQ(count, left)
	MOVQ(g, in)
	MOVQ(room, d)
	while("exp", left, together*lanes, func() {
		minus := vectors(together)
		each(together, func(i int) {
			VMOVUPS(at(in, i), minus[i])
			VXORPS(words("sign", 1<<31), minus[i], minus[i])
		})
		for i, e := range exp(minus) {
			VADDPS(number("one", 1), e, e)
			VMOVAPS(e, at(d, i))
		}
		advance(together*vec, in, d)
	})

	MOVQ(count, left)
	MOVQ(room, d)
	k := newKeeper(50)
	one := register(number("one", 1))
	while("recip", left, together*lanes, func() {
		x, r, t := vectors(together), vectors(together), vectors(together)
		each(together, func(i int) {
			VMOVAPS(at(d, i), x[i])
			VMOVDQU(words("recipSeed", 0x7EF311C7), r[i])
			VPSUBD(x[i], r[i], r[i])
		})
		for range 4 {
			each(together, func(i int) { VMULPS(x[i], r[i], t[i]) })
			each(together, func(i int) { VSUBPS(t[i], one, t[i]) })
			each(together, func(i int) { VMULPS(t[i], r[i], t[i]) })
			each(together, func(i int) { VADDPS(t[i], r[i], r[i]) })
		}
		each(together, func(i int) {
			VMOVUPS(at(g, i), x[i])
			VMULPS(x[i], r[i], r[i])
			VCMPPS(notLess, number("minus40", -40), x[i], x[i])
			VANDPS(x[i], r[i], r[i])
			k.keep(r[i])
			VMOVUPS(at(u, i), t[i])
			k.keep(t[i])
			VMULPS(t[i], r[i], r[i])
			VMOVUPS(r[i], at(y, i))
		})
		advance(together*vec, y, g, u, d)
	})
	SUBQ(count, n)
	Label("check")
	CMPQ(n, U32(together*lanes))
	JGE(LabelRef("run"))
	end()
}

func vectors(n int) []VecVirtual {
	v := make([]VecVirtual, n)
	for i := range v {
		v[i] = YMM()
	}
	return v
}

// each writes an instruction for vectors 0 to n-1.
func each(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}
