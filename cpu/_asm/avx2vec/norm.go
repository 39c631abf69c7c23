package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// squares takes 64 of the 256 lanes at a time, in eight registers.
func squares() {
	begin("squares", "func(lanes *[256]float32, x []float32)")
	const group = 64
	out := Load(Param("lanes"), GP64())
	first, left := base("x"), length("x")
	k := newKeeper(50)
	end0 := GP64() // past the lanes
	LEAQ(Mem{Base: out, Disp: 256 * 4}, end0)

	Label("group")
	p, n := GP64(), GP64()
	MOVQ(first, p)
	MOVQ(left, n)
	var sum [group / lanes]VecVirtual
	for i := range sum {
		sum[i] = zero()
	}
	// accumulate adds vectors from, from+1, ... at p.
	accumulate := func(from, count int) {
		for i := from; i < from+count; i++ {
			v, t := YMM(), YMM()
			VANDPS(at(p, i), k.abs, v) // squares have no sign
			VCMPPS(notLess, k.bound, v, t)
			VANDPS(t, v, v)
			VMULPS(v, v, v)
			VADDPS(v, sum[i], sum[i])
		}
	}
	JMP(LabelRef("rowCheck"))
	Label("row")
	accumulate(0, len(sum))
	ADDQ(U32(256*4), p)
	SUBQ(U32(256), n)
	Label("rowCheck")
	CMPQ(n, U32(group))
	JGE(LabelRef("row"))
	Comment("a last row may end within the group")
	for i := 0; i < len(sum)-2; i += 2 {
		CMPQ(n, U32(i*lanes+16))
		JLT(LabelRef("store"))
		accumulate(i, 2)
	}
	Label("store")
	for i, s := range sum {
		VMOVUPS(s, at(out, i))
	}
	advance(group*4, first, out)
	SUBQ(U32(group), left)
	CMPQ(out, end0)
	JNE(LabelRef("group"))
	end()
}

func normScale() {
	begin("normScale", "func(y, x, g []float32, r float32)")
	y, x, g, n := base("y"), base("x"), base("g"), length("x")
	r := spread("r")
	k := newKeeper(50)
	elementwise(n, 16, func(i int) {
		v := YMM()
		VMOVUPS(at(x, i), v)
		k.keep(v)
		VMULPS(r, v, v)
		VMULPS(at(g, i), v, v)
		k.keep(v)
		VMOVUPS(v, at(y, i))
	}, y, x, g)
	end()
}

// absMax compares as integers, where what is not finite is largest.
func absMax() {
	begin("absMax", "func(x []float32) uint32")
	x, n := base("x"), length("x")
	mask := register(signless())
	var m [4]VecVirtual
	for i := range m {
		m[i] = zero()
	}
	elementwise(n, 16, func(i int) {
		v := YMM()
		VPAND(at(x, i), mask, v)
		VPMAXUD(v, m[i], m[i])
	}, x)
	VPMAXUD(m[1], m[0], m[0])
	VPMAXUD(m[3], m[2], m[2])
	VPMAXUD(m[2], m[0], m[0])
	half := XMM()
	VEXTRACTI128(Imm(1), m[0], half)
	VPMAXUD(m[0].AsX(), half, half)
	for _, swap := range []uint64{0x4e, 0xb1} {
		t := XMM()
		VPSHUFD(Imm(swap), half, t)
		VPMAXUD(t, half, half)
	}
	result := GP32()
	VMOVD(half, result)
	Store(result, ReturnIndex(0))
	end()
}

func add() {
	begin("add", "func(x, y []float32)")
	x, y, n := base("x"), base("y"), length("y")
	elementwise(n, 8, func(i int) {
		v := YMM()
		VMOVUPS(at(x, i), v)
		VADDPS(at(y, i), v, v)
		VMOVUPS(v, at(x, i))
	}, x, y)
	end()
}

func addScaled() {
	begin("addScaled", "func(o, x []float32, w float32)")
	o, x, n := base("o"), base("x"), length("x")
	w := spread("w")
	elementwise(n, 16, func(i int) {
		v := YMM()
		VMULPS(at(x, i), w, v)
		VADDPS(at(o, i), v, v)
		VMOVUPS(v, at(o, i))
	}, o, x)
	end()
}

func scale() {
	begin("scale", "func(o []float32, w float32)")
	o, n := base("o"), length("o")
	w := spread("w")
	elementwise(n, 16, func(i int) {
		v := YMM()
		VMULPS(at(o, i), w, v)
		VMOVUPS(v, at(o, i))
	}, o)
	end()
}

// rotate leaves out what is behind the last whole vector.
func rotate() {
	begin("rotate", "func(a, b, cos, sin []float32)")
	a, b, cos, sin, n := base("a"), base("b"), base("cos"), base("sin"), length("a")
	k := newKeeper(50)
	elementwise(n, 8, func(i int) {
		x, y, c, s, t := YMM(), YMM(), YMM(), YMM(), YMM()
		VMOVUPS(at(a, i), x)
		VMOVUPS(at(b, i), y)
		VMOVUPS(at(cos, i), c)
		VMOVUPS(at(sin, i), s)
		VMULPS(s, x, t)
		VMULPS(c, x, x)
		VMULPS(s, y, s)
		VMULPS(c, y, y)
		VSUBPS(s, x, x)
		VADDPS(t, y, y)
		k.keep(x)
		k.keep(y)
		VMOVUPS(x, at(a, i))
		VMOVUPS(y, at(b, i))
	}, a, b, cos, sin)
	end()
}

// elementwise calls f for vectors 0, 1, ... of float32, 32 elements at a time
// and then rest at a time, and moves the pointers on.
func elementwise(n Register, rest int, f func(i int), pointers ...Register) {
	for _, step := range []int{32, rest} {
		while(fmt.Sprintf("by%d", step), n, step, func() {
			for i := range step / lanes {
				f(i)
			}
			advance(4*step, pointers...)
		})
	}
}
