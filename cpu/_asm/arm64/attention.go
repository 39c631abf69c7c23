package main

import "fmt"

// scores: four keys at a time, 16 lanes each.
func scores(a *asm) {
	const s, n, q, dim, keys, row, qNow, left = r(0), r(1), r(2), r(3), r(4), r(5), r(7), r(8)
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

		for k := range size {
			a.foldTo4(lanes(k))
		}
		a.foldFours([4]v{0, lanes(1 % size)[0], lanes(2 % size)[0], lanes(3 % size)[0]}, values)
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

// foldTo4 folds lanes, a power of two of vectors, into the first.
func (a *asm) foldTo4(lanes []v) {
	for n := len(lanes) / 2; n > 0; n /= 2 {
		for i := range n {
			a.fadd(lanes[i], lanes[i], lanes[i+n])
		}
	}
}

// foldFours sets lane i of from[0] to the fold of from[i].
func (a *asm) foldFours(from [4]v, temps []v) {
	for i := 0; i < 4; i += 2 {
		one, two := from[i], from[i+1]
		a.zip1("D2", temps[i], one, two)
		a.zip2("D2", temps[i+1], one, two)
	}
	a.fadd(temps[0], temps[0], temps[1])
	a.fadd(temps[2], temps[2], temps[3])
	a.faddp(from[0], temps[0], temps[2])
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
