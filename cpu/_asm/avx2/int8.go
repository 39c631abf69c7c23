package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// int8Dot adds sums of blocks of weights, widened to 16 bits, with activations
// in one or two 16-bit digits. A digit is at least -2057, so a step of 16
// columns adds at most 2*128*2057 to a 32-bit sum, and 1024 blocks, 2048 steps,
// do not overflow.
func int8Dot(digits int) {
	TEXT(fmt.Sprintf("int8Dot%dAVX2", digits), NOSPLIT, "func(sums *int64, w *int8, stride int, x *byte, blocks, rows int)")
	d := int8Rows{
		digits: digits,
		sums:   Load(Param("sums"), GP64()), w: Load(Param("w"), GP64()),
		stride: Load(Param("stride"), GP64()), rows: Load(Param("rows"), GP64()),
	}
	d.loop("several", 4)
	d.loop("one", 1)
	VZEROUPPER()
	RET()
}

type int8Rows struct {
	digits                int
	sums, w, stride, rows Register
}

// loop does rows as long as there are n.
func (d int8Rows) loop(label string, n int) {
	triple := GP64() // of the stride
	LEAQ(Mem{Base: d.stride, Index: d.stride, Scale: 2}, triple)
	JMP(LabelRef(label + "Next"))

	Label(label)
	x := Load(Param("x"), GP64())
	blocks := Load(Param("blocks"), GP64())
	w := GP64()
	MOVQ(d.w, w)
	acc := zeros(n * d.digits) // [row][digit]

	Label(label + "Block")
	row := func(r int) Mem {
		m := Mem{Base: w}
		switch r {
		case 1, 2:
			m.Index, m.Scale = d.stride, uint8(r)
		case 3:
			m.Index, m.Scale = triple, 1
		}
		return m
	}
	for r := range n {
		PREFETCHT0(row(r).Offset(int8Ahead))
	}
	for h := range 2 {
		var digit []VecVirtual
		for i := range d.digits {
			digit = append(digit, load(Mem{Base: x, Disp: (2*i + h) * vec}))
		}
		for r := range n {
			weights := YMM()
			VPMOVSXBW(row(r).Offset(h*16), weights)
			for i, v := range digit {
				product := weights
				if i < d.digits-1 {
					product = YMM()
				}
				VPMADDWD(v, weights, product)
				VPADDD(product, acc[r*d.digits+i], acc[r*d.digits+i])
			}
		}
	}
	ADDQ(U32(blockCols), w)
	ADDQ(U32(2*d.digits*vec), x)
	DECQ(blocks)
	JNZ(LabelRef(label + "Block"))

	for r := range n {
		total := sum64(acc[r*d.digits : (r+1)*d.digits])
		ADDQ(total, Mem{Base: d.sums, Disp: 8 * r})
	}
	ADDQ(U32(8*n), d.sums)
	for range n {
		ADDQ(d.stride, d.w)
	}
	SUBQ(Imm(uint64(n)), d.rows)

	Label(label + "Next")
	CMPQ(d.rows, Imm(uint64(n)))
	JGE(LabelRef(label))
}

// int8Ahead is ahead for rows: they are read four at a time.
const int8Ahead = 1024

// sum64 returns the sum of the eight lanes of each digit, put together.
func sum64(digits []VecVirtual) Register {
	var total VecVirtual
	for i := len(digits) - 1; i >= 0; i-- {
		wide, high := YMM(), YMM()
		VEXTRACTI128(Imm(1), digits[i], high.AsX())
		VPMOVSXDQ(high.AsX(), high)
		VPMOVSXDQ(digits[i].AsX(), wide)
		VPADDQ(high, wide, wide)
		if total != nil {
			VPSLLQ(Imm(12), total, total)
			VPADDQ(total, wide, wide)
		}
		total = wide
	}
	high := XMM()
	VEXTRACTI128(Imm(1), total, high)
	VPADDQ(high, total.AsX(), high)
	low := XMM()
	VPSHUFD(Imm(0x4e), high, low)
	VPADDQ(high, low, low)
	g := GP64()
	VMOVQ(low, g)
	return g
}
