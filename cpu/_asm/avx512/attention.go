package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// scores takes 16 keys at a time; the last 16 may overlap those before. Fewer
// than 16 keys it takes one at a time.
func scores() {
	begin("scores", "func(s, q, keys []float32, scale float32)")
	s, n := base("s"), length("s")
	start, row := base("q"), length("q")
	key := base("keys")
	factor := spreadFloat("scale")
	SHLQ(Imm(2), row) // bytes of a key
	row3, qEnd := GP64(), GP64()
	LEAQ(Mem{Base: row, Index: row, Scale: 2}, row3)
	LEAQ(Mem{Base: start, Index: row, Scale: 1}, qEnd)
	CMPQ(n, U32(lanes))
	JLT(LabelRef("singles"))

	Label("keys")
	{
		a := zeros(lanes)
		q, k := GP64(), make([]Register, 4) // of keys 0, 4, 8, 12
		MOVQ(start, q)
		for i := range k {
			k[i] = GP64()
			if i == 0 {
				MOVQ(key, k[0])
			} else {
				LEAQ(Mem{Base: k[i-1], Index: row, Scale: 4}, k[i])
			}
		}
		Label("dims")
		v := load(at(q, 0))
		for i := range a {
			m := Mem{Base: k[i/4]}
			switch i % 4 {
			case 1, 2:
				m.Index, m.Scale = row, uint8(i%4)
			case 3:
				m.Index, m.Scale = row3, 1
			}
			multiplyAdd(m, v, a[i])
		}
		advance(vec, append(k, q)...)
		CMPQ(q, qEnd)
		JNE(LabelRef("dims"))

		ordered := make([]VecVirtual, lanes)
		for i := range ordered {
			ordered[i] = a[i%4*4+i/4]
		}
		sum := fold(ordered)
		VMULPS(factor, sum, sum)
		VMOVUPS(sum, Mem{Base: s})
		SUBQ(U32(lanes), n)
		JZ(LabelRef("done"))
		Comment("on by 16 keys, or by fewer so that 16 are left")
		on, sixteen := GP64(), GP64()
		MOVL(U32(lanes), sixteen.As32())
		MOVQ(sixteen, on)
		CMPQ(n, sixteen)
		CMOVQLT(n, on)
		CMOVQLT(sixteen, n)
		LEAQ(Mem{Base: s, Index: on, Scale: 4}, s)
		IMULQ(row, on)
		ADDQ(on, key)
		JMP(LabelRef("keys"))
	}

	Label("singles")
	while("one", n, 1, func() {
		q, a := GP64(), zeros(1)[0]
		MOVQ(start, q)
		Label("oneDims")
		v := load(at(q, 0))
		multiplyAdd(at(key, 0), v, a)
		advance(vec, q, key)
		CMPQ(q, qEnd)
		JNE(LabelRef("oneDims"))
		fold1(a)
		VMULPS(factor.AsX(), a.AsX(), a.AsX())
		VMOVSS(a.AsX(), Mem{Base: s})
		advance(4, s)
	})
	Label("done")
	end()
}

// fold returns the folds of 16, 8 or 4 vectors; fold i is in lane i%4*4+i/4, and
// the other lanes repeat them. Each step makes one vector of two, or of the last
// one and itself: it adds to the first half of each part the second. Operands of
// an addition may change places.
func fold(v []VecVirtual) VecVirtual {
	shuffle512 := func(i uint64, y, x, t VecVirtual) { VSHUFF64X2(Imm(i), y, x, t) }
	shuffle128 := func(i uint64, y, x, t VecVirtual) { VSHUFPS(Imm(i), y, x, t) }
	for _, step := range []struct {
		shuffle   func(i uint64, y, x, t VecVirtual)
		low, high uint64
	}{
		{shuffle512, 0x44, 0xee}, // 16 lanes to 8
		{shuffle512, 0x88, 0xdd},
		{shuffle128, 0x44, 0xee},
		{shuffle128, 0x88, 0xdd},
	} {
		var next []VecVirtual
		for i := 0; i < len(v); i += 2 {
			x, y, t := v[i], v[min(i+1, len(v)-1)], ZMM()
			step.shuffle(step.high, y, x, t)
			step.shuffle(step.low, y, x, x)
			VADDPS(t, x, x)
			next = append(next, x)
		}
		v = next
	}
	return v[0]
}

// fold1 leaves the fold of v in lane 0.
func fold1(v VecVirtual) { across(v, func(a, b, c Op) { VADDPS(a, b, c) }) }

// across joins lane i and i+8, then i and i+4, i+2 and i+1.
func across(v VecVirtual, op func(a, b, c Op)) {
	t := ZMM()
	VEXTRACTI64X4(Imm(1), v, t.AsY())
	op(t.AsY(), v.AsY(), v.AsY())
	VEXTRACTI64X2(Imm(1), v.AsY(), t.AsX())
	op(t.AsX(), v.AsX(), v.AsX())
	for _, swap := range []uint64{0x4e, 0xb1} {
		VPSHUFD(Imm(swap), v.AsX(), t.AsX())
		op(t.AsX(), v.AsX(), v.AsX())
	}
}

// multiplyAdd adds m*v to sum, rounded twice.
func multiplyAdd(m Mem, v, sum VecVirtual) {
	t := ZMM()
	VMULPS(m, v, t)
	VADDPS(t, sum, sum)
}

// mix takes 128 elements of all values at a time, in eight registers, then
// fewer.
func mix() {
	begin("mix", "func(o, p, v []float32)")
	o, dim := base("o"), length("o")
	weights, count := base("p"), length("p")
	v := base("v")
	row, weightsEnd := GP64(), GP64()
	MOVQ(dim, row)
	SHLQ(Imm(2), row) // bytes of a value
	LEAQ(Mem{Base: weights, Index: count, Scale: 4}, weightsEnd)
	for _, width := range []int{128, 64, 16} {
		name := fmt.Sprintf("width%d", width)
		while(name, dim, width, func() {
			sum := zeros(width / lanes)
			p, x := GP64(), GP64()
			MOVQ(weights, p)
			MOVQ(v, x)
			Label(name + "Value")
			w := spread(Mem{Base: p})
			for i, z := range sum {
				multiplyAdd(at(x, i), w, z)
			}
			advance(4, p)
			ADDQ(row, x)
			CMPQ(p, weightsEnd)
			JNE(LabelRef(name + "Value"))
			for i, z := range sum {
				keep(40, z)
				VMOVUPS(z, at(o, i))
			}
			advance(4*width, o, v)
		})
	}
	end()
}
