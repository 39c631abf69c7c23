package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// keysTogether is how many keys scoresHalf takes at a time.
const keysTogether = 4

// scoresHalf converts 16 halves of four keys for all heads. Without four keys it
// takes the last one again; what it writes behind the scores means nothing.
func scoresHalf(heads int) {
	begin(fmt.Sprintf("scoresHalf%d", heads), "func(s, q *float32, k, ahead *uint16, dim, n int, scale float32)")
	s, start, k, ahead := Load(Param("s"), GP64()), Load(Param("q"), GP64()), Load(Param("k"), GP64()), Load(Param("ahead"), GP64())
	row, n := Load(Param("dim"), GP64()), Load(Param("n"), GP64())
	factor := spreadFloat("scale")
	// Scores of a head beside each other, heads in the parts.
	transpose := load(words("transpose", 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15))
	query := newRows(row, heads)
	ADDQ(row, row) // bytes of a key

	Label("keys")
	var offset [keysTogether]Register
	for i := 1; i < len(offset); i++ {
		offset[i] = GP64()
		if i == 1 {
			XORQ(offset[1], offset[1])
		} else {
			MOVQ(offset[i-1], offset[i])
		}
		next := GP64()
		LEAQ(Mem{Base: offset[i], Index: row, Scale: 1}, next)
		CMPQ(n, U32(i))
		CMOVQGT(next, offset[i])
	}
	a := zeros(heads * keysTogether)
	q, left := GP64(), GP64()
	MOVQ(start, q)
	MOVQ(row, left)
	Label("dims")
	for i := range keysTogether * 32 / 64 {
		PREFETCHT1(at(ahead, i))
	}
	advance(keysTogether*32, ahead)
	key := vectors(keysTogether)
	for i, v := range key {
		m := Mem{Base: k}
		if i > 0 {
			m.Index, m.Scale = offset[i], 1
		}
		VCVTPH2PS(m, v)
	}
	advance(32, k)
	for h := range heads {
		x := load(query.at(q, h, 0))
		for i, v := range key {
			t := ZMM()
			VMULPS(x, v, t)
			VADDPS(t, a[h*keysTogether+i], a[h*keysTogether+i])
		}
	}
	advance(vec, q)
	SUBQ(U32(32), left)
	JNZ(LabelRef("dims"))

	sum := fold(a)
	VPERMPS(sum, transpose, sum)
	VMULPS(factor, sum, sum)
	for h := range heads {
		VEXTRACTF32X4(Imm(uint64(h)), sum, Mem{Base: s, Disp: h * 64 * 4})
	}
	advance(keysTogether*4, s)
	for range keysTogether - 1 { // one row was passed
		ADDQ(row, k)
	}
	SUBQ(U32(keysTogether), n)
	JG(LabelRef("keys"))
	end()
}

// rows are places in up to four rows of a matrix.
type rows struct{ one, three Register }

// newRows is for n rows of width float32.
func newRows(width Register, n int) (r rows) {
	if n > 1 {
		r.one = GP64()
		MOVQ(width, r.one)
		SHLQ(Imm(2), r.one)
	}
	if n > 2 {
		r.three = GP64()
		LEAQ(Mem{Base: r.one, Index: r.one, Scale: 2}, r.three)
	}
	return r
}

func (r rows) at(base Register, i, vector int) Mem {
	m := at(base, vector)
	switch i {
	case 1, 2:
		m.Index, m.Scale = r.one, uint8(i)
	case 3:
		m.Index, m.Scale = r.three, 1
	}
	return m
}

// mixHalf takes 64 elements of all values at a time, in up to 16 registers, and
// then 16.
func mixHalf(heads int) {
	begin(fmt.Sprintf("mixHalf%d", heads), "func(o, p *float32, v, ahead *uint16, dim, n int)")
	o, p, v, ahead := Load(Param("o"), GP64()), Load(Param("p"), GP64()), Load(Param("v"), GP64()), Load(Param("ahead"), GP64())
	dim := Load(Param("dim"), GP64())
	out := newRows(dim, heads)
	row := GP64() // bytes of a value
	LEAQ(Mem{Base: dim, Index: dim, Scale: 1}, row)
	for _, width := range []int{64, 16} {
		name := fmt.Sprintf("width%d", width)
		while(name, dim, width, func() {
			sum := zeros(heads * width / lanes) // [head][vector]
			weight, x, left := GP64(), GP64(), Load(Param("n"), GP64())
			MOVQ(p, weight)
			MOVQ(v, x)
			Label(name + "Value")
			for i := 0; i < 2*width; i += 64 {
				PREFETCHT1(Mem{Base: ahead, Disp: i})
			}
			advance(2*width, ahead)
			w := vectors(heads)
			for h, z := range w {
				VBROADCASTSS(Mem{Base: weight, Disp: h * 64 * 4}, z)
			}
			for i := range width / lanes {
				value := ZMM()
				VCVTPH2PS(Mem{Base: x, Disp: i * vec / 2}, value)
				for h, z := range w {
					t := ZMM()
					VMULPS(z, value, t)
					VADDPS(t, sum[h*width/lanes+i], sum[h*width/lanes+i])
				}
			}
			advance(4, weight)
			ADDQ(row, x)
			DECQ(left)
			JNZ(LabelRef(name + "Value"))
			for i, z := range sum {
				keep(40, z)
				VMOVUPS(z, out.at(o, i/(width/lanes), i%(width/lanes)))
			}
			advance(4*width, o)
			advance(2*width, v)
		})
	}
	end()
}

// softmax has all 64 scores in registers. Those from n on are -Inf, of which
// the exponential is 0.
func softmax() {
	begin("softmax", "func(s *[64]float32, n int) (m, l float32, finite bool)")
	s := Load(Param("s"), GP64())
	limit := ZMM()
	VPBROADCASTD(Load(Param("n"), GP64()).(GPVirtual).As32(), limit)
	index := load(words("indices", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
	abs := spread(signless())
	most, size := ZMM(), zeros(1)[0]
	x := vectors(4)
	for i := range x {
		valid, t := K(), ZMM()
		VPCMPGTD(index, limit, valid)
		VPADDD_BCST(words("sixteen", lanes), index, index)
		x[i] = spread(words("minusInfinity", 0xff800000))
		VMOVUPS(at(s, i), valid, x[i])
		VPANDD_Z(abs, x[i], valid, t)
		VPMAXUD(t, size, size)
	}
	pairs := vectors(2)
	VMAXPS(x[1], x[0], pairs[0])
	VMAXPS(x[3], x[2], pairs[1])
	VMAXPS(pairs[1], pairs[0], most)
	across(most, func(a, b, c Op) { VMAXPS(a, b, c) })
	across(size, func(a, b, c Op) { VPMAXUD(a, b, c) })
	VMOVSS(most.AsX(), result("m"))
	bits := GP32()
	VMOVD(size.AsX(), bits)
	CMPL(bits, U32(0x7f800000))
	SETCS(result("finite"))
	VBROADCASTSS(most.AsX(), most)
	each(4, func(i int) { VSUBPS(most, x[i], x[i]) })
	e := exp(x)
	each(4, func(i int) { VMOVUPS(e[i], at(s, i)) })
	VADDPS(e[2], e[0], e[0])
	VADDPS(e[3], e[1], e[1])
	VADDPS(e[1], e[0], e[0])
	fold1(e[0])
	VMOVSS(e[0].AsX(), result("l"))
	end()
}

// result returns where the result of that name goes.
func result(name string) Mem {
	b, err := Return(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}
