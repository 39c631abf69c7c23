// Command _asm generates the AVX2 kernels of package ternary:
//
//	go generate ./ternary
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// ahead is how far prefetching runs before reading, in bytes: a page.
const ahead = 4096

func main() {
	ConstraintExpr("!noasm")
	countPlanes()
	sumBytes()
	Generate()
}

// countPlanes is the inner loop of countRow over blocks of 32 bytes, 256
// columns. Bits are counted by looking up both nibbles of every byte (Muła,
// "Faster population counts using AVX2 instructions").
func countPlanes() {
	TEXT("countPlanesAVX2", NOSPLIT, "func(bp, bn, br *byte, blocks int, out *[5]uint64)")
	Doc("countPlanesAVX2 sets out for blocks > 0 blocks of 32 bytes of each plane.", "Its reference is countPlanesGeneric.")
	bp := Load(Param("bp"), GP64())
	bn := Load(Param("bn"), GP64())
	br := Load(Param("br"), GP64())
	blocks := Load(Param("blocks"), GP64())
	out := Load(Param("out"), GP64())

	lut := broadcast("bitsOfNibble", []byte{0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4})
	mask := broadcast("lowNibble", repeat(0x0f))
	zero := YMM()
	VPXOR(zero, zero, zero)
	var sums [4]VecVirtual // plus, minus, hi, plusHi
	for i := range sums {
		sums[i] = YMM()
		VPXOR(sums[i], sums[i], sums[i])
	}
	bad := YMM()
	VPXOR(bad, bad, bad)

	Label("planes")
	// The hardware's prefetching ends with a page.
	for _, base := range []Register{bp, bn, br} {
		PREFETCHT0(Mem{Base: base, Disp: ahead})
	}
	p, n, r, t := YMM(), YMM(), YMM(), YMM()
	VMOVDQU(Mem{Base: bp}, p)
	VMOVDQU(Mem{Base: bn}, n)
	VMOVDQU(Mem{Base: br}, r)

	Comment("bad |= p&n | r&^(p|n)")
	VPAND(p, n, t)
	VPOR(t, bad, bad)
	VPOR(p, n, t)
	VPANDN(r, t, t)
	VPOR(t, bad, bad)

	both := YMM()
	VPAND(p, r, both)
	for i, v := range []VecVirtual{p, n, r, both} {
		low := YMM()
		VPAND(mask, v, low)
		VPSRLW(Imm(4), v, v)
		VPAND(mask, v, v)
		VPSHUFB(low, lut, low)
		VPSHUFB(v, lut, v)
		VPADDB(low, v, v)
		VPSADBW(zero, v, v)
		VPADDQ(v, sums[i], sums[i])
	}
	for _, base := range []Register{bp, bn, br} {
		ADDQ(Imm(32), base)
	}
	DECQ(blocks)
	JNZ(LabelRef("planes"))

	for i, sum := range append(sums[:], bad) {
		fold := add
		if i == 4 {
			fold = or
		}
		store(sum, fold, Mem{Base: out, Disp: 8 * i})
	}
	VZEROUPPER()
	RET()
}

// sumBytes is the inner loop of sumInt8 over blocks of 32 bytes.
func sumBytes() {
	TEXT("sumBytesAVX2", NOSPLIT, "func(q *byte, blocks int) uint64")
	Doc("sumBytesAVX2 returns the sum of blocks > 0 blocks of 32 bytes, each with its", "top bit flipped. Its reference is sumBytesGeneric.")
	q := Load(Param("q"), GP64())
	blocks := Load(Param("blocks"), GP64())
	flip := broadcast("topBit", repeat(0x80))
	zero, sum := YMM(), YMM()
	VPXOR(zero, zero, zero)
	VPXOR(sum, sum, sum)

	Label("bytes")
	v := YMM()
	PREFETCHT0(Mem{Base: q, Disp: ahead})
	VPXOR(Mem{Base: q}, flip, v)
	VPSADBW(zero, v, v)
	VPADDQ(v, sum, sum)
	ADDQ(Imm(32), q)
	DECQ(blocks)
	JNZ(LabelRef("bytes"))

	ret, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	store(sum, add, ret.Addr)
	VZEROUPPER()
	RET()
}

func add(a, b, c Op) { VPADDQ(a, b, c) }
func or(a, b, c Op)  { VPOR(a, b, c) }

// store folds the four words of v into one.
func store(v VecVirtual, fold func(a, b, c Op), to Op) {
	high := XMM()
	VEXTRACTI128(Imm(1), v, high)
	fold(high, v.AsX(), high)
	low := XMM()
	VPSHUFD(Imm(0x4e), high, low)
	fold(high, low, low)
	VMOVQ(low, to)
}

// broadcast returns a register with b in both halves.
func broadcast(name string, b []byte) VecVirtual {
	data := GLOBL(name, RODATA|NOPTR)
	for i, v := range b {
		DATA(i, U8(v))
	}
	y := YMM()
	VBROADCASTI128(data, y)
	return y
}

func repeat(v byte) []byte {
	b := make([]byte, 16)
	for i := range b {
		b[i] = v
	}
	return b
}
