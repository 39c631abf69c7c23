package main

import (
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	// int8Ahead is how far prefetching runs before reading weights, in bytes.
	int8Ahead = 8192
	// together is the number of blocks with sums of their own, so that no product
	// waits for the one before.
	together = 4
)

// int8Dot multiplies w+128, unsigned, with the digits and takes off 128 times the
// digits, which is the same for all rows. A block adds at most 4*255*128 to a sum,
// and 2^13 blocks do not overflow.
//
// Rows are done one by one, in the order of memory; AVX2 does four, a quarter of all
// apart, which no processor with AVX-VNNI was there to try.
func (a asm) int8Dot(planes int) {
	a.begin(named("int8Dot%d", planes), "func(sums *int64, w *int8, stride int, x *byte, blocks, rows int)")
	sums, row, stride, rows := a.argument("sums"), a.argument("w"), a.argument("stride"), a.argument("rows")
	flip := a.load(a.constant(0x80808080))

	a.Comment("128, unsigned, is the sign bit.")
	acc := a.zeros(planes)
	x, blocks := a.argument("x"), a.argument("blocks")
	a.loop("start", blocks, func() {
		for p, sum := range acc {
			a.dpbusd(at(x, p*blockCols), flip, sum)
		}
		a.advance(planes*blockCols, x)
	})
	start := a.sum64(acc)

	a.loop("row", rows, func() {
		acc := a.zeros(together * planes) // [block][plane]
		x, w, left := a.argument("x"), a.move(row), a.argument("blocks")
		blocks := func(n int) {
			for i := range n {
				if i%2 == 0 {
					a.PREFETCHT0(at(w, i*blockCols+int8Ahead))
				}
				weights := a.YMM()
				a.VPXOR(at(w, i*blockCols), flip, weights)
				for p := range planes {
					a.dpbusd(at(x, (i*planes+p)*blockCols), weights, acc[i*planes+p])
				}
			}
			a.advance(n*blockCols, w)
			a.advance(n*planes*blockCols, x)
		}
		a.SUBQ(Imm(together), left)
		a.JLT(LabelRef("few"))
		a.Label("blocks")
		blocks(together)
		a.SUBQ(Imm(together), left)
		a.JGE(LabelRef("blocks"))
		a.Label("few")
		a.ADDQ(Imm(together), left)
		a.JZ(LabelRef("done"))
		a.loop("block", left, func() { blocks(1) })
		a.Label("done")
		for i := planes; i < len(acc); i++ {
			a.VPADDD(acc[i], acc[i%planes], acc[i%planes])
		}
		total := a.sum64(acc[:planes])
		a.SUBQ(start, total)
		a.ADDQ(total, at(sums, 0))
		a.advance(8, sums)
		a.ADDQ(stride, row)
	})
	a.end()
}

// sum64 returns the sum of the lanes of each digit, put together.
func (a asm) sum64(digits []VecVirtual) Register {
	var total VecVirtual
	for i := len(digits) - 1; i >= 0; i-- {
		wide, high := a.YMM(), a.YMM()
		a.VPMOVSXDQ(digits[i].AsX(), wide)
		a.VEXTRACTI128(Imm(1), digits[i], high.AsX())
		a.VPMOVSXDQ(high.AsX(), high)
		a.VPADDQ(high, wide, wide)
		if total != nil {
			a.VPSLLQ(Imm(8), total, total)
			a.VPADDQ(total, wide, wide)
		}
		total = wide
	}
	high, low, g := a.XMM(), a.XMM(), a.GP64()
	a.VEXTRACTI128(Imm(1), total, high)
	a.VPADDQ(high, total.AsX(), high)
	a.VPSHUFD(Imm(0x4e), high, low)
	a.VPADDQ(high, low, low)
	a.VMOVQ(low, g)
	return g
}
