package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// int8Ahead is how far prefetching runs before reading weights, in bytes.
const int8Ahead = 8192

// int8Dot adds sums of blocks of weights, widened to 16 bits, with activations
// in one or two 16-bit digits. A digit is at least -2057, so a step of 16
// columns adds at most 2*128*2057 to a 32-bit sum, and 1024 blocks, 2048 steps,
// do not overflow.
//
// Rows are done one by one, in the order of memory: four at a time would halve
// the reading of x, but rows of 1,024 columns then came from memory 40 % slower,
// as no prefetching follows four interleaved streams in a page.
func int8Dot(digits int) {
	TEXT(fmt.Sprintf("int8Dot%dAVX2", digits), NOSPLIT, "func(sums *int64, w *int8, stride int, x *byte, blocks, rows int)")
	sums := Load(Param("sums"), GP64())
	row := Load(Param("w"), GP64())
	stride := Load(Param("stride"), GP64())
	rows := Load(Param("rows"), GP64())

	Label("row")
	x := Load(Param("x"), GP64())
	blocks := Load(Param("blocks"), GP64())
	w := GP64()
	MOVQ(row, w)
	acc := zeros(2 * digits) // [half of a block][digit]

	block := func(n int) {
		for half := range 2 {
			weights := YMM()
			VPMOVSXBW(Mem{Base: w, Disp: n*blockCols + half*16}, weights)
			for d := range digits {
				product, sum := YMM(), acc[half*digits+d]
				VPMADDWD(Mem{Base: x, Disp: (n*2*digits + 2*d + half) * vec}, weights, product)
				VPADDD(product, sum, sum)
			}
		}
	}

	Comment("Two blocks, which are a line of the cache, at a time, and one if that is left.")
	SUBQ(Imm(2), blocks)
	JLT(LabelRef("last"))
	Label("two")
	PREFETCHT0(Mem{Base: w, Disp: int8Ahead})
	block(0)
	block(1)
	ADDQ(U32(2*blockCols), w)
	ADDQ(U32(2*2*digits*vec), x)
	SUBQ(Imm(2), blocks)
	JGE(LabelRef("two"))
	Label("last")
	CMPQ(blocks, I8(-1))
	JNE(LabelRef("total"))
	block(0)

	Label("total")
	total := sum64(acc[:digits], acc[digits:])
	ADDQ(total, Mem{Base: sums})
	ADDQ(U32(8), sums)
	ADDQ(stride, row)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// sum64 returns the sum of all lanes of a and b, whose digits it puts together.
func sum64(a, b []VecVirtual) Register {
	var total VecVirtual
	for i := len(a) - 1; i >= 0; i-- {
		wide := wideSum(a[i])
		VPADDQ(wideSum(b[i]), wide, wide)
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

// wideSum returns four 64-bit sums of two 32-bit lanes each.
func wideSum(v VecVirtual) VecVirtual {
	low, high := YMM(), YMM()
	VPMOVSXDQ(v.AsX(), low)
	VEXTRACTI128(Imm(1), v, high.AsX())
	VPMOVSXDQ(high.AsX(), high)
	VPADDQ(high, low, low)
	return low
}
