package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// floats are the functions of type vectors that gain from 512 bits: those that
// compute, not those that copy. No fused operation is used: NUMERICS.md rounds
// every product.
func floats() {
	squares()
	normScale()
	for planes := 1; planes <= 3; planes++ {
		quantize(planes)
	}
	siluMul()
	scores()
	mix()
	softmax()
	for _, heads := range []int{1, 2, 4} {
		scoresHalf(heads)
		mixHalf(heads)
	}
}

// lanes is the number of float32 in a vector.
const lanes = 16

// Comparisons, without a signal for NaN.
const (
	less    = U8(0x11)
	notLess = U8(0x15) // or unordered, so that NaN is kept
)

func base(param string) Register   { return Load(Param(param).Base(), GP64()) }
func length(param string) Register { return Load(Param(param).Len(), GP64()) }

// spreadFloat returns a float parameter in all lanes.
func spreadFloat(name string) VecVirtual {
	z := ZMM()
	VBROADCASTSS(param(name), z)
	return z
}

// number returns the address of a float constant.
func number(name string, f float32) Mem { return words(name, math.Float32bits(f)) }

// pow2 returns the address of 2^-k.
func pow2(k int) Mem { return number(fmt.Sprintf("twoToMinus%d", k), float32(math.Ldexp(1, -k))) }

func signless() Mem { return words("signless", 1<<31-1) }

// keep clears the lanes of v below 2^-k in size.
func keep(k int, v VecVirtual) {
	t, keep := ZMM(), K()
	VPANDD_BCST(signless(), v, t)
	VCMPPS_BCST(notLess, pow2(k), t, keep)
	VMOVAPS_Z(v, keep, v)
}

// squares has all 256 lanes in registers.
func squares() {
	begin("squares", "func(lanes *[256]float32, x []float32)")
	out := Load(Param("lanes"), GP64())
	x, n := base("x"), length("x")
	sum := zeros(256 / lanes)
	addSquare := func(i int) {
		v, large := load(at(x, i)), K()
		VPANDD_BCST(signless(), v, v) // squares have no sign
		VCMPPS_BCST(notLess, pow2(50), v, large)
		VMULPS_Z(v, v, large, v)
		VADDPS(v, sum[i], sum[i])
	}
	while("row", n, 256, func() {
		for i := range sum {
			addSquare(i)
		}
		advance(256*4, x)
	})
	for i := range len(sum) - 1 {
		CMPQ(n, U32((i+1)*lanes))
		JLT(LabelRef("store"))
		addSquare(i)
	}
	Label("store")
	for i, s := range sum {
		VMOVUPS(s, at(out, i))
	}
	end()
}

func normScale() {
	begin("normScale", "func(y, x, g []float32, r float32)")
	y, x, g, n := base("y"), base("x"), base("g"), length("x")
	r := spreadFloat("r")
	for _, step := range []int{64, 16} {
		while(fmt.Sprintf("by%d", step), n, step, func() {
			for i := range step / lanes {
				v := load(at(x, i))
				keep(50, v)
				VMULPS(r, v, v)
				VMULPS(at(g, i), v, v)
				keep(50, v)
				VMOVUPS(v, at(y, i))
			}
			advance(4*step, y, x, g)
		})
	}
	end()
}

// quantize takes blocks of 32. With 128 added to each digit, that is 0x808080
// to the integer, digits are plain bytes: no borrow passes from one to the
// next. So what is left is to gather the bytes of equal place.
func quantize(planes int) {
	begin(fmt.Sprintf("quantize%d", planes), "func(q []int8, x []float32, up float32) int64")
	q, x, n := base("q"), base("x"), length("x")
	up := spreadFloat("up")
	bias := spread(words("digitBias", 0x808080))
	flip := spread(words("signBits", 0x80808080))
	// Bytes of place 0 of four integers, then those of place 1, ...
	gather := ZMM()
	VBROADCASTI32X4(words("gatherPlaces", 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703), gather)
	// Which dwords of two vectors are of places 0 and 1, then 2 (and 3).
	var order [2]Mem
	for half := range order {
		var w []uint32
		for i := range uint32(16) {
			w = append(w, uint32(half*2)+i/8+i%8*4)
		}
		order[half] = words(fmt.Sprintf("placeOrder%d", half), w...)
	}
	total := zeros(1)[0] // 8 int64

	while("block", n, 32, func() {
		v := vectors(2)
		for i := range v {
			VMULPS(at(x, i), up, v[i])
			VCVTPS2DQ(v[i], v[i])
		}
		Comment("two integers below 2^23 in size fit 32 bits")
		s, t := ZMM(), ZMM()
		VPADDD(v[0], v[1], s)
		VEXTRACTI64X4(Imm(1), s, t.AsY())
		VPMOVSXDQ(s.AsY(), s)
		VPMOVSXDQ(t.AsY(), t)
		VPADDQ(s, total, total)
		VPADDQ(t, total, total)

		for i := range v {
			VPADDD(bias, v[i], v[i])
			VPSHUFB(gather, v[i], v[i])
		}
		for p := 0; p < planes; p += 2 {
			d := load(order[p/2])
			VPERMI2D(v[1], v[0], d)
			VPXORD(flip, d, d)
			to := Mem{Base: q, Disp: p * blockCols}
			if planes-p > 1 {
				VMOVDQU32(d, to)
			} else {
				VMOVDQU32(d.AsY(), to)
			}
		}
		advance(32*4, x)
		advance(32*planes, q)
	})
	sum := GP64()
	foldQ(total)
	VMOVQ(total.AsX(), sum)
	Store(sum, ReturnIndex(0))
	end()
}
