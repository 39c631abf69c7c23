package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// rowsTogether is how many rows int8Dot reads in step.
const rowsTogether = 4

// int8Dot multiplies w+128, unsigned, with the digits and starts its sums at
// -128 times the digits, which is the same for all rows. Sums may wrap on the
// way; what comes out is at most 2^16 for each 64 columns. x is
// [blocks/2][P][64]; of the last pair half may be missing.
func int8Dot(planes int) {
	begin(fmt.Sprintf("int8Dot%d", planes), "func(sums *int64, w *int8, stride int, x *byte, blocks, rows int)")
	d := int8Rows{
		planes: planes,
		sums:   Load(Param("sums"), GP64()), w: Load(Param("w"), GP64()),
		stride: Load(Param("stride"), GP64()), rows: Load(Param("rows"), GP64()),
		stride3: GP64(), flip: spread(words("signBits", 0x80808080)),
	}
	LEAQ(Mem{Base: d.stride, Index: d.stride, Scale: 2}, d.stride3)

	Comment("128 as an unsigned byte is the sign bit.")
	start := zeros(planes)
	d.eachPair("start", func(digits []VecVirtual, _ func(r int) VecVirtual) {
		for p, v := range digits {
			dpbusd(v, d.flip, start[p])
		}
	}, func(Register) {})
	zero := zeros(1)[0]
	for _, v := range start {
		VPSUBD(v, zero, v)
	}
	for _, n := range []int{rowsTogether, 1} {
		d.loop(n, start)
	}
	end()
}

type int8Rows struct {
	planes                         int
	sums, w, stride, stride3, rows Register
	flip                           VecVirtual
}

// loop does n rows at a time as long as there are n.
func (d int8Rows) loop(n int, start []VecVirtual) {
	name := fmt.Sprintf("rows%d", n)
	while(name, d.rows, n, func() {
		acc := vectors(n * d.planes) // [row][plane]
		for i, v := range acc {
			VMOVDQA32(start[i%d.planes], v)
		}
		next := GP64() // the rows after these, at the same columns
		LEAQ(Mem{Base: d.w, Index: d.stride, Scale: rowsTogether}, next)
		d.eachPair(name, func(digits []VecVirtual, weights func(r int) VecVirtual) {
			for r := range n {
				v := weights(r)
				VPXORD(d.flip, v, v)
				for p, x := range digits {
					dpbusd(x, v, acc[r*d.planes+p])
				}
			}
		}, func(w Register) {
			if n > 1 {
				for r := range n {
					PREFETCHT0(d.row(next, r))
				}
				advance(vec, next)
			}
		})
		for r := range n {
			total := sum64(acc[r*d.planes : (r+1)*d.planes])
			ADDQ(total, Mem{Base: d.sums, Disp: 8 * r})
		}
		advance(8*n, d.sums)
		for range n {
			ADDQ(d.stride, d.w)
		}
	})
}

func (d int8Rows) row(w Register, r int) Mem {
	m := Mem{Base: w}
	switch r {
	case 1, 2:
		m.Index, m.Scale = d.stride, uint8(r)
	case 3:
		m.Index, m.Scale = d.stride3, 1
	}
	return m
}

// eachPair calls f for pairs of blocks with digits and weights, and between them
// step with the place in the first row. A last single block has zeros behind its
// digits.
func (d int8Rows) eachPair(name string, f func(digits []VecVirtual, weights func(r int) VecVirtual), step func(w Register)) {
	w, x, blocks := GP64(), GP64(), GP64()
	MOVQ(d.w, w)
	Load(Param("x"), x)
	Load(Param("blocks"), blocks)
	body := func(load func(Mem) VecVirtual) {
		var digits []VecVirtual
		for p := range d.planes {
			digits = append(digits, load(at(x, p)))
		}
		f(digits, func(r int) VecVirtual { return load(d.row(w, r)) })
	}
	while(name+"Pair", blocks, 2, func() {
		step(w)
		body(load)
		advance(vec, w)
		advance(d.planes*vec, x)
	})
	TESTQ(blocks, blocks)
	JZ(LabelRef(name + "Even"))
	body(func(m Mem) VecVirtual {
		z := ZMM()
		VMOVDQU32(m, z.AsY()) // clears the upper half
		return z
	})
	Label(name + "Even")
}

// sum64 returns the sum of the lanes of each digit, put together.
func sum64(digits []VecVirtual) Register {
	var total VecVirtual
	for i := len(digits) - 1; i >= 0; i-- {
		wide, high := ZMM(), ZMM()
		VEXTRACTI64X4(Imm(1), digits[i], high.AsY())
		VPMOVSXDQ(high.AsY(), high)
		VPMOVSXDQ(digits[i].AsY(), wide)
		VPADDQ(high, wide, wide)
		if total != nil {
			VPSLLQ(Imm(8), total, total)
			VPADDQ(total, wide, wide)
		}
		total = wide
	}
	g := GP64()
	foldQ(total)
	VMOVQ(total.AsX(), g)
	return g
}

// foldQ leaves the sum of eight int64 in lane 0.
func foldQ(v VecVirtual) {
	t := ZMM()
	VEXTRACTI64X4(Imm(1), v, t.AsY())
	VPADDQ(t.AsY(), v.AsY(), v.AsY())
	VEXTRACTI64X2(Imm(1), v.AsY(), t.AsX())
	VPADDQ(t.AsX(), v.AsX(), v.AsX())
	VPSHUFD(Imm(0x4e), v.AsX(), t.AsX())
	VPADDQ(t.AsX(), v.AsX(), v.AsX())
}
