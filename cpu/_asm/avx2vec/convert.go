package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func toHalf() {
	begin("toHalf", "func(dst []uint16, src []float32)")
	dst, src, n := base("dst"), base("src"), length("src")
	while("by16", n, 16, func() {
		for i := range 2 {
			v := YMM()
			VMOVUPS(at(src, i), v)
			VCVTPS2PH(Imm(0), v, Mem{Base: dst, Disp: i * vec / 2}) // 0: nearest even
		}
		advance(16*4, src)
		advance(16*2, dst)
	})
	end()
}

func fromHalf() {
	begin("fromHalf", "func(dst []float32, src []uint16)")
	dst, src, n := base("dst"), base("src"), length("src")
	while("by16", n, 16, func() {
		for i := range 2 {
			v := YMM()
			VCVTPH2PS(Mem{Base: src, Disp: i * vec / 2}, v)
			VMOVUPS(v, at(dst, i))
		}
		advance(16*2, src)
		advance(16*4, dst)
	})
	end()
}

func fromInt8() {
	begin("fromInt8", "func(dst []float32, src []int8, scale float32)")
	dst, src, n := base("dst"), base("src"), length("src")
	scale := spread("scale")
	while("by16", n, 16, func() {
		for i := range 2 {
			v := YMM()
			VPMOVSXBD(Mem{Base: src, Disp: i * vec / 4}, v)
			VCVTDQ2PS(v, v)
			VMULPS(scale, v, v)
			VMOVUPS(v, at(dst, i))
		}
		advance(16, src)
		advance(16*4, dst)
	})
	end()
}

// quantize takes blocks of 32. With 128 added to each digit, that is 0x808080
// to the integer, digits are plain bytes: no borrow passes from one to the
// next. So what is left is to gather the bytes of equal place.
func quantize(planes int) {
	TEXT(fmt.Sprintf("quantize%dAVX2", planes), NOSPLIT, "func(q []int8, x []float32, up float32) int64")
	Doc(fmt.Sprintf("quantize%dAVX2 is quantize[%d] of type vectors; its reference is quantizeGeneric.", planes, planes))
	q, x, n := base("q"), base("x"), length("x")
	up := spread("up")
	bias := register(words("digitBias", 0x808080))
	flip := register(words("digitFlip", 0x80808080))
	// Bytes of place 0 of four integers, then those of place 1, ...
	gather := register(words("gatherPlaces", 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703))
	order := register(words("laneOrder", 0, 4, 1, 5, 2, 6, 3, 7))
	one := register(words("intOne", 1))
	total := zero() // 4 int64

	while("block", n, 32, func() {
		var v [4]VecVirtual
		for i := range v {
			v[i] = YMM()
			VMULPS(at(x, i), up, v[i])
			VCVTPS2DQ(v[i], v[i])
		}
		Comment("four integers below 2^23 in size fit 32 bits; VPMULDQ widens")
		s, t := YMM(), YMM()
		VPADDD(v[0], v[1], s)
		VPADDD(v[2], v[3], t)
		VPADDD(s, t, s)
		VPSRLQ(Imm(32), s, t)
		VPMULDQ(one, s, s)
		VPMULDQ(one, t, t)
		VPADDQ(s, total, total)
		VPADDQ(t, total, total)

		for i := range v {
			VPADDD(bias, v[i], v[i])
			VPSHUFB(gather, v[i], v[i])
		}
		Comment("a 4x4 transposition of 32-bit words in each half")
		for p := range planes {
			if p%2 == 0 {
				unpack := VPUNPCKLDQ
				if p == 2 {
					unpack = VPUNPCKHDQ
				}
				s, t = YMM(), YMM()
				unpack(v[1], v[0], s)
				unpack(v[3], v[2], t)
			}
			d := YMM()
			if p%2 == 0 {
				VPUNPCKLQDQ(t, s, d)
			} else {
				VPUNPCKHQDQ(t, s, d)
			}
			VPERMD(d, order, d)
			VPXOR(flip, d, d)
			VMOVDQU(d, at(q, p))
		}
		advance(32*4, x)
		advance(32*planes, q)
	})

	half, t := XMM(), XMM()
	VEXTRACTI128(Imm(1), total, half)
	VPADDQ(total.AsX(), half, half)
	VPSHUFD(Imm(0x4e), half, t)
	VPADDQ(t, half, half)
	sum := GP64()
	VMOVQ(half, sum)
	Store(sum, ReturnIndex(0))
	end()
}
