package main

import (
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// ahead is how far prefetching runs before reading, in bytes. The hardware's
// own stops at the end of a page.
const ahead = 4096

// dot spreads the digits of a group of blocks to vectors, four columns of one digit
// each, which then are operands in the first-level cache for all 64 rows.
//
// Codes are multiplied where they stand in their bytes, 0 to 2 times 4^s: one AND
// takes them out, and sums of each s are divided by 4^s at the end of the group. For
// more than one digit there are registers for the sums of two such s, and the other
// codes are first shifted down.
func (a asm) dot(planes int) {
	a.begin(named("dot%d", planes), "func(sums *int32, w *byte, x *int8, blocks int)")
	scales := 2 // sums by s
	if planes == 1 {
		scales = 4
	}
	masks := make([]Op, scales)
	for s := range masks {
		m := a.constant(0x03030303 << (2 * s))
		if masks[s] = m; planes < 3 { // else the sums need all registers
			masks[s] = a.load(m)
		}
	}
	frame := a.AllocLocal(group*slots*planes*vec + vec)
	upper := a.load(a.constant(0xaaaaaaaa)) // bit of every two
	sums, w, x, blocks := a.argument("sums"), a.argument("w"), a.argument("x"), a.argument("blocks")
	digits := a.GP64()
	a.LEAQ(frame.Offset(vec-1), digits)
	a.ANDQ(I8(-vec), digits)
	zero := a.zeros(1)[0]
	for i := range 2 * planes * kindSums / vec {
		a.VMOVDQU(zero, at(sums, i*vec))
	}

	a.Label("group")
	n := a.take(blocks, group)
	a.spreadDigits(x, digits, n, planes)

	rows, sum := a.GP64(), a.move(sums)
	a.MOVL(U32(tileRows/vecRows), rows.As32())
	a.loop("rows", rows, func() {
		acc := make([][]VecVirtual, scales) // [s][kind*P+plane]
		for s := range acc {
			acc[s] = a.zeros(2 * planes)
		}
		digit := a.move(digits)
		a.unrolled("block", n, func(i int) {
			b := at(w, i*block)
			if i == 0 { // two blocks are three lines of the cache
				a.PREFETCHT0(b.Offset(ahead))
			}
			a.PREFETCHT0(b.Offset(ahead + 64))
			for half := range 2 {
				t, q := a.half(b, half, upper)
				for s := range 4 {
					if s == scales {
						a.VPSRLW(Imm(uint64(2*s)), t, t)
						a.VPSRLW(Imm(uint64(2*s)), q, q)
					}
					for kind, v := range []VecVirtual{t, q} {
						codes := v
						if s < 3 {
							codes = a.YMM()
						}
						a.VPAND(masks[s%scales], v, codes)
						for p := range planes {
							d := at(digit, ((i*slots+half*4+s)*planes+p)*vec)
							a.dpbusd(d, codes, acc[s%scales][kind*planes+p])
						}
					}
				}
			}
		}, func(i int) {
			a.advance(i*block, w)
			a.advance(i*slots*planes*vec, digit)
		})
		for i := range 2 * planes {
			for s := scales - 1; s > 0; s-- {
				a.VPSRAD(Imm(uint64(2*s)), acc[s][i], acc[s][i])
				a.VPADDD(acc[s][i], acc[0][i], acc[0][i])
			}
			to := at(sum, i*kindSums)
			a.VPADDD(to, acc[0][i], acc[0][i])
			a.VMOVDQU(acc[0][i], to)
		}
		a.advance(vec, sum)
	})
	a.TESTQ(blocks, blocks)
	a.JNZ(LabelRef("group"))
	a.end()
}

// spreadDigits writes the digits of n blocks, [block][slot][plane] vectors, and moves
// x behind them.
func (a asm) spreadDigits(x, digits, n Register, planes int) {
	to, left := a.move(digits), a.move(n)
	a.loop("spread", left, func() {
		for slot := range slots {
			for p := range planes {
				a.VMOVDQU(a.spread(at(x, p*blockCols+slot*4)), at(to, (slot*planes+p)*vec))
			}
		}
		a.advance(planes*blockCols, x)
		a.advance(slots*planes*vec, to)
	})
}

// half returns four codes of t and four of q in each byte, of 16 columns of the
// block at b.
func (a asm) half(b Mem, half int, upper VecVirtual) (t, q VecVirtual) {
	t, q = a.load(b.Offset(half*vec)), a.YMM()
	if z := b.Offset(2 * vec); half == 0 {
		a.VPAND(z, upper, q)
	} else {
		a.VPANDN(z, upper, q)
		a.VPADDB(q, q, q)
	}
	a.VPXOR(t, q, q)
	return t, q
}
