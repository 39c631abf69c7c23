// Command _asm generates the reading loop of package membw:
//
//	go generate ./internal/membw
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func main() {
	ConstraintExpr("!noasm")
	TEXT("orAVX2", NOSPLIT, "func(p *byte, lines int) uint64")
	Doc("orAVX2 returns the bitwise or of the 64-bit words of 4*lines lines of 64 bytes, lines > 0.", "Its reference is orGeneric.")
	p := Load(Param("p"), GP64())
	lines := Load(Param("lines"), GP64())

	Comment("A quarter of the memory is a stream of its own: the hardware then prefetches four pages, not one.")
	quarter, three := GP64(), GP64()
	MOVQ(lines, quarter)
	SHLQ(Imm(6), quarter)
	LEAQ(Mem{Base: quarter, Index: quarter, Scale: 2}, three)
	a, b := YMM(), YMM()
	VPXOR(a, a, a)
	VPXOR(b, b, b)

	Label("loop")
	for _, m := range []Mem{
		{Base: p},
		{Base: p, Index: quarter, Scale: 1},
		{Base: p, Index: quarter, Scale: 2},
		{Base: p, Index: three, Scale: 1},
	} {
		VPOR(m, a, a)
		m.Disp = 32
		VPOR(m, b, b)
	}
	ADDQ(Imm(64), p)
	DECQ(lines)
	JNZ(LabelRef("loop"))

	VPOR(a, b, a)
	high, x := XMM(), XMM()
	VEXTRACTI128(Imm(1), a, high)
	VPOR(a.AsX(), high, x)
	low, upper := GP64(), GP64()
	VMOVQ(x, low)
	VPEXTRQ(Imm(1), x, upper)
	ORQ(upper, low)
	VZEROUPPER()
	Store(low, ReturnIndex(0))
	RET()
	Generate()
}
