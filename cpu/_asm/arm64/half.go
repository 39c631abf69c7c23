package main

import "fmt"

// Attention on keys and values in half precision, which are converted once for
// all heads of a group: heads*keys and heads*columns are what registers hold.

// fromHalves loads 16 halves as single precision.
func (a *asm) fromHalves(d []v, base r, offset int) {
	a.loadPair(d[0], d[2], base, offset)
	for _, i := range []int{0, 2} {
		a.fcvtl2(d[i+1], d[i])
		a.fcvtl(d[i], d[i])
	}
}

// scoresHalf: groups of heads and keys, four pairs of them, then one key.
func scoresHalf(a *asm, heads int) {
	const s, q, k, next, dim, n, row, left = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7)
	a.function(fmt.Sprintf("scoresHalf%dNEON", heads), "(s, q *float32, k, ahead *uint16, dim, n int, scale float32)", 52)
	for i, name := range []string{"s", "q", "k", "ahead", "dim", "n"} {
		a.argument(name, 8*i, r(i))
	}
	a.floatArgument("scale", 48, 31)
	a.op("LSL $1, %v, %v", dim, row)
	key, query, score := []r{9, 10, 11, 12}, []r{13, 14, 15, 16}, []r{0, 19, 20, 21}
	for h := 1; h < heads; h++ {
		a.op("ADD $%d, %v, %v", 256*h, s, score[h])
	}
	keys, product := vs(16, 4), vs(20, 4)
	sizes := []int{4 / heads, 1}
	if heads == 4 {
		sizes = sizes[1:]
	}
	for i, size := range sizes {
		lanes := func(key, head int) []v { return vs(v(4*(head*size+key)), 4) }
		a.label(fmt.Sprintf("keys%d", size))
		a.op("CMP $%d, %v", size, n)
		if i+1 < len(sizes) {
			a.op("BLT keys1")
		} else {
			a.op("BLT done")
		}
		for i := range size {
			a.op("MOVD %v, %v", k, key[i])
			a.addTo(k, row)
		}
		for h := range heads {
			if h == 0 {
				a.op("MOVD %v, %v", q, query[h])
			} else {
				a.op("ADD %v<<2, %v, %v", dim, query[h-1], query[h])
			}
		}
		a.op("MOVD %v, %v", dim, left)
		a.zero(vs(0, 4*heads*size)...)

		loop := fmt.Sprintf("loop%d", size)
		a.label(loop)
		for at64 := 0; at64 < 32*size; at64 += 64 {
			a.op("PRFM %s, PLDL1KEEP", place(next, at64))
		}
		a.addImmediate(next, 32*size)
		for i := range size {
			a.fromHalves(keys, key[i], 0)
			a.addImmediate(key[i], 32)
			for h := range heads {
				a.loadAll(product, query[h], 0)
				each(a.fmul, product, product, keys)
				each(a.fadd, lanes(i, h), lanes(i, h), product)
			}
		}
		for h := range heads {
			a.addImmediate(query[h], 64)
		}
		a.op("SUBS $16, %v", left)
		a.op("BNE %s", loop)

		var from [4]v
		for j := range from {
			l := lanes(j%size, j/size%heads)
			if j < heads*size {
				a.foldTo4(l)
			}
			from[j] = l[0]
		}
		a.foldFours(from, product)
		a.fmul(0, 0, 31)
		for h := range heads {
			for i := range size {
				a.op("VST1.P V0.S[%d], 4(%v)", h*size+i, score[h])
			}
		}
		a.op("SUB $%d, %v", size, n)
		a.op("B keys%d", size)
	}
	a.label("done")
	a.op("RET")
}

// mixHalf: groups of heads and columns, 64 pairs of them, then 16 columns.
func mixHalf(a *asm, heads int) {
	const o, p, values, next, dim, n, row, left, at, temp = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7), r(8), r(9)
	a.function(fmt.Sprintf("mixHalf%dNEON", heads), "(o, p *float32, v, ahead *uint16, dim, n int)", 48)
	for i, name := range []string{"o", "p", "v", "ahead", "dim", "n"} {
		a.argument(name, 8*i, r(i))
	}
	a.op("LSL $1, %v, %v", dim, row)
	out, prob, columns := []r{0, 13, 14, 15}, []r{9, 10, 11, 12}, r(16)
	for h := 1; h < heads; h++ {
		a.op("ADD %v<<2, %v, %v", dim, out[h-1], out[h])
	}
	a.op("MOVD %v, %v", dim, columns)
	converted, product, weights, bound := vs(16, 4), vs(20, 4), vs(24, 4), v(31)
	a.float(bound, power(40), temp)
	sizes := []int{64 / heads, 16}
	if heads == 4 {
		sizes = sizes[1:]
	}
	for i, size := range sizes {
		sums := func(head int) []v { return vs(v(head*size/4), size/4) }
		a.label(fmt.Sprintf("columns%d", size))
		a.op("CMP $%d, %v", size, columns)
		if i+1 < len(sizes) {
			a.op("BLT columns16")
		} else {
			a.op("BLT done")
		}
		for h := range heads {
			a.op("ADD $%d, %v, %v", 256*h, p, prob[h])
		}
		a.op("MOVD %v, %v", values, at)
		a.op("MOVD %v, %v", n, left)
		a.zero(vs(0, heads*size/4)...)

		loop := fmt.Sprintf("loop%d", size)
		a.label(loop)
		for at64 := 0; at64 < 2*size; at64 += 64 {
			a.op("PRFM %s, PLDL1KEEP", place(next, at64))
		}
		a.addImmediate(next, 2*size)
		for h := range heads {
			a.op("VLD1R.P 4(%v), [%v.S4]", prob[h], weights[h])
		}
		for i := 0; i < size/4; i += 4 {
			a.fromHalves(converted, at, 8*i)
			for h := range heads {
				part := sums(h)[i:][:4]
				with(a.fmul, product, converted, weights[h])
				each(a.fadd, part, part, product)
			}
		}
		a.addTo(at, row)
		a.next(left, loop)

		for h := range heads {
			for i := 0; i < size/4; i += 4 {
				a.keep(sums(h)[i:][:4], bound, converted)
			}
			a.storeAll(sums(h), out[h], 0)
			a.addImmediate(out[h], 4*size)
		}
		a.addImmediate(values, 2*size)
		a.op("SUB $%d, %v", size, columns)
		a.op("B columns%d", size)
	}
	a.label("done")
	a.op("RET")
}
