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
func dot(planes int) {
	TEXT(fmt.Sprintf("dot%dAVX2", planes), NOSPLIT, "func(sums *int32, w *byte, x *int8, blocks int)")
	sums := Load(Param("sums"), GP64())
	w := Load(Param("w"), GP64())
	x := Load(Param("x"), GP64())
	blocks := Load(Param("blocks"), GP64())
	masks := newMasks()
	zero := zeros(1)[0]
	for i := range 2 * planes {
		VMOVDQU(zero, Mem{Base: sums, Disp: i * vec})
	}

	Label("chunk")
	n := takeChunk(blocks)
	acc := zeros(2 * planes) // [kind][plane]

	Label("block")
	PREFETCHT0(Mem{Base: w, Disp: ahead})
	PREFETCHT0(Mem{Base: w, Disp: ahead + 64})
	masks.eachSlot(w, func(slot int, t, q VecVirtual) {
		for p := range planes {
			addProducts(acc[p], acc[planes+p], t, q, Mem{Base: x, Disp: p*blockCols + slot*4})
		}
	})
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

// masks are what separates the codes of a block.
type masks struct{ three, upper VecVirtual }

func newMasks() masks { return masks{load(three), load(upper)} }

// eachSlot calls f for the slots of the block at w in order, with the codes of
// t and of q as bytes.
func (m masks) eachSlot(w Register, f func(slot int, t, q VecVirtual)) {
	z := load(Mem{Base: w, Disp: 2 * vec})
	for half := range 2 {
		t, q := load(Mem{Base: w, Disp: half * vec}), YMM()
		if half == 1 {
			VPADDB(z, z, z)
		}
		VPAND(m.upper, z, q)
		VPXOR(t, q, q)
		for s := range 4 {
			f(half*4+s, m.code(t, s), m.code(q, s))
		}
	}
}

// code returns bits 2s+1 and 2s of every byte.
func (m masks) code(v VecVirtual, s int) VecVirtual {
	u := YMM()
	if s > 0 {
		VPSRLW(Imm(uint64(2*s)), v, u)
		v = u
	}
	VPAND(m.three, v, u)
	return u
}

// takeChunk returns how many blocks to do before 16 bits are full, and takes
// them off blocks.
func takeChunk(blocks Register) Register {
	n := GP64()
	MOVL(U32(maxBlocks), n.As32())
	CMPQ(blocks, n)
	CMOVQLT(blocks, n)
	SUBQ(n, blocks)
	return n
}

// addProducts adds the products of a digit of four columns with codes.
func addProducts(sumT, sumQ, t, q VecVirtual, digits Mem) {
	x, product := YMM(), YMM()
	VPBROADCASTD(digits, x)
	VPMADDUBSW(x, t, product)
	VPADDW(product, sumT, sumT)
	VPMADDUBSW(x, q, x)
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
