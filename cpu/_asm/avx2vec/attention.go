package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// scores takes four keys at a time; the last four may overlap those before.
// With fewer than four keys it takes one at a time.
func scores() {
	begin("scores", "func(s, q, keys []float32, scale float32)")
	s, n := base("s"), length("s")
	start, dim := base("q"), length("q")
	key := base("keys")
	factor := spread("scale")
	q, left := GP64(), GP64()
	row, row3 := GP64(), GP64() // bytes of a key, of three
	MOVQ(dim, row)
	SHLQ(Imm(2), row)
	LEAQ(Mem{Base: row, Index: row, Scale: 2}, row3)
	CMPQ(n, U32(4))
	JLT(LabelRef("singles"))

	Label("four")
	{
		a, b := vectors(4), vectors(4) // lanes 0-7 and 8-15
		for i := range a {
			VPXOR(a[i], a[i], a[i])
			VPXOR(b[i], b[i], b[i])
		}
		MOVQ(start, q)
		MOVQ(dim, left)
		eachDims("four", left, func(place int) {
			q0, q1 := register(at(q, 2*place)), register(at(q, 2*place+1))
			for i := range a {
				multiplyAdd(rowOf(key, row, row3, i, 2*place*vec), q0, a[i])
				multiplyAdd(rowOf(key, row, row3, i, (2*place+1)*vec), q1, b[i])
			}
		}, func(sixteens int) { advance(2*vec*sixteens, q, key) })

		for i := range a {
			VADDPS(b[i], a[i], a[i])
		}
		r := fold4(a, b)
		VMULPS(factor.AsX(), r, r)
		VMOVUPS(r, Mem{Base: s})
	}
	Comment("key is one row on; it goes on by three, or less for the last")
	ADDQ(row3, key)
	advance(16, s)
	SUBQ(U32(4), n)
	JZ(LabelRef("done"))
	CMPQ(n, U32(4))
	JGE(LabelRef("four"))
	back := GP64()
	MOVQ(n, back)
	SUBQ(U32(4), back)
	LEAQ(Mem{Base: s, Index: back, Scale: 4}, s)
	IMULQ(row, back)
	ADDQ(back, key)
	MOVQ(U32(4), n)
	JMP(LabelRef("four"))

	Label("singles")
	while("single", n, 1, func() {
		a, b := zero(), zero()
		MOVQ(start, q)
		MOVQ(dim, left)
		eachDims("one", left, func(place int) {
			multiplyAdd(at(key, 2*place), register(at(q, 2*place)), a)
			multiplyAdd(at(key, 2*place+1), register(at(q, 2*place+1)), b)
		}, func(sixteens int) { advance(2*vec*sixteens, q, key) })
		VADDPS(b, a, a)
		x := fold8(a)
		VMULPS(factor.AsX(), x, x)
		VMOVSS(x, Mem{Base: s})
		advance(4, s)
	})
	Label("done")
	end()
}

// fold4 folds the eight lanes of each v to one and returns the four sums in
// order. It makes free with v and spare. Operands of an addition may change
// places.
func fold4(v, spare []VecVirtual) VecVirtual {
	for i := 0; i < 4; i += 2 {
		VPERM2F128(Imm(0x21), v[i+1], v[i], spare[i])
		VBLENDPS(Imm(0xf0), v[i+1], v[i], v[i])
		VADDPS(spare[i], v[i], v[i])
	}
	VSHUFPS(Imm(0x4e), v[2], v[0], spare[0])
	VBLENDPS(Imm(0xcc), v[2], v[0], v[0])
	VADDPS(spare[0], v[0], v[0])
	VMOVSHDUP(v[0], spare[0])
	VADDPS(spare[0], v[0], v[0])
	Comment("sums 0, 2 and 1, 3 are in the even places of the halves")
	r := XMM()
	VEXTRACTF128(Imm(1), v[0], r)
	VMOVSLDUP(r, r)
	VBLENDPS(Imm(0xa), r, v[0].AsX(), r)
	return r
}

// fold8 folds the eight lanes of v to one.
func fold8(v VecVirtual) Register {
	x, t := v.AsX(), XMM()
	VEXTRACTF128(Imm(1), v, t)
	VADDPS(t, x, x)
	VSHUFPS(Imm(0x4e), x, x, t)
	VADDPS(t, x, x)
	VMOVSHDUP(x, t)
	VADDPS(t, x, x)
	return x
}

// multiplyAdd adds m*v to sum, rounded twice.
func multiplyAdd(m Mem, v, sum VecVirtual) {
	t := YMM()
	VMULPS(m, v, t)
	VADDPS(t, sum, sum)
}

// mix takes 64 elements of all values at a time, in eight registers, then 16.
func mix() {
	begin("mix", "func(o, p, v []float32)")
	o, dim := base("o"), length("o")
	weights, count := base("p"), length("p")
	v := base("v")
	k := newKeeper(40)
	row := GP64()
	MOVQ(dim, row)
	SHLQ(Imm(2), row) // bytes of a value
	weightsEnd := GP64()
	LEAQ(Mem{Base: weights, Index: count, Scale: 4}, weightsEnd)

	for _, width := range []int{64, 16} {
		name := map[int]string{64: "wide", 16: "narrow"}[width]
		while(name, dim, width, func() {
			sum := vectors(width / lanes)
			for _, y := range sum {
				VPXOR(y, y, y)
			}
			p, x := GP64(), GP64()
			MOVQ(weights, p)
			MOVQ(v, x)
			Label(name + "Value")
			w := YMM()
			VBROADCASTSS(Mem{Base: p}, w)
			for i, y := range sum {
				multiplyAdd(at(x, i), w, y)
			}
			advance(4, p)
			ADDQ(row, x)
			CMPQ(p, weightsEnd)
			JNE(LabelRef(name + "Value"))
			for i, y := range sum {
				k.keep(y)
				VMOVUPS(y, at(o, i))
			}
			advance(4*width, o, v)
		})
	}
	end()
}
