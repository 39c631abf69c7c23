package main

import "fmt"

// ahead is how far the weights are prefetched, in bytes.
const ahead = 2048

// A tile has 4 rows, so that a part of a block is one vector whose lanes are
// rows, and lane s of 16 columns' digits belongs to slot s.

// kinds of codes.
const (
	kindT = iota
	kindQ
	kinds
)

// block are the registers of a block's codes, four slots in each.
type block struct {
	a, b, qa, qb v // a, b and qa take the parts as loaded
	upper        v // 0xaa in all bytes
}

// load loads a block and makes the codes of q.
func (c block) load(a *asm, w r) {
	a.op("VLD1.P 48(%v), [%v.B16, %v.B16, %v.B16]", w, c.a, c.b, c.qa)
	a.addBytes(c.qb, c.qa, c.qa) // bytes shifted by one: br of the second half
	a.and(c.qa, c.qa, c.upper)
	a.and(c.qb, c.qb, c.upper)
	a.eor(c.qa, c.qa, c.a)
	a.eor(c.qb, c.qb, c.b)
}

// codes returns the register with the codes of 16 columns.
func (c block) codes(half, kind int) v { return [2][kinds]v{{c.a, c.qa}, {c.b, c.qb}}[half][kind] }

// dotSDOT: a block is 16P products and 21 instructions that make their operands,
// for 128 weights.
//
// Three of the four slots of a byte are had by one AND and stay where they are,
// so their codes are 1, 4 and 16 times too large. Such sums are kept apart and
// shifted at the end. That bounds the columns: 2*16*128 for a quarter of them
// must stay below 2^31 (see maxCols).
func dotSDOT(a *asm, planes int) {
	const sums, w, x, blocks = r(0), r(1), r(2), r(3)
	name := fmt.Sprintf("dotSDOT%d", planes)
	a.function(name, "(sums []int32, w []byte, x []int8, blocks int)", 80)
	a.argument("sums_base", 0, sums)
	a.argument("w_base", 24, w)
	a.argument("x_base", 48, x)
	a.argument("blocks", 72, blocks)

	// The top slot has sums of its own as long as registers last: chains of
	// dependent sums are what one and two digits would wait for.
	groups := 4
	if planes == 3 {
		groups = 3
	}
	acc := func(slot, kind, p int) v { return v((slot%groups*kinds+kind)*planes + p) }
	digits, temps := vs(18, 3), vs(21, 3)
	c := block{a: 24, b: 25, qa: 26, qb: 27, upper: 31}
	masks := vs(28, 3)
	for s, m := range masks {
		a.bytes(m, 3<<(2*s))
	}
	a.bytes(c.upper, 0xaa)
	a.zero(vs(0, groups*kinds*planes)...)
	a.op("CBZ %v, done", blocks)

	a.label("loop")
	a.op("PRFM %s, PLDL1STRM", place(w, ahead))
	c.load(a, w)
	type step struct{ half, kind, slot int }
	var steps []step
	for half := range 2 {
		for slot := range 4 {
			for kind := range kinds {
				steps = append(steps, step{half, kind, slot})
			}
		}
	}
	operand := func(i int) v { return temps[i%len(temps)] }
	extract := func(i int) {
		if i == len(steps) {
			return
		}
		if s := steps[i]; s.slot < 3 {
			a.and(operand(i), c.codes(s.half, s.kind), masks[s.slot])
		} else {
			a.ushrBytes(operand(i), c.codes(s.half, s.kind), 6)
		}
	}
	extract(0)
	for i, s := range steps {
		if s.slot == 0 && s.kind == 0 {
			for p := range planes {
				a.load(digits[p], x, 32*p+16*s.half)
			}
		}
		extract(i + 1) // before the products of i, for cores that keep the order
		for p := range planes {
			a.sdotAt(acc(s.slot, s.kind, p), operand(i), digits[p], s.slot)
		}
	}
	a.addImmediate(x, 32*planes)
	a.next(blocks, "loop")

	a.label("done")
	for i := range v(kinds * planes) {
		group := func(g int) v { return v(g*kinds*planes) + i }
		a.ssra(i, group(1), 2)
		a.ssra(i, group(2), 4)
		if groups == 4 {
			a.add(i, i, group(3))
		}
	}
	a.storeAll(vs(0, kinds*planes), sums, 0)
	a.op("RET")
}

// runNEON is the number of blocks whose products 16-bit lanes can hold: a lane
// gets one of each slot, each at least -2*128, so 8*16 of them make -2^15.
const runNEON = 16

// dotNEON has no products of four bytes: codes of 4 rows and 4 columns are
// multiplied with the 4 digits, repeated, into 16 lanes of 16 bits.
func dotNEON(a *asm, planes int) {
	const sums, w, x, blocks, run, most = r(0), r(1), r(2), r(3), r(4), r(5)
	a.function(fmt.Sprintf("dotNEON%d", planes), "(sums []int32, w []byte, x []int8, blocks int)", 80)
	a.argument("sums_base", 0, sums)
	a.argument("w_base", 24, w)
	a.argument("x_base", 48, x)
	a.argument("blocks", 72, blocks)

	short := func(kind, p, half int) v { return v((kind*planes+p)*2 + half) }
	long := func(kind, p int) v { return v(12 + kind*planes + p) }
	digits, repeated := vs(18, 3), vs(21, 3)
	c := block{a: 24, b: 25, qa: 26, qb: 27, upper: 31}
	operand, low := []v{28, 29}, v(30)
	a.bytes(low, 3)
	a.bytes(c.upper, 0xaa)
	a.zero(vs(long(0, 0), kinds*planes)...)
	a.op("MOVD $%d, %v", runNEON, most)
	a.op("CBZ %v, done", blocks)

	a.label("run")
	a.op("CMP %v, %v", most, blocks)
	a.op("CSEL LT, %v, %v, %v", blocks, most, run)
	a.op("SUB %v, %v", run, blocks)
	a.zero(vs(0, 2*kinds*planes)...)

	a.label("loop")
	a.op("PRFM %s, PLDL1STRM", place(w, ahead))
	c.load(a, w)
	for half := range 2 {
		for p := range planes {
			a.load(digits[p], x, 32*p+16*half)
		}
		for slot := range 4 {
			for kind := range kinds {
				codes := c.codes(half, kind)
				switch slot {
				case 0:
					a.and(operand[kind], codes, low)
				case 3:
					a.ushrBytes(operand[kind], codes, 6)
				default:
					a.ushrBytes(operand[kind], codes, 2*slot)
					a.and(operand[kind], operand[kind], low)
				}
			}
			for p := range planes {
				a.dup(repeated[p], digits[p], slot)
			}
			for p := range planes {
				for kind := range kinds {
					a.smlal(short(kind, p, 0), operand[kind], repeated[p])
					a.smlal2(short(kind, p, 1), operand[kind], repeated[p])
				}
			}
		}
	}
	a.addImmediate(x, 32*planes)
	a.next(run, "loop")

	for kind := range kinds {
		for p := range planes {
			gather(a, short(kind, p, 0), short(kind, p, 1))
			a.add(long(kind, p), long(kind, p), short(kind, p, 0))
		}
	}
	a.op("CBNZ %v, run", blocks)

	a.label("done")
	a.storeAll(vs(long(0, 0), kinds*planes), sums, 0)
	a.op("RET")
}

// gather turns 4 columns' sums of 4 rows, 16 bits each, into 4 sums of 32 bits
// in low.
func gather(a *asm, low, high v) {
	a.saddlp(low, low)
	a.saddlp(high, high)
	a.addp(low, low, high)
}

// finish: sums become int64, two in a vector, then double, which holds them
// (below 2^47) exactly, and are rounded once on their way to single.
func finish(a *asm) {
	const y, sums, lo, hi, planes, t, q = r(0), r(1), r(2), r(3), r(4), r(5), r(6)
	a.function("finishNEON", "(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32)", 120)
	a.argument("y_base", 0, y)
	a.argument("sums_base", 24, sums)
	a.argument("lo_base", 48, lo)
	a.argument("hi_base", 72, hi)
	a.argument("planes", 96, planes)
	a.argument("xsum", 104, r(7))
	a.op("VDUP R7, V16.D2")
	a.floatArgument("before", 112, 17)
	a.floatArgument("after", 116, 18)

	// From the highest digit down.
	a.op("ADD %v<<4, %v, %v", planes, sums, t)
	a.op("ADD %v<<4, %v, %v", planes, t, q)
	a.zero(vs(0, 4)...)
	a.label("loop")
	a.op("SUB $16, %v", t)
	a.op("SUB $16, %v", q)
	a.load(4, t, 0)
	a.load(5, q, 0)
	for kind, sum := range []v{4, 5} {
		low, high := v(2*kind), v(2*kind+1)
		a.shlLong(low, low, 8)
		a.shlLong(high, high, 8)
		a.sxtlWords(6, sum)
		a.sxtl2Words(7, sum)
		a.addLong(low, low, 6)
		a.addLong(high, high, 7)
	}
	a.next(planes, "loop")

	for half := range v(2) {
		l, h := 8+half, 10+half
		a.addLong(l, half, 2+half) // T and Q of NUMERICS.md, plus X
		a.subLong(h, half, 2+half)
		a.sshrLong(l, l, 1)
		a.sshrLong(h, h, 1)
		a.subLong(l, l, 16)
		a.scvtfLong(l, l)
		a.scvtfLong(h, h)
	}
	for _, sum := range []v{8, 10} {
		a.fcvtnDouble(sum, sum)
		a.fcvtn2Double(sum, sum+1)
	}
	a.load(20, lo, 0)
	a.load(21, hi, 0)
	a.fmul(20, 20, 17)
	a.fmul(21, 21, 17)
	a.fmul(8, 8, 20)
	a.fmul(10, 10, 21)
	a.fadd(8, 8, 10)
	a.fmul(8, 8, 18)
	a.store(8, y, 0)
	a.op("RET")
}
