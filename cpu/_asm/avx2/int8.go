package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// streams is how many rows are done at once, a quarter of all apart: the hardware
// fetches ahead in as many pages as are read, and to the end of each. One stream was
// slower from memory with any prefetching: see docs/performance.md.
const (
	streams   = 4
	int8Ahead = 1024 // bytes that prefetching in a stream runs before reading
)

// int8Dot adds sums of blocks of weights, widened to 16 bits, with activations
// in one or two 16-bit digits. A digit is at least -2057, so a step of 16
// columns adds at most 2*128*2057 to a 32-bit sum, and 1024 blocks, 2048 steps,
// do not overflow.
func int8Dot(digits int) {
	TEXT(fmt.Sprintf("int8Dot%dAVX2", digits), NOSPLIT, "func(sums *int64, w *int8, stride int, x *byte, blocks, rows int)")
	sums := Load(Param("sums"), GP64())
	row := Load(Param("w"), GP64())
	rows := Load(Param("rows"), GP64()) // of a stream
	SHRQ(Imm(2), rows)
	apart := GP64() // bytes
	MOVQ(rows, apart)
	IMULQ(param("stride"), apart)
	left := GP64()
	MOVQ(rows, left)
	TESTQ(left, left)
	JZ(LabelRef("rest"))

	Label("rows")
	to := GP64()
	MOVQ(sums, to)
	int8Rows("block", digits, streams, row, apart, func(total Register) {
		ADDQ(total, Mem{Base: to})
		LEAQ(Mem{Base: to, Index: rows, Scale: 8}, to)
	})
	ADDQ(param("stride"), row)
	ADDQ(Imm(8), sums)
	DECQ(left)
	JNZ(LabelRef("rows"))

	Label("rest") // of the rows, up to three
	LEAQ(Mem{Base: apart, Index: apart, Scale: 2}, apart)
	ADDQ(apart, row)
	LEAQ(Mem{Base: rows, Index: rows, Scale: 2}, rows)
	LEAQ(Mem{Base: sums, Index: rows, Scale: 8}, sums)
	Load(Param("rows"), left)
	ANDQ(Imm(streams-1), left)
	JZ(LabelRef("done"))
	Label("row")
	int8Rows("rowBlock", digits, 1, row, apart, func(total Register) { ADDQ(total, Mem{Base: sums}) })
	ADDQ(param("stride"), row)
	ADDQ(Imm(8), sums)
	DECQ(left)
	JNZ(LabelRef("row"))
	Label("done")
	VZEROUPPER()
	RET()
}

// int8Rows calls add with the sum of the row at row, then with those of some-1 others,
// each apart bytes behind the one before.
func int8Rows(label string, digits, some int, row, apart Register, add func(total Register)) {
	x, w, third, blocks := Load(Param("x"), GP64()), GP64(), GP64(), Load(Param("blocks"), GP64())
	MOVQ(row, w)
	at := []Mem{{Base: w}, {Base: w, Index: apart, Scale: 1}, {Base: third}, {Base: third, Index: apart, Scale: 1}}[:some]
	if some > 2 {
		LEAQ(Mem{Base: row, Index: apart, Scale: 2}, third)
	}
	acc := make([][]VecVirtual, some)
	for i := range acc {
		acc[i] = zeros(digits)
	}

	Label(label)
	for _, m := range at {
		PREFETCHT0(m.Offset(int8Ahead))
	}
	for half := range 2 {
		xs := make([]VecVirtual, digits)
		for d := range xs {
			xs[d] = load(Mem{Base: x, Disp: (2*d + half) * vec})
		}
		for i, acc := range acc {
			weights := YMM()
			VPMOVSXBW(at[i].Offset(half*16), weights)
			for d, x := range xs {
				product := YMM()
				VPMADDWD(x, weights, product)
				VPADDD(product, acc[d], acc[d])
			}
		}
	}
	ADDQ(U32(blockCols), w)
	if some > 2 {
		ADDQ(U32(blockCols), third)
	}
	ADDQ(U32(2*digits*vec), x)
	DECQ(blocks)
	JNZ(LabelRef(label))
	for _, acc := range acc {
		add(sum64(acc))
	}
}

// sum64 returns the sum of all lanes of a, whose digits it puts together.
func sum64(a []VecVirtual) Register {
	var total VecVirtual
	for i := len(a) - 1; i >= 0; i-- {
		wide := wideSum(a[i])
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
