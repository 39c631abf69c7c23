package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// ahead is how far prefetching runs before reading, in bytes. The hardware's
// own stops at the end of a page.
const ahead = 4096

// dot puts a digit of four columns in every dword, multiplies them with the
// codes of four columns of all rows and adds up 16-bit sums of two columns;
// after maxBlocks blocks these go to the 32-bit sums, which stay in memory.
//
// Codes are made while the products of the slot before are: shifts go where
// multiplications do not, and Zen 3 finds 10 % more of both if they come mixed.
func dot(planes int) {
	TEXT(fmt.Sprintf("dot%dAVX2", planes), NOSPLIT, "func(sums *int32, w *byte, x *int8, blocks int)")
	sums := Load(Param("sums"), GP64())
	w := Load(Param("w"), GP64())
	x := Load(Param("x"), GP64())
	blocks := Load(Param("blocks"), GP64())
	mask := load(three)
	zero := zeros(1)[0]
	for i := range 2 * planes {
		VMOVDQU(zero, Mem{Base: sums, Disp: i * vec})
	}

	Label("chunk")
	n := take(blocks, maxBlocks)
	acc := zeros(2 * planes) // [kind][plane]

	Label("block")
	prefetch(w)
	b := block{w: w, three: mask}
	next := b.codes(0)
	next.complete()
	for s := range slots {
		now := next
		if next = (codes{}); s+1 < slots {
			next = b.codes(s + 1)
		}
		for p := range planes {
			addProducts(acc[p], acc[planes+p], now, Mem{Base: x, Disp: p*blockCols + s*4}, next.step)
		}
		next.complete()
	}
	ADDQ(U32(3*vec), w)
	ADDQ(U32(planes*blockCols), x)
	DECQ(n)
	JNZ(LabelRef("block"))

	flush(acc, Mem{Base: sums})
	TESTQ(blocks, blocks)
	JNZ(LabelRef("chunk"))
	VZEROUPPER()
	RET()
}

// prefetch is for a block, which touches two or three lines of 64 bytes.
func prefetch(w Register) {
	PREFETCHT0(Mem{Base: w, Disp: ahead})
	PREFETCHT0(Mem{Base: w, Disp: ahead + 64})
}

// block is a block of weights in memory.
type block struct {
	w     Register
	three VecVirtual // in every byte
	t, q  VecVirtual // the half that slots are taken from
}

// codes are those of a slot, as bytes, and the instructions that make them.
type codes struct {
	t, q  VecVirtual
	steps []func()
}

// codes returns those of slot s; slots must come in order.
func (b *block) codes(s int) codes {
	c := codes{t: YMM(), q: YMM()}
	half, s := s/4, s%4
	if s == 0 {
		b.t, b.q = YMM(), YMM()
		t, q, z := b.t, b.q, Mem{Base: b.w, Disp: 2 * vec}
		if half == 0 {
			c.add(func() { VMOVDQU(z, q) })
		} else {
			c.add(func() { VMOVDQU(z, q) }, func() { VPADDB(q, q, q) })
		}
		c.add(
			func() { VMOVDQU(Mem{Base: b.w, Disp: half * vec}, t) },
			func() { VPAND(upper, q, q) },
			func() { VPXOR(t, q, q) },
			func() { VPAND(b.three, t, c.t) },
			func() { VPAND(b.three, q, c.q) },
		)
		return c
	}
	for _, v := range [][2]VecVirtual{{b.t, c.t}, {b.q, c.q}} {
		c.add(
			func() { VPSRLW(Imm(uint64(2*s)), v[0], v[1]) },
			func() { VPAND(b.three, v[1], v[1]) },
		)
	}
	return c
}

func (c *codes) add(steps ...func()) { c.steps = append(c.steps, steps...) }

// step writes the next instruction, if any is left.
func (c *codes) step() {
	if len(c.steps) > 0 {
		c.steps[0]()
		c.steps = c.steps[1:]
	}
}

// complete writes the instructions that are left.
func (c *codes) complete() {
	for len(c.steps) > 0 {
		c.step()
	}
}

// addProducts adds the products of a digit of four columns with codes; step is
// called where another instruction is welcome.
func addProducts(sumT, sumQ VecVirtual, c codes, digits Mem, step func()) {
	x, product := YMM(), YMM()
	VPBROADCASTD(digits, x)
	VPMADDUBSW(x, c.t, product)
	step()
	VPADDW(product, sumT, sumT)
	VPMADDUBSW(x, c.q, x)
	step()
	VPADDW(x, sumQ, sumQ)
}

// flush adds pairs of 16-bit sums to the 32-bit ones in memory.
func flush(acc []VecVirtual, sums Mem) {
	for i, a := range acc {
		at := sums.Offset(i * vec)
		VPMADDWD(ones, a, a)
		VPADDD(at, a, a)
		VMOVDQU(a, at)
	}
}
