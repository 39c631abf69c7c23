package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Attention on an f16 cache. Queries that share keys and values run together, so
// that these are converted once; and while they are worked on, what is read next
// is fetched, evenly over the whole time.

// scoresHalf takes 4/heads keys at a time, so that there are always four sums of
// 16 lanes. Without so many keys it takes the last one again; what it writes
// behind the scores of n keys, up to a multiple of four, means nothing.
func scoresHalf(heads int) {
	keys := 4 / heads
	TEXT(fmt.Sprintf("scoresHalf%dAVX2", heads), NOSPLIT, "func(s, q *float32, k, ahead *uint16, dim, n int, scale float32)")
	Doc(fmt.Sprintf("scoresHalf%dAVX2 is scoresHalf of type vectors for %d heads and n > 0 keys.", heads, heads))
	s, start, k, ahead := Load(Param("s"), GP64()), Load(Param("q"), GP64()), Load(Param("k"), GP64()), Load(Param("ahead"), GP64())
	row, n := Load(Param("dim"), GP64()), Load(Param("n"), GP64())
	factor := spread("scale")
	ADDQ(row, row) // bytes of a key
	q := GP64()

	// headAt and keyAt address a head's query and a key.
	var query, query3 Register
	if heads > 1 {
		query = GP64() // bytes of a query
		LEAQ(Mem{Base: row, Index: row, Scale: 1}, query)
	}
	if heads > 2 {
		query3 = GP64()
		LEAQ(Mem{Base: query, Index: query, Scale: 2}, query3)
	}
	headAt := func(h, disp int) Mem { return rowOf(q, query, query3, h, disp) }
	offset := make([]Register, keys)
	keyAt := func(i, disp int) Mem {
		if i == 0 {
			return Mem{Base: k, Disp: disp}
		}
		return Mem{Base: k, Index: offset[i], Scale: 1, Disp: disp}
	}

	// Sums of four keys wait here until they are folded together: one fold
	// alone would have nothing to run beside. It is aligned within the frame.
	var room, roomStart, roomEnd Register
	if heads > 1 {
		room, roomStart, roomEnd = GP64(), GP64(), GP64()
		LEAQ(AllocLocal(heads*4*vec+vec).Offset(vec-1), roomStart)
		ANDQ(I8(-vec), roomStart)
		LEAQ(Mem{Base: roomStart, Disp: heads * 4 * vec}, roomEnd)
		MOVQ(roomStart, room)
	}

	Label("next")
	for i := 1; i < keys; i++ {
		last := offset[i-1]
		if i == 1 {
			last = GP64()
			XORQ(last, last)
		}
		offset[i] = GP64()
		LEAQ(Mem{Base: last, Index: row, Scale: 1}, offset[i])
		CMPQ(n, U32(i+1))
		CMOVQLT(last, offset[i])
	}
	sum := [2][]VecVirtual{vectors(4), vectors(4)} // lanes 0-7 and 8-15
	for _, v := range append(sum[0], sum[1]...) {
		VPXOR(v, v, v)
	}
	MOVQ(start, q)
	left := GP64()
	MOVQ(row, left)
	SHRQ(Imm(1), left)
	eachDims("dims", left, func(place int) {
		if at := 32 * keys * place; at%64 == 0 {
			for i := 0; i < 32*keys; i += 64 {
				PREFETCHT1(Mem{Base: ahead, Disp: at + i})
			}
		}
		for half := range 2 {
			key := vectors(keys)
			for i, v := range key {
				VCVTPH2PS(keyAt(i, (2*place+half)*vec/2), v)
			}
			for h := range heads {
				x := headAt(h, (2*place+half)*vec)
				if keys == 1 {
					multiplyAdd(x, key[0], sum[half][h])
					continue
				}
				y := register(x)
				for i, v := range key {
					t := YMM()
					VMULPS(y, v, t)
					VADDPS(t, sum[half][h*keys+i], sum[half][h*keys+i])
				}
			}
		}
	}, func(sixteens int) {
		advance(32*keys*sixteens, ahead)
		advance(2*vec*sixteens, q)
		advance(vec*sixteens, k)
	})

	for i, v := range sum[0] {
		VADDPS(sum[1][i], v, v)
	}
	for range keys - 1 {
		ADDQ(row, k)
	}
	if heads > 1 {
		for i, v := range sum[0] {
			VMOVAPS(v, at(room, i))
		}
		advance(4*vec, room)
		SUBQ(U32(keys), n)
		JLE(LabelRef("fold"))
		CMPQ(room, roomEnd)
		JNE(LabelRef("next"))
		Label("fold")
		MOVQ(roomStart, room)
	} else {
		SUBQ(U32(keys), n)
	}
	for h := range heads {
		v := sum[0]
		if heads > 1 {
			v = vectors(4)
			for i := range v {
				VMOVAPS(at(room, i/keys*4+h*keys+i%keys), v[i])
			}
		}
		r := fold4(v, vectors(4))
		VMULPS(factor.AsX(), r, r)
		VMOVUPS(r, Mem{Base: s, Disp: h * 64 * 4})
	}
	advance(16, s)
	CMPQ(n, U32(0))
	JG(LabelRef("next"))
	end()
}

// rowOf addresses row i < 4 of a matrix, given the bytes of one and three rows.
func rowOf(base, row, row3 Register, i, disp int) Mem {
	m := Mem{Base: base, Disp: disp}
	switch i {
	case 1, 2:
		m.Index, m.Scale = row, uint8(i)
	case 3:
		m.Index, m.Scale = row3, 1
	}
	return m
}

// mixHalf takes 64/heads elements of all values at a time, in eight registers,
// and then 16.
func mixHalf(heads int) {
	TEXT(fmt.Sprintf("mixHalf%dAVX2", heads), NOSPLIT, "func(o, p *float32, v, ahead *uint16, dim, n int)")
	Doc(fmt.Sprintf("mixHalf%dAVX2 is mixHalf of type vectors for %d heads and n > 0 values.", heads, heads))
	o, p, v, ahead := Load(Param("o"), GP64()), Load(Param("p"), GP64()), Load(Param("v"), GP64()), Load(Param("ahead"), GP64())
	dim, n := Load(Param("dim"), GP64()), Load(Param("n"), GP64())
	row := GP64() // bytes of a value
	LEAQ(Mem{Base: dim, Index: dim, Scale: 1}, row)
	var out, out3 Register
	if heads > 1 {
		out = GP64() // bytes of an output
		LEAQ(Mem{Base: row, Index: row, Scale: 1}, out)
	}
	if heads > 2 {
		out3 = GP64()
		LEAQ(Mem{Base: out, Index: out, Scale: 2}, out3)
	}
	k := keeper{signless(), pow2(40)}

	widths := []int{64 / heads, 16}
	if heads == 4 {
		widths = widths[:1]
	}
	for _, width := range widths {
		name := fmt.Sprintf("by%d", width)
		while(name, dim, width, func() {
			sum := make([][]VecVirtual, heads)
			for h := range sum {
				sum[h] = vectors(width / lanes)
				for _, y := range sum[h] {
					VPXOR(y, y, y)
				}
			}
			weight, x, left := GP64(), GP64(), GP64()
			MOVQ(p, weight)
			MOVQ(v, x)
			MOVQ(n, left)
			Label(name + "Value")
			for i := 0; i < 2*width; i += 64 {
				PREFETCHT1(Mem{Base: ahead, Disp: i})
			}
			advance(2*width, ahead)
			w := vectors(heads)
			for h, y := range w {
				VBROADCASTSS(Mem{Base: weight, Disp: h * 64 * 4}, y)
			}
			for i := range width / lanes {
				value := YMM()
				VCVTPH2PS(Mem{Base: x, Disp: i * vec / 2}, value)
				for h, y := range w {
					t := YMM()
					VMULPS(y, value, t)
					VADDPS(t, sum[h][i], sum[h][i])
				}
			}
			advance(4, weight)
			ADDQ(row, x)
			DECQ(left)
			JNZ(LabelRef(name + "Value"))
			for h, line := range sum {
				for i, y := range line {
					k.keep(y)
					VMOVUPS(y, rowOf(o, out, out3, h, i*vec))
				}
			}
			advance(4*width, o)
			advance(2*width, v)
		})
	}
	end()
}

// softmax holds the 64 scores in memory and folds them as they become
// exponentials.
func softmax() {
	begin("softmax", "func(s *[64]float32, n int) (m, l float32, finite bool)")
	s := Load(Param("s"), GP64())
	limit := YMM()
	n, err := Param("n").Resolve()
	if err != nil {
		panic(err)
	}
	VPBROADCASTD(n.Addr, limit)
	index, step := register(words("indices", 0, 1, 2, 3, 4, 5, 6, 7)), register(words("eight", 8))
	lowest := register(words("minusInfinity", 0xff800000))
	abs := register(signless())
	most, size := YMM(), zero()
	VMOVAPS(lowest, most)
	for i := range 8 {
		x, valid, t := YMM(), YMM(), YMM()
		VMOVUPS(at(s, i), x)
		VPCMPGTD(index, limit, valid)
		VPADDD(step, index, index)
		VPAND(abs, x, t)
		VPAND(valid, t, t)
		VPMAXUD(t, size, size)
		VBLENDVPS(valid, x, lowest, x)
		VMAXPS(x, most, most)
		VMOVUPS(x, at(s, i))
	}
	across := func(op func(a, b, c Op), v VecVirtual) {
		t := YMM()
		VPERM2F128(Imm(1), v, v, t)
		op(t, v, v)
		for _, swap := range []uint64{0x4e, 0xb1} {
			VPERMILPS(Imm(swap), v, t)
			op(t, v, v)
		}
	}
	across(func(a, b, c Op) { VPMAXUD(a, b, c) }, size)
	across(func(a, b, c Op) { VMAXPS(a, b, c) }, most)
	result := func(name string) Mem {
		b, err := Return(name).Resolve()
		if err != nil {
			panic(err)
		}
		return b.Addr
	}
	VMOVSS(most.AsX(), result("m"))
	bits := GP32()
	VMOVD(size.AsX(), bits)
	CMPL(bits, U32(0x7f800000))
	SETCS(result("finite"))

	var sums [2]VecVirtual
	for _, i := range []int{0, 2, 1, 3} {
		x := vectors(2)
		each(2, func(half int) {
			VMOVUPS(at(s, i+4*half), x[half])
			VSUBPS(most, x[half], x[half])
		})
		e := exp(x)
		each(2, func(half int) { VMOVUPS(e[half], at(s, i+4*half)) })
		VADDPS(e[1], e[0], e[0])
		if i < 2 {
			sums[i] = e[0]
		} else {
			VADDPS(e[0], sums[i-2], sums[i-2])
		}
	}
	VADDPS(sums[1], sums[0], sums[0])
	VMOVSS(fold8(sums[0]), result("l"))
	end()
}
