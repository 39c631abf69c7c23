package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

var (
	half = float64At("half", 0.5)
	base = float64At("base", 256) // of the digits
)

func float64At(name string, v float64) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	DATA(0, U64(math.Float64bits(v))) // the assembler takes F64(256) for an integer
	return m
}

// finish works on eight rows at a time, four a register, in float64 as long as numbers are
// integers: sums of up to maxCols products with P digits are below 2^46, and
// all steps are exact. The conversion to float32 is the first rounding, as that
// of an int64 would be; then every product and sum rounds: no fused operation.
func finish() {
	TEXT("finishAVX2", NOSPLIT, "func(y *float32, sums *int32, lo, hi *float32, planes, rows int, xsum int64, before, after float32)")
	y := Load(Param("y"), GP64())
	sums := Load(Param("sums"), GP64())
	lo := Load(Param("lo"), GP64())
	hi := Load(Param("hi"), GP64())
	planes := Load(Param("planes"), GP64())
	rows := Load(Param("rows"), GP64())
	xsum := YMM()
	xsum64 := Load(Param("xsum"), GP64())
	VXORPD(xsum, xsum, xsum)
	VCVTSI2SDQ(xsum64, xsum.AsX(), xsum.AsX())
	VBROADCASTSD(xsum.AsX(), xsum)
	half64, base64 := YMM(), YMM()
	VBROADCASTSD(half, half64)
	VBROADCASTSD(base, base64)
	before, after := XMM(), XMM()
	VBROADCASTSS(param("before"), before)
	VBROADCASTSS(param("after"), after)

	stride, step := GP64(), GP64() // from digit to digit, from t to q
	MOVQ(rows, stride)
	SHLQ(Imm(2), stride)
	MOVQ(stride, step)
	IMULQ(planes, step)

	Label("eight")
	Comment("From the highest digit down.")
	at, left := GP64(), GP64()
	LEAQ(Mem{Base: sums, Index: step, Scale: 1}, at)
	MOVQ(planes, left)
	t, q := zeros(2), zeros(2)
	Label("digit")
	SUBQ(stride, at)
	for g := range 2 {
		for i, sum := range []VecVirtual{t[g], q[g]} {
			digit, from := YMM(), Mem{Base: at, Disp: g * 16}
			if i == 1 {
				from.Index, from.Scale = step, 1
			}
			VCVTDQ2PD(from, digit)
			VMULPD(base64, sum, sum)
			VADDPD(digit, sum, sum)
		}
	}
	DECQ(left)
	JNZ(LabelRef("digit"))

	for g := range 2 {
		l, h := YMM(), YMM()
		VADDPD(q[g], t[g], l)
		VMULPD(half64, l, l)
		VSUBPD(xsum, l, l)
		VSUBPD(q[g], t[g], h)
		VMULPD(half64, h, h)
		var part [2]VecVirtual
		for i, v := range []VecVirtual{l, h} {
			part[i] = XMM()
			VCVTPD2PSY(v, part[i])
			scale := XMM()
			VMULPS(Mem{Base: []Register{lo, hi}[i], Disp: g * 16}, before, scale)
			VMULPS(scale, part[i], part[i])
		}
		VADDPS(part[1], part[0], part[0])
		VMULPS(after, part[0], part[0])
		VMOVUPS(part[0], Mem{Base: y, Disp: g * 16})
	}
	for _, p := range []Register{y, sums, lo, hi} {
		ADDQ(Imm(8*4), p)
	}
	SUBQ(Imm(8), rows)
	JNZ(LabelRef("eight"))
	VZEROUPPER()
	RET()
}

// param returns where the parameter of that name lies.
func param(name string) Mem {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}
