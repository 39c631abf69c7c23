// Command arrange generates the AVX2 forms of arrangeCodes and arrangeBits in
// package cpu, where the arrangements are described:
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
	codes()
	bits()
	Generate()
}

// arranging is a function whose loop over groups of blocks runs once the words
// of 8 rows are in memory, [planes][blocks][rows].
type arranging struct {
	dst         Register
	part, three Register // bytes from one part to the next, and for all three
	words       Mem
	bad         VecVirtual
}

// arrange writes a function; block writes the code for block b of a group.
func arrange(name string, block func(a *arranging, b int)) {
	TEXT(name, 0, "func(dst, bp, bn, br *byte, stride, groups, part int) (bad uint32)")
	a := &arranging{dst: Load(Param("dst"), GP64()), bad: YMM(), words: AllocLocal(3 * group * 32)}
	planes := [3]Register{Load(Param("bp"), GP64()), Load(Param("bn"), GP64()), Load(Param("br"), GP64())}
	stride := Load(Param("stride"), GP64())
	groups := Load(Param("groups"), GP64())
	a.part = Load(Param("part"), GP64())
	a.three = GP64()
	LEAQ(Mem{Base: a.part, Index: a.part, Scale: 2}, a.three)
	VPXOR(a.bad, a.bad, a.bad)

	Label("group")
	for i, p := range planes {
		transpose(p, stride, a.words.Offset(i*group*32))
		ADDQ(Imm(32), p)
	}
	for b := range group {
		block(a, b)
	}
	DECQ(groups)
	JNZ(LabelRef("group"))

	all, t := XMM(), XMM()
	VEXTRACTI128(Imm(1), a.bad, all)
	VPOR(a.bad.AsX(), all, all)
	VPSHUFD(Imm(0x4e), all, t)
	VPOR(t, all, all)
	VPSHUFD(Imm(0xb1), all, t)
	VPOR(t, all, all)
	r := GP32()
	VMOVD(all, r)
	Store(r, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// load returns bp, br and bp|bn of block b, a dword a row, and notes what
// contradicts itself.
func (a *arranging) load(b int) (p, h, nz VecVirtual) {
	word := func(plane int) Mem { return a.words.Offset((plane*group + b) * 32) }
	p, h, nz = YMM(), YMM(), YMM()
	t := YMM()
	VMOVDQU(word(0), p)
	VMOVDQU(word(2), h)
	VPAND(word(1), p, t)
	VPOR(t, a.bad, a.bad)
	VPOR(word(1), p, nz)
	VPANDN(h, nz, t)
	VPOR(t, a.bad, a.bad)
	return p, h, nz
}

func codes() {
	arrange("arrangeCodesAVX2", func(a *arranging, b int) {
		p, h, nz := a.load(b)
		z := spread(h, 0)
		VPADDB(z, z, z)
		t := spread(h, 1)
		VPOR(t, z, z)
		VMOVDQU(z, Mem{Base: a.dst, Index: a.part, Scale: 2})
		for half, to := range []Mem{{Base: a.dst}, {Base: a.dst, Index: a.part, Scale: 1}} {
			codes, s := spread(nz, half), spread(p, half)
			VPXOR(zero, codes, codes)
			VPADDB(s, s, s)
			VPOR(s, codes, codes)
			VMOVDQU(codes, to)
		}
		ADDQ(a.three, a.dst)
	})
}

// bits turns 8 rows of 4 bytes into 4 times 8 bytes, for each part.
func bits() {
	arrange("arrangeBitsAVX2", func(a *arranging, b int) {
		p, q, n := a.load(b)
		VPXOR(p, q, q)
		VPXOR(allOnes, n, n)
		order := YMM()
		VMOVDQU(byRow, order)
		var half [2][3]VecVirtual
		for i, v := range []VecVirtual{p, q, n} {
			VPSHUFB(byByte, v, v)
			VPERMD(v, order, v)
			half[0][i], half[1][i] = v.AsX().(VecVirtual), XMM()
			VEXTRACTI128(Imm(1), v, half[1][i])
		}
		for g := range 4 {
			for i, to := range []Mem{{Base: a.dst}, {Base: a.dst, Index: a.part, Scale: 1}, {Base: a.dst, Index: a.part, Scale: 2}} {
				if v := half[g/2][i]; g%2 == 0 {
					VMOVQ(v, to)
				} else {
					VMOVHPS(v, to)
				}
			}
			ADDQ(a.three, a.dst)
		}
	})
}

// Constants, a vector long.
var (
	zero    = constant("zero", func(int) byte { return 0x55 }) // nz̄ of four columns of weight 0
	pick    [4]Mem                                             // shuffles that put byte i of a dword into all four
	columns [2]Mem                                             // bit k of byte k, in the lower and the upper half of a byte
	place   [4]Mem                                             // bit 2s

	allOnes = constant("allOnes", func(int) byte { return 0xff })
	byByte  = constant("byByte", func(at int) byte { return byte(at%4*4 + at%16/4) }) // in a lane, byte i of four dwords side by side
	byRow   = constant("byRow", func(at int) byte {
		if at%4 > 0 {
			return 0 // dwords
		}
		return []byte{0, 4, 1, 5, 2, 6, 3, 7}[at/4]
	}) // then of eight
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
