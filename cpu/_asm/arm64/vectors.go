package main

import "fmt"

// The float operations follow the written order, whose lanes these are: each
// product is rounded, so nothing is fused. Loops take 16 floats, four vectors,
// unless they say otherwise.

// keep sets the lanes of list to +0 that are smaller than bound. A NaN is kept.
func (a *asm) keep(list []v, bound v, temps []v) {
	for i, x := range list {
		a.facgt(temps[i], bound, x)
	}
	for i, x := range list {
		a.bic(x, x, temps[i])
	}
}

// each applies f to every register of lists.
func each(f func(d, n, m v), d, n, m []v) {
	for i := range d {
		f(d[i], n[i], m[i])
	}
}

// with is each with the same last operand.
func with(f func(d, n, m v), d, n []v, m v) {
	for i := range d {
		f(d[i], n[i], m)
	}
}

func each2(f func(d, n v), d, n []v) {
	for i := range d {
		f(d[i], n[i])
	}
}

// float sets all lanes to the float32 with these bits.
func (a *asm) float(d v, bits uint32, temp r) {
	a.op("MOVW $0x%08x, %v", bits, temp)
	a.op("VDUP %v, %v.S4", temp, d)
}

// power returns the bits of 2^-n.
func power(n uint32) uint32 { return (127 - n) << 23 }

// vectorLoop repeats body, which takes step elements, n/step times, n > 0 or
// not.
func (a *asm) vectorLoop(n r, step int, body func()) {
	a.op("CBZ %v, done", n)
	a.label("loop")
	body()
	a.op("SUBS $%d, %v", step, n)
	a.op("BNE loop")
	a.label("done")
}

// squares goes over x once for every 16 lanes, so that their sums stay in
// registers.
func squares(a *asm) {
	const lanes, x, n, group, at, left = r(0), r(1), r(2), r(3), r(4), r(5)
	a.function("squaresNEON", "(lanes *[256]float32, x []float32)", 32)
	a.argument("lanes", 0, lanes)
	a.argument("x_base", 8, x)
	a.argument("x_len", 16, n)
	sums, values, temps, bound := vs(0, 4), vs(4, 4), vs(8, 4), v(16)
	a.float(bound, power(50), at)
	a.op("MOVD $16, %v", group)
	a.label("group")
	a.zero(sums...)
	a.op("MOVD %v, %v", x, at)
	a.op("SUBS $0, %v, %v", n, left)
	a.op("BLE store")
	a.label("loop")
	a.loadAll(values, at, 0)
	a.addImmediate(at, 1024)
	a.keep(values, bound, temps)
	each(a.fmul, values, values, values)
	each(a.fadd, sums, sums, values)
	a.op("SUBS $256, %v", left)
	a.op("BGT loop")
	a.label("store")
	a.storeAll(sums, lanes, 0)
	a.addImmediate(lanes, 64)
	a.addImmediate(x, 64)
	a.op("SUB $16, %v", n)
	a.next(group, "group")
	a.op("RET")
}

func normScale(a *asm) {
	const y, x, g, n, temp = r(0), r(1), r(2), r(3), r(4)
	a.function("normScaleNEON", "(y, x, g []float32, r float32)", 76)
	a.argument("y_base", 0, y)
	a.argument("x_base", 24, x)
	a.argument("x_len", 32, n)
	a.argument("g_base", 48, g)
	a.floatArgument("r", 72, 17)
	values, gains, temps, bound := vs(0, 4), vs(4, 4), vs(8, 4), v(16)
	a.float(bound, power(50), temp)
	a.vectorLoop(n, 16, func() {
		a.loadAll(values, x, 0)
		a.loadAll(gains, g, 0)
		a.addImmediate(x, 64)
		a.addImmediate(g, 64)
		a.keep(values, bound, temps)
		with(a.fmul, values, values, 17)
		each(a.fmul, values, values, gains)
		a.keep(values, bound, temps)
		a.storeAll(values, y, 0)
		a.addImmediate(y, 64)
	})
	a.op("RET")
}

func absMax(a *asm) {
	const x, n = r(0), r(1)
	a.function("absMaxNEON", "(x []float32) uint32", 28)
	a.argument("x_base", 0, x)
	a.argument("x_len", 8, n)
	largest, values := vs(0, 4), vs(4, 4)
	a.zero(largest...)
	a.vectorLoop(n, 16, func() {
		a.loadAll(values, x, 0)
		a.addImmediate(x, 64)
		each2(a.fabs, values, values)
		each(a.umax, largest, largest, values)
	})
	a.umax(0, 0, 1)
	a.umax(2, 2, 3)
	a.umax(0, 0, 2)
	a.umaxv(0, 0)
	a.op("FMOVS F0, ret+24(FP)")
	a.op("RET")
}

// quantize: (n+128)>>8 is what is left of n above its lowest digit. 32 floats.
func quantize(a *asm, planes int) {
	const q, x, n, temp = r(0), r(1), r(2), r(3)
	a.function(fmt.Sprintf("quantizeNEON%d", planes), "(q []int8, x []float32, up float32) int64", 64)
	a.argument("q_base", 0, q)
	a.argument("x_base", 24, x)
	a.argument("x_len", 32, n)
	a.floatArgument("up", 48, 16)
	half, sum := v(17), v(18)
	a.op("MOVD $128, %v", temp)
	a.op("VDUP %v, %v.S4", temp, half)
	a.zero(sum)
	a.vectorLoop(n, 32, func() {
		for part := range 2 {
			values, temps := vs(v(8*part), 4), vs(v(8*part+4), 4)
			a.loadAll(values, x, 64*part)
			with(a.fmul, values, values, 16)
			each2(a.fcvtns, values, values)
			// Four of 24 bits.
			a.add(temps[0], values[0], values[1])
			a.add(temps[1], values[2], values[3])
			a.add(temps[0], temps[0], temps[1])
			a.sadalpLong(sum, temps[0])
			for p := range planes {
				if p > 0 {
					with(a.add, values, values, half)
					each2(func(d, n v) { a.sshr(d, n, 8) }, values, values)
				}
				a.uzp1("H8", temps[0], values[0], values[1])
				a.uzp1("H8", temps[1], values[2], values[3])
				a.uzp1("B16", temps[0], temps[0], temps[1])
				a.store(temps[0], q, 32*p+16*part)
			}
		}
		a.addImmediate(x, 128)
		a.addImmediate(q, 32*planes)
	})
	a.op("VMOV %v.D[0], R4", sum)
	a.op("VMOV %v.D[1], R5", sum)
	a.op("ADD R4, R5")
	a.op("MOVD R5, ret+56(FP)")
	a.op("RET")
}

func addVectors(a *asm) {
	const x, y, n = r(0), r(1), r(2)
	a.function("addNEON", "(x, y []float32)", 48)
	a.argument("x_base", 0, x)
	a.argument("y_base", 24, y)
	a.argument("y_len", 32, n)
	a.vectorLoop(n, 8, func() {
		a.loadAll(vs(0, 2), x, 0)
		a.loadAll(vs(2, 2), y, 0)
		each(a.fadd, vs(0, 2), vs(0, 2), vs(2, 2))
		a.storeAll(vs(0, 2), x, 0)
		a.addImmediate(x, 32)
		a.addImmediate(y, 32)
	})
	a.op("RET")
}

func toHalf(a *asm) {
	const d, x, n = r(0), r(1), r(2)
	a.function("toHalfNEON", "(dst []uint16, src []float32)", 48)
	a.argument("dst_base", 0, d)
	a.argument("src_base", 24, x)
	a.argument("src_len", 32, n)
	a.vectorLoop(n, 16, func() {
		a.loadAll(vs(0, 4), x, 0)
		for _, i := range []v{0, 2} {
			a.fcvtn(4+i, i)
			a.fcvtn2(4+i, i+1)
		}
		a.storePair(4, 6, d, 0)
		a.addImmediate(x, 64)
		a.addImmediate(d, 32)
	})
	a.op("RET")
}

func fromHalf(a *asm) {
	const d, x, n = r(0), r(1), r(2)
	a.function("fromHalfNEON", "(dst []float32, src []uint16)", 48)
	a.argument("dst_base", 0, d)
	a.argument("src_base", 24, x)
	a.argument("src_len", 32, n)
	a.vectorLoop(n, 16, func() {
		a.loadPair(0, 1, x, 0)
		for i := range v(2) {
			a.fcvtl(4+2*i, i)
			a.fcvtl2(5+2*i, i)
		}
		a.storeAll(vs(4, 4), d, 0)
		a.addImmediate(x, 32)
		a.addImmediate(d, 64)
	})
	a.op("RET")
}

func fromInt8(a *asm) {
	const d, x, n = r(0), r(1), r(2)
	a.function("fromInt8NEON", "(dst []float32, src []int8, scale float32)", 52)
	a.argument("dst_base", 0, d)
	a.argument("src_base", 24, x)
	a.argument("src_len", 32, n)
	a.floatArgument("scale", 48, 16)
	values := vs(4, 4)
	a.vectorLoop(n, 16, func() {
		a.load(0, x, 0)
		a.sxtlBytes(1, 0)
		a.sxtl2Bytes(2, 0)
		for i := range v(2) {
			a.sxtlHalfs(4+2*i, 1+i)
			a.sxtl2Halfs(5+2*i, 1+i)
		}
		each2(a.scvtf, values, values)
		with(a.fmul, values, values, 16)
		a.storeAll(values, d, 0)
		a.addImmediate(x, 16)
		a.addImmediate(d, 64)
	})
	a.op("RET")
}

// rotate takes 4 pairs.
func rotate(a *asm) {
	const x, y, cos, sin, n, temp = r(0), r(1), r(2), r(3), r(4), r(5)
	a.function("rotateNEON", "(a, b, cos, sin []float32)", 96)
	a.argument("a_base", 0, x)
	a.argument("a_len", 8, n)
	a.argument("b_base", 24, y)
	a.argument("cos_base", 48, cos)
	a.argument("sin_base", 72, sin)
	bound := v(16)
	a.float(bound, power(50), temp)
	a.vectorLoop(n, 4, func() {
		for i, p := range []r{x, y, cos, sin} {
			a.load(v(i), p, 0)
		}
		a.fmul(4, 0, 2)
		a.fmul(5, 1, 3)
		a.fmul(6, 1, 2)
		a.fmul(7, 0, 3)
		a.fsub(4, 4, 5)
		a.fadd(5, 6, 7)
		a.keep(vs(4, 2), bound, vs(6, 2))
		a.store(4, x, 0)
		a.store(5, y, 0)
		for _, p := range []r{x, y, cos, sin} {
			a.addImmediate(p, 16)
		}
	})
	a.op("RET")
}

// addScaled sets o = o + x*w, scale o = o*w.
func addScaled(a *asm) {
	const o, x, n = r(0), r(1), r(2)
	a.function("addScaledNEON", "(o, x []float32, w float32)", 52)
	a.argument("o_base", 0, o)
	a.argument("x_base", 24, x)
	a.argument("x_len", 32, n)
	a.floatArgument("w", 48, 16)
	a.vectorLoop(n, 16, func() {
		a.loadAll(vs(0, 4), x, 0)
		a.loadAll(vs(4, 4), o, 0)
		with(a.fmul, vs(0, 4), vs(0, 4), 16)
		each(a.fadd, vs(4, 4), vs(4, 4), vs(0, 4))
		a.storeAll(vs(4, 4), o, 0)
		a.addImmediate(x, 64)
		a.addImmediate(o, 64)
	})
	a.op("RET")

	a.function("scaleNEON", "(o []float32, w float32)", 28)
	a.argument("o_base", 0, o)
	a.argument("o_len", 8, n)
	a.floatArgument("w", 24, 16)
	a.vectorLoop(n, 16, func() {
		a.loadAll(vs(0, 4), o, 0)
		with(a.fmul, vs(0, 4), vs(0, 4), 16)
		a.storeAll(vs(0, 4), o, 0)
		a.addImmediate(o, 64)
	})
	a.op("RET")
}
