// Command arrange generates the AVX2 form of arrangeCodes in package cpu, where
// the arrangement is described:
//
//	go generate ./cpu
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	rows  = 8 // that are done at once: a dword each
	group = 8 // blocks that are done at once: a vector of a row's bits
)

func main() {
	ConstraintExpr("!noasm")
	TEXT("arrangeCodesAVX2", 0, "func(dst, bp, bn, br *byte, stride, groups, part int) (bad uint32)")
	dst := Load(Param("dst"), GP64())
	planes := [3]Register{Load(Param("bp"), GP64()), Load(Param("bn"), GP64()), Load(Param("br"), GP64())}
	stride := Load(Param("stride"), GP64())
	groups := Load(Param("groups"), GP64())
	part := Load(Param("part"), GP64())
	block := GP64()
	LEAQ(Mem{Base: part, Index: part, Scale: 2}, block)

	bad := YMM()
	VPXOR(bad, bad, bad)
	words := AllocLocal(3 * group * 32) // [planes][blocks][rows] dwords

	Label("group")
	for i, p := range planes {
		transpose(p, stride, words.Offset(i*group*32))
		ADDQ(Imm(32), p)
	}
	for b := range group {
		word := func(plane int) Mem { return words.Offset((plane*group + b) * 32) }
		p, h, nz, t := YMM(), YMM(), YMM(), YMM()
		VMOVDQU(word(0), p)
		VMOVDQU(word(2), h)
		VPAND(word(1), p, t)
		VPOR(t, bad, bad)
		VPOR(word(1), p, nz)
		VPANDN(h, nz, t)
		VPOR(t, bad, bad)

		z := spread(h, 0)
		VPADDB(z, z, z)
		t = spread(h, 1)
		VPOR(t, z, z)
		VMOVDQU(z, Mem{Base: dst, Index: part, Scale: 2})
		for half, to := range []Mem{{Base: dst}, {Base: dst, Index: part, Scale: 1}} {
			codes, s := spread(nz, half), spread(p, half)
			VPXOR(zero, codes, codes)
			VPADDB(s, s, s)
			VPOR(s, codes, codes)
			VMOVDQU(codes, to)
		}
		ADDQ(block, dst)
	}
	DECQ(groups)
	JNZ(LabelRef("group"))

	all, t := XMM(), XMM()
	VEXTRACTI128(Imm(1), bad, all)
	VPOR(bad.AsX(), all, all)
	VPSHUFD(Imm(0x4e), all, t)
	VPOR(t, all, all)
	VPSHUFD(Imm(0xb1), all, t)
	VPOR(t, all, all)
	r := GP32()
	VMOVD(all, r)
	Store(r, ReturnIndex(0))
	VZEROUPPER()
	RET()
	Generate()
}

// Constants, a vector long.
var (
	zero    = constant("zero", func(int) byte { return 0x55 }) // nz̄ of four columns of weight 0
	pick    [4]Mem                                             // shuffles that put byte i of a dword into all four
	columns [2]Mem                                             // bit k of byte k, in the lower and the upper half of a byte
	place   [4]Mem                                             // bit 2s
)

func init() {
	for i := range 4 {
		pick[i] = constant(names("pick", i), func(at int) byte { return byte(at%16/4*4 + i) })
		place[i] = constant(names("place", i), func(int) byte { return 1 << (2 * i) })
	}
	for i := range 2 {
		columns[i] = constant(names("columns", i), func(at int) byte { return 1 << (4*i + at%4) })
	}
}

func names(s string, i int) string { return s + string(rune('0'+i)) }

func constant(name string, at func(i int) byte) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 32 {
		DATA(i, U8(at(i)))
	}
	return m
}

// spread moves bit 4s+k of half of the 32 bits in each dword of v to bit 2s of
// byte k.
func spread(v VecVirtual, half int) VecVirtual {
	var sum VecVirtual
	for s := range 4 {
		t := YMM()
		VPSHUFB(pick[2*half+s/2], v, t)
		VPAND(columns[s%2], t, t)
		VPCMPEQB(columns[s%2], t, t)
		VPAND(place[s], t, t)
		if s == 0 {
			sum = t
		} else {
			VPOR(t, sum, sum)
		}
	}
	return sum
}

// transpose reads a vector of each of 8 rows, stride apart, from p on and writes
// [8 dwords of a row][8 rows].
func transpose(p, stride Register, to Mem) {
	at := GP64()
	MOVQ(p, at)
	var r [rows]VecVirtual
	for i := range r {
		if i > 0 {
			ADDQ(stride, at)
		}
		r[i] = YMM()
		VMOVDQU(Mem{Base: at}, r[i])
	}
	// Pairs of rows, then fours, then both halves of vectors.
	two := func(op func(...Op), a, b VecVirtual) VecVirtual {
		t := YMM()
		op(b, a, t)
		return t
	}
	var t, u [rows]VecVirtual
	for i := 0; i < rows; i += 2 {
		t[i], t[i+1] = two(VPUNPCKLDQ, r[i], r[i+1]), two(VPUNPCKHDQ, r[i], r[i+1])
	}
	for i := 0; i < rows; i += 4 {
		for j := range 2 {
			u[i+2*j], u[i+2*j+1] = two(VPUNPCKLQDQ, t[i+j], t[i+j+2]), two(VPUNPCKHQDQ, t[i+j], t[i+j+2])
		}
	}
	for i := range 4 {
		y := YMM()
		VPERM2I128(Imm(0x20), u[i+4], u[i], y)
		VMOVDQU(y, to.Offset(32*i))
		VPERM2I128(Imm(0x31), u[i+4], u[i], y)
		VMOVDQU(y, to.Offset(32*(i+4)))
	}
}
