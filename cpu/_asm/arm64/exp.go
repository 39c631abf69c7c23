package main

import "fmt"

// constants are what exp and silu need in all lanes, more than fits in
// registers beside four vectors: they are loaded where they are used.
var constants = []struct {
	name string
	bits uint32
}{
	{"log2e", 0x3fb8aa3b}, {"ln2Hi", 0x3f318000}, {"ln2Lo", 0xb95e8083},
	{"c0", 0x39506967}, {"c1", 0x3ab743ce}, {"c2", 0x3c088908}, {"c3", 0x3d2aa9c1}, {"c4", 0x3e2aaaaa}, {"c5", 0x3f000000},
	{"1", power(0)}, {"2^-30", power(30)}, {"2^-50", power(50)}, {"-30", 0xc1f00000}, {"40", 0x42200000},
	{"recipSeed", 0x7ef311c7},
}

// table is the register that holds the address of the constants.
const table = r(20)

func writeConstants(a *asm) {
	a.out.WriteByte('\n')
	for i, c := range constants {
		for half := range 2 {
			fmt.Fprintf(&a.out, "DATA constants<>+%d(SB)/8, $0x%08x%08x // %s\n", 16*i+8*half, c.bits, c.bits, c.name)
		}
	}
	fmt.Fprintf(&a.out, "GLOBL constants<>(SB), RODATA|NOPTR, $%d\n", 16*len(constants))
}

// constant loads one into V28 to V31 in turn.
func (a *asm) constant(name string) v {
	for i, c := range constants {
		if c.name == name {
			d := v(28 + i%4)
			a.load(d, table, 16*i)
			return d
		}
	}
	panic("no constant " + name)
}

// exp sets p to exp(x). n, t and rest are overwritten.
func (a *asm) exp(p, x, n, t, rest []v) {
	a.comment("exp")
	with(a.fmul, t, x, a.constant("log2e"))
	each2(a.fcvtns, n, t)
	each2(a.scvtf, t, n)
	with(a.fmul, rest, t, a.constant("ln2Hi"))
	each(a.fsub, rest, x, rest)
	with(a.fmul, t, t, a.constant("ln2Lo"))
	each(a.fsub, rest, rest, t)
	with(a.fmul, p, rest, a.constant("c0"))
	with(a.fadd, p, p, a.constant("c1"))
	for _, c := range []string{"c2", "c3", "c4", "c5"} {
		each(a.fmul, p, p, rest)
		with(a.fadd, p, p, a.constant(c))
	}
	each(a.fmul, t, rest, rest)
	each(a.fmul, p, p, t)
	each(a.fadd, p, p, rest)
	one := a.constant("1")
	with(a.fadd, p, p, one)
	each2(func(d, n v) { a.shl(d, n, 23) }, n, n)
	with(a.add, n, n, one)
	each(a.fmul, p, p, n)

	tiny := a.constant("2^-30")
	for i := range p {
		a.facgt(t[i], tiny, x[i])
		a.bit(p[i], one, t[i])
	}
	low := a.constant("-30")
	for i := range p {
		a.fcmgt(t[i], low, x[i])
		a.bic(p[i], p[i], t[i])
	}
}

// softmax fills what is behind n with the first score, which changes neither the
// largest one nor whether all are finite.
func softmax(a *asm) {
	const s, n, at, left, first, bits = r(0), r(1), r(2), r(3), r(4), r(5)
	a.function("softmaxNEON", "(s *[64]float32, n int) (m, l float32, finite bool)", 25)
	a.argument("s", 0, s)
	a.argument("n", 8, n)
	behind := func(name string, value any) {
		a.op("ADD %v<<2, %v, %v", n, s, at)
		a.op("SUB $64, %v, %v", n, left)
		a.label(name)
		a.op("CBZ %v, %sDone", left, name)
		a.op("MOVW.P %v, 4(%v)", value, at)
		a.op("ADD $1, %v", left)
		a.op("B %s", name)
		a.label(name + "Done")
	}
	a.op("MOVW (%v), %v", s, first)
	behind("fill", first)

	all, largest, size, m := vs(0, 16), v(16), v(20), v(24)
	a.loadAll(all, s, 0)
	a.fmax(largest, 0, 1)
	a.fabs(size, 0)
	for _, x := range all[2:] {
		a.fmax(largest, largest, x)
	}
	for _, x := range all[1:] {
		a.fabs(21, x)
		a.umax(size, size, 21)
	}
	a.fmaxv(m, largest)
	a.umaxv(size, size)
	a.op("FMOVS F%d, m+16(FP)", m)
	a.op("FMOVS F%d, %v", size, bits)
	a.op("MOVW $0x7f800000, %v", first)
	a.op("CMPW %v, %v", first, bits)
	a.op("CSET LT, %v", left)
	a.op("MOVB %v, finite+24(FP)", left)
	a.op("BGE end")

	a.dup(m, m, 0)
	a.op("MOVD $constants<>(SB), %v", table)
	a.op("MOVD %v, %v", s, at)
	a.op("MOVD $64, %v", left)
	x, result := vs(0, 4), vs(4, 4)
	a.vectorLoop(left, 16, func() {
		a.loadAll(x, at, 0)
		with(a.fsub, x, x, m)
		a.exp(result, x, vs(8, 4), vs(12, 4), vs(16, 4))
		a.storeAll(result, at, 0)
		a.addImmediate(at, 64)
	})
	behind("clear", "ZR")
	a.loadAll(all, s, 0)
	a.foldTo4(all)
	a.foldFours([4]v{0, 0, 0, 0}, vs(16, 4))
	a.op("FMOVS F0, l+20(FP)")
	a.label("end")
	a.op("RET")
}

func siluMul(a *asm) {
	const y, g, u, n = r(0), r(1), r(2), r(3)
	a.function("siluMulNEON", "(y, g, u []float32)", 72)
	a.argument("y_base", 0, y)
	a.argument("g_base", 24, g)
	a.argument("g_len", 32, n)
	a.argument("u_base", 48, u)
	a.op("MOVD $constants<>(SB), %v", table)
	x, minus, p, t, w, up := vs(0, 4), vs(4, 4), vs(8, 4), vs(12, 4), vs(16, 4), vs(20, 4)
	a.vectorLoop(n, 16, func() {
		a.loadAll(x, g, 0)
		a.loadAll(up, u, 0)
		a.addImmediate(g, 64)
		a.addImmediate(u, 64)
		each2(a.fneg, minus, x)
		a.exp(p, minus, vs(24, 4), t, w)
		a.comment("reciprocal of 1 + p, in w")
		one := a.constant("1")
		with(a.fadd, p, p, one)
		seed := a.constant("recipSeed")
		for i := range w {
			a.sub(w[i], seed, p[i])
		}
		for range 4 {
			each(a.fmul, t, p, w)
			for i := range t {
				a.fsub(t[i], one, t[i])
			}
			each(a.fmul, t, w, t)
			each(a.fadd, w, w, t)
		}
		each(a.fmul, x, x, w)
		a.comment("0 where -x > 40")
		high := a.constant("40")
		for i := range x {
			a.fcmgt(t[i], minus[i], high)
		}
		each(a.bic, x, x, t)
		bound := a.constant("2^-50")
		a.keep(x, bound, t)
		a.keep(up, bound, t)
		each(a.fmul, x, x, up)
		a.storeAll(x, y, 0)
		a.addImmediate(y, 64)
	})
	a.op("RET")
}
