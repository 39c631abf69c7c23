package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// finish works on eight rows at a time, in float64 as long as numbers are
// integers: sums of up to maxCols products with P digits are below 2^46, and
// all steps are exact. The conversion to float32 is the first rounding, as that
// of an int64 would be; then every product and sum rounds: no fused operation.
func finish() {
	begin("finish", "func(y *float32, sums *int32, lo, hi *float32, planes int, xsum int64, before, after float32)")
	y := Load(Param("y"), GP64())
	sums := Load(Param("sums"), GP64())
	lo := Load(Param("lo"), GP64())
	hi := Load(Param("hi"), GP64())
	planes := Load(Param("planes"), GP64())
	xsum := ZMM()
	xsum64 := Load(Param("xsum"), GP64())
	VPBROADCASTQ(xsum64, xsum)
	VCVTQQ2PD(xsum, xsum)
	before, after := YMM(), YMM()
	VBROADCASTSS(param("before"), before)
	VBROADCASTSS(param("after"), after)

	Comment("From the highest digit down; q lies planes vectors behind t.")
	step, from := GP64(), GP64()
	MOVQ(planes, step)
	SHLQ(Imm(6), step)
	LEAQ(Mem{Base: sums, Index: step, Scale: 1}, from)
	t, q := zeros(2), zeros(2)
	Label("digit")
	SUBQ(Imm(vec), from)
	for g := range 2 {
		for i, sum := range []VecVirtual{t[g], q[g]} {
			digit, m := ZMM(), Mem{Base: from, Disp: g * vec / 2}
			if i == 1 {
				m.Index, m.Scale = step, 1
			}
			VCVTDQ2PD(m, digit)
			VMULPD_BCST(float64At("digitBase", 256), sum, sum)
			VADDPD(digit, sum, sum)
		}
	}
	DECQ(planes)
	JNZ(LabelRef("digit"))

	for g := range 2 {
		l, h := ZMM(), ZMM()
		VADDPD(q[g], t[g], l)
		VMULPD_BCST(float64At("half", 0.5), l, l)
		VSUBPD(xsum, l, l)
		VSUBPD(q[g], t[g], h)
		VMULPD_BCST(float64At("half", 0.5), h, h)
		var part [2]VecVirtual
		for i, v := range []VecVirtual{l, h} {
			part[i] = YMM()
			VCVTPD2PS(v, part[i])
			scale := YMM()
			VMULPS(Mem{Base: []Register{lo, hi}[i], Disp: g * vec / 2}, before, scale)
			VMULPS(scale, part[i], part[i])
		}
		VADDPS(part[1], part[0], part[0])
		VMULPS(after, part[0], part[0])
		VMOVUPS(part[0], Mem{Base: y, Disp: g * vec / 2})
	}
	end()
}

// float64At returns the address of a constant. It is written as bits, since the
// assembler takes F64(256) for an integer.
func float64At(name string, v float64) Mem {
	b := math.Float64bits(v)
	return words(name, uint32(b), uint32(b>>32))
}
