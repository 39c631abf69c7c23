package main

import "fmt"

// scores: four keys at a time, 16 lanes each.
func scores(a *asm) {
	const s, n, q, dim, keys, row, temp, qNow, left = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7), r(8)
	a.function("scoresNEON", "(s, q, keys []float32, scale float32)", 76)
	a.argument("s_base", 0, s)
	a.argument("s_len", 8, n)
	a.argument("q_base", 24, q)
	a.argument("q_len", 32, dim)
	a.argument("keys_base", 48, keys)
	a.floatArgument("scale", 72, 30)
	a.op("LSL $2, %v, %v", dim, row)
	key := []r{9, 10, 11, 12}
	query, values := vs(16, 4), vs(20, 8)
	lanes := func(key int) []v { return vs(v(4*key), 4) }

	for _, size := range []int{4, 1} {
		next := map[int]string{4: "keys1", 1: "done"}[size]
		a.label(fmt.Sprintf("keys%d", size))
		a.op("CMP $%d, %v", size, n)
		a.op("BLT %s", next)
		for k := range size {
			a.op("MOVD %v, %v", keys, key[k])
			a.addTo(keys, row)
		}
		a.op("MOVD %v, %v", q, qNow)
		a.op("MOVD %v, %v", dim, left)
		a.zero(vs(0, 4*size)...)

		loop := fmt.Sprintf("loop%d", size)
		a.label(loop)
		a.loadAll(query, qNow, 0)
		a.addImmediate(qNow, 64)
		for k := range size {
			part := values[4*(k%2):][:4]
			a.loadAll(part, key[k], 0)
			a.addImmediate(key[k], 64)
			each(a.fmul, part, query, part)
			each(a.fadd, lanes(k), lanes(k), part)
		}
		a.op("SUBS $16, %v", left)
		a.op("BNE %s", loop)

		// fold, down to 4 lanes of each key, then 2 of two keys, then 1 of all.
		for k := range size {
			l := lanes(k)
			a.fadd(l[0], l[0], l[2])
			a.fadd(l[1], l[1], l[3])
			a.fadd(l[0], l[0], l[1])
		}
		for k := 0; k < size; k += 2 {
			one, two := lanes(k)[0], lanes(min(k+1, size-1))[0]
			a.zip1("D2", values[0], one, two)
			a.zip2("D2", values[1], one, two)
			a.fadd(one, values[0], values[1])
		}
		a.faddp(0, 0, lanes(size / 2)[0])
		a.fmul(0, 0, 30)
		if size == 1 {
			a.op("FMOVS F0, (%v)", s)
		} else {
			a.store(0, s, 0)
		}
		a.addImmediate(s, 4*size)
		a.op("SUB $%d, %v", size, n)
		a.op("B keys%d", size)
	}
	a.label("done")
	a.op("RET")
}

// mix: 64 columns of all values at a time, then 16.
func mix(a *asm) {
	const o, dim, p, n, values, row, pNow, left, at, temp = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7), r(8), r(9)
	a.function("mixNEON", "(o, p, v []float32)", 72)
	a.argument("o_base", 0, o)
	a.argument("o_len", 8, dim)
	a.argument("p_base", 24, p)
	a.argument("p_len", 32, n)
	a.argument("v_base", 48, values)
	a.op("LSL $2, %v, %v", dim, row)
	weight, bound := v(30), v(31)
	a.float(bound, power(40), temp)
	for _, size := range []int{64, 16} {
		next := map[int]string{64: "columns16", 16: "done"}[size]
		sums := vs(0, size/4)
		a.label(fmt.Sprintf("columns%d", size))
		a.op("CMP $%d, %v", size, dim)
		a.op("BLT %s", next)
		a.zero(sums...)
		a.op("MOVD %v, %v", values, at)
		a.op("MOVD %v, %v", p, pNow)
		a.op("MOVD %v, %v", n, left)
		store, loop := fmt.Sprintf("store%d", size), fmt.Sprintf("loop%d", size)
		a.op("CBZ %v, %s", left, store)
		a.label(loop)
		a.op("VLD1R.P 4(%v), [%v.S4]", pNow, weight)
		for i := 0; i < len(sums); i += 4 {
			part := vs(16+v(i)%8, 4)
			a.loadAll(part, at, 16*i)
			with(a.fmul, part, part, weight)
			each(a.fadd, sums[i:i+4], sums[i:i+4], part)
		}
		a.addTo(at, row)
		a.next(left, loop)

		a.label(store)
		for i := 0; i < len(sums); i += 4 {
			a.keep(sums[i:i+4], bound, vs(16, 4))
		}
		a.storeAll(sums, o, 0)
		a.addImmediate(o, 4*size)
		a.addImmediate(values, 4*size)
		a.op("SUB $%d, %v", size, dim)
		a.op("B columns%d", size)
	}
	a.label("done")
	a.op("RET")
}

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

func expSub(a *asm) {
	const p, n = r(0), r(1)
	a.function("expSubNEON", "(p []float32, m float32)", 28)
	a.argument("p_base", 0, p)
	a.argument("p_len", 8, n)
	a.floatArgument("m", 24, 24)
	a.op("MOVD $constants<>(SB), %v", table)
	x, result := vs(0, 4), vs(4, 4)
	a.vectorLoop(n, 16, func() {
		a.loadAll(x, p, 0)
		with(a.fsub, x, x, 24)
		a.exp(result, x, vs(8, 4), vs(12, 4), vs(16, 4))
		a.storeAll(result, p, 0)
		a.addImmediate(p, 64)
	})
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
