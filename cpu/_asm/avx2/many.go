package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// expand writes the codes that dot makes.
func expand() {
	TEXT("expandAVX2", NOSPLIT, "func(u, w *byte, blocks int)")
	u := Load(Param("u"), GP64())
	w := Load(Param("w"), GP64())
	blocks := Load(Param("blocks"), GP64())
	mask := load(three)

	Label("block")
	prefetch(w)
	b := block{w: w, three: mask}
	for s := range slots {
		c := b.codes(s)
		c.complete()
		VMOVDQU(c.t, Mem{Base: u, Disp: (2*s + 0) * vec})
		VMOVDQU(c.q, Mem{Base: u, Disp: (2*s + 1) * vec})
	}
	ADDQ(U32(3*vec), w)
	ADDQ(U32(2*slots*vec), u)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// dotMany does as many columns at once as 12 sums are for, which leaves four
// registers to work with, and what is left in smaller numbers, down to one by
// one. All is as in dot.
func dotMany(planes int) {
	TEXT(fmt.Sprintf("dotMany%dAVX2", planes), NOSPLIT, "func(sums *int32, u *byte, x *int8, blocks, columns, stride int)")
	m := many{
		planes: planes,
		sums:   Load(Param("sums"), GP64()), x: Load(Param("x"), GP64()),
		columns: Load(Param("columns"), GP64()), stride: Load(Param("stride"), GP64()),
	}
	for n := 6 / planes; n > 0; n /= 2 {
		m.loop(fmt.Sprintf("by%d", n), n)
	}
	VZEROUPPER()
	RET()
}

type many struct {
	planes                   int
	sums, x, columns, stride Register
}

// loop does columns as long as there are n.
func (m many) loop(label string, n int) {
	multiple := map[int]Register{1: m.stride} // of the stride, odd
	for i := 3; i < n; i += 2 {
		multiple[i] = GP64()
		LEAQ(Mem{Base: m.stride, Index: m.stride, Scale: 2}, multiple[i])
		if i == 5 {
			LEAQ(Mem{Base: m.stride, Index: m.stride, Scale: 4}, multiple[i])
		}
	}
	JMP(LabelRef(label + "Next"))

	Label(label)
	u := Load(Param("u"), GP64())
	blocks := Load(Param("blocks"), GP64())
	x := GP64()
	MOVQ(m.x, x)

	Label(label + "Chunk")
	left := take(blocks, maxBlocks)
	acc := zeros(n * 2 * m.planes) // [column][kind][plane]

	Label(label + "Block")
	for slot := range slots {
		codes := codes{t: load(Mem{Base: u, Disp: (2*slot + 0) * vec}), q: load(Mem{Base: u, Disp: (2*slot + 1) * vec})}
		for c := range n {
			digits := Mem{Base: x, Disp: slot * 4}
			if c > 0 {
				scale := c & -c
				digits.Index, digits.Scale = multiple[c/scale], uint8(scale)
			}
			for p := range m.planes {
				sums := acc[c*2*m.planes:]
				addProducts(sums[p], sums[m.planes+p], codes, digits.Offset(p*blockCols), func() {})
			}
		}
	}
	ADDQ(U32(2*slots*vec), u)
	ADDQ(U32(m.planes*blockCols), x)
	DECQ(left)
	JNZ(LabelRef(label + "Block"))

	flush(acc, Mem{Base: m.sums})
	TESTQ(blocks, blocks)
	JNZ(LabelRef(label + "Chunk"))
	ADDQ(U32(n*2*m.planes*vec), m.sums)
	for range n {
		ADDQ(m.stride, m.x)
	}
	SUBQ(Imm(uint64(n)), m.columns)

	Label(label + "Next")
	CMPQ(m.columns, Imm(uint64(n)))
	JGE(LabelRef(label))
}
