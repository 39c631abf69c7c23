// Command _asm generates the kernel of package coded:
//
//	go generate ./pack/coded
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	scaleBits = 14

	// Offsets in type decodeTable.
	restAt = 1 << scaleBits
	cumAt  = restAt + 4

	// Offsets in type lane, and its size.
	tableAt  = 0
	dstAt    = 8
	srcAt    = 32
	xAt      = 56
	laneSize = 64
)

// lane holds the registers of one of the payloads.
type lane struct {
	table, dst, src GPVirtual
	x               [2]GPVirtual
}

func main() {
	ConstraintExpr("!noasm")
	decodePair()
	Generate()
}

// decodePair has two rounds of two symbols of each lane in its loop, four
// chains of operations that do not depend on each other but for the order of
// the payload's bytes. It takes all but one of the general registers: the loop
// keeps nothing in memory.
func decodePair() {
	TEXT("decodePairBMI2", NOSPLIT, "func(lanes *[128]byte, symbols int) (eaten0, eaten1 int)")
	Doc("decodePairBMI2 decodes symbols > 0, a multiple of four, in each of two lanes.", "Its reference is decodePairGeneric.")
	symbols := Load(Param("symbols"), GP64())
	base := Load(Param("lanes"), GP64())
	var lanes [2]lane
	for i := range lanes {
		l, at := &lanes[i], i*laneSize
		l.table, l.dst, l.src, l.x = GP64(), GP64(), GP64(), [2]GPVirtual{GP64(), GP64()}
		MOVQ(Mem{Base: base, Disp: at + tableAt}, l.table)
		MOVQ(Mem{Base: base, Disp: at + dstAt}, l.dst)
		ADDQ(symbols, l.dst)
		MOVQ(Mem{Base: base, Disp: at + srcAt}, l.src)
		for j, x := range l.x {
			MOVL(Mem{Base: base, Disp: at + xAt + 4*j}, x.As32())
		}
	}
	NEGQ(symbols)

	Label("loop")
	for round := range 2 {
		for i := range lanes {
			lanes[i].two(symbols, 2*round)
		}
	}
	ADDQ(U8(4), symbols)
	JNE(LabelRef("loop"))

	base = Load(Param("lanes"), GP64())
	for i, l := range lanes {
		at := i * laneSize
		for j, x := range l.x {
			MOVL(x.As32(), Mem{Base: base, Disp: at + xAt + 4*j})
		}
		SUBQ(Mem{Base: base, Disp: at + srcAt}, l.src)
		Store(l.src, ReturnIndex(i))
	}
	RET()
}

// two decodes a symbol of each state to dst[n+at] and dst[n+at+1]: together they
// take four bytes of src at most.
func (l *lane) two(n Register, at int) {
	bytes := GP64()
	MOVBELL(Mem{Base: l.src}, bytes.As32())
	for j, x := range l.x {
		symbol, product, shift := GP64(), GP64(), GP64()
		MOVL(x.As32(), symbol.As32())
		ANDL(U32(1<<scaleBits-1), symbol.As32())
		MOVBLZX(Mem{Base: l.table, Index: symbol, Scale: 1}, symbol.As32())
		MOVB(symbol.As8(), Mem{Base: l.dst, Index: n, Scale: 1, Disp: at + j})

		Comment("x -= cum + rest*(x>>14)")
		MOVL(x.As32(), product.As32())
		SHRL(U8(scaleBits), product.As32())
		IMULL(Mem{Base: l.table, Index: symbol, Scale: 8, Disp: restAt}, product.As32())
		SUBL(Mem{Base: l.table, Index: symbol, Scale: 8, Disp: cumAt}, x.As32())
		SUBL(product.As32(), x.As32())

		Comment("0, 8 or 16 bits follow x, so that its top is bit 23 at least")
		LZCNTL(x.As32(), shift.As32())
		DECL(shift.As32())
		ANDL(U8(24), shift.As32())
		SHLQ(U8(32), x)
		ORQ(bytes, x)
		SHLXQ(shift, x, x)
		if j == 0 {
			MOVL(x.As32(), bytes.As32()) // what is left, at the top of 32 bits
		}
		SHRQ(U8(32), x)
		SHRL(U8(3), shift.As32())
		ADDQ(shift, l.src)
	}
}
