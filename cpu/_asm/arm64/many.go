package main

import "fmt"

// expand writes the codes of a block, 16 vectors, in the order [slot][kind].
func expand(a *asm) {
	const u, w, blocks = r(0), r(1), r(2)
	a.function("expandNEON", "(u, w []byte, blocks int)", 56)
	a.argument("u_base", 0, u)
	a.argument("w_base", 24, w)
	a.argument("blocks", 48, blocks)
	c := block{a: 24, b: 25, qa: 26, qb: 27, upper: 31}
	low := v(30)
	a.bytes(low, 3)
	a.bytes(c.upper, 0xaa)
	a.op("CBZ %v, done", blocks)
	a.label("loop")
	a.op("PRFM %s, PLDL1STRM", place(w, ahead))
	c.load(a, w)
	for half := range 2 {
		for slot := range v(4) {
			for kind := range kinds {
				d, codes := 2*slot+v(kind), c.codes(half, kind)
				switch slot {
				case 0:
					a.and(d, codes, low)
				case 3:
					a.ushrBytes(d, codes, 6)
				default:
					a.ushrBytes(d, codes, 2*int(slot))
					a.and(d, d, low)
				}
			}
		}
		a.storeAll(vs(0, 8), u, 128*half)
	}
	a.addImmediate(u, 256)
	a.next(blocks, "loop")
	a.label("done")
	a.op("RET")
}

// many is the frame of dotMany for one digit of all columns (of activations).
// Columns are taken in groups, whose sums stay in registers over all blocks:
// each vector of codes loaded serves the whole group.
type many struct {
	sums, u, x, blocks, columns, stride, step, kind r

	uNow, left r // what is left of u and blocks within a group
	temp       r
	column     []r // where the columns of a group are in x
}

const manyDeclaration = "(sums *int32, u *byte, x *int8, blocks, columns, stride, planes int)"

// start loads the arguments. step is the size of a block of x, and of the sums
// of a column, which is the same; kind is half of it, what lies between the sums
// of t and of q.
func startMany(a *asm, name string) many {
	m := many{sums: 0, u: 1, x: 2, blocks: 3, columns: 4, stride: 5, step: 6, kind: 7,
		column: []r{8, 9, 10, 11, 12, 13, 14, 15}, uNow: 19, left: 20, temp: 21}
	a.function(name, manyDeclaration, 56)
	for i, name := range []string{"sums", "u", "x", "blocks", "columns", "stride"} {
		a.argument(name, 8*i, r(i))
	}
	a.argument("planes", 48, m.step)
	a.op("LSL $4, %v, %v", m.step, m.kind)
	a.op("LSL $5, %v", m.step)
	return m
}

// groups writes the loops. sizes are the columns of a group, largest first,
// down to 1; half does 16 columns of weights for the columns of activations
// that start at the registers given; store adds a column's sums to memory.
func (m many) groups(a *asm, sizes []int, acc int, half func(size, half int), store func(size, column int)) {
	for i, size := range sizes {
		a.label(fmt.Sprintf("group%d", size))
		next := "done"
		if i+1 < len(sizes) {
			next = fmt.Sprintf("group%d", sizes[i+1])
		}
		a.op("CMP $%d, %v", size, m.columns)
		a.op("BLT %s", next)
		for c := range size {
			a.op("MOVD %v, %v", m.x, m.column[c])
			a.addTo(m.x, m.stride)
		}
		a.op("MOVD %v, %v", m.u, m.uNow)
		a.op("MOVD %v, %v", m.blocks, m.left)
		a.zero(vs(0, acc)...)

		loop := fmt.Sprintf("loop%d", size)
		a.label(loop)
		half(size, 0)
		half(size, 1)
		a.addImmediate(m.uNow, 256)
		for c := range size {
			a.addTo(m.column[c], m.step)
		}
		a.next(m.left, loop)

		for c := range size {
			store(size, c)
		}
		a.op("SUB $%d, %v", size, m.columns)
		if size == sizes[0] {
			a.op("B group%d", size)
		}
	}
	a.label("done")
	a.op("RET")
}

// addSums adds vectors to the sums of t and q of a column and goes to the next.
func (m many) addSums(a *asm, t, q v) {
	a.op("ADD %v, %v, %v", m.kind, m.sums, m.temp)
	a.load(30, m.sums, 0)
	a.load(31, m.temp, 0)
	a.add(30, 30, t)
	a.add(31, 31, q)
	a.store(30, m.sums, 0)
	a.store(31, m.temp, 0)
	a.addTo(m.sums, m.step)
}

// codes are the registers of the codes of four slots, [slot][kind].
var codes = vs(16, 8)

// manySDOT: 64 products for 8 loads of codes and 8 of digits.
func manySDOT(a *asm) {
	m := startMany(a, "manySDOT")
	// Small groups have several sums for each column, for shorter chains.
	parts := func(size int) int { return min(4, 8/size) }
	acc := func(size, column, kind, slot int) v {
		return v((column*kinds+kind)*parts(size) + slot%parts(size))
	}
	m.groups(a, []int{8, 4, 2, 1}, 16, func(size, half int) {
		a.loadAll(codes, m.uNow, 128*half)
		for c := range size {
			digits := v(24 + c)
			a.load(digits, m.column[c], 16*half)
			for slot := range 4 {
				for kind := range kinds {
					a.sdotAt(acc(size, c, kind, slot), codes[2*slot+kind], digits, slot)
				}
			}
		}
	}, func(size, c int) {
		for n := parts(size) / 2; n > 0; n /= 2 {
			for part := range n {
				for kind := range kinds {
					d := acc(size, c, kind, part)
					a.add(d, d, acc(size, c, kind, part+n))
				}
			}
		}
		m.addSums(a, acc(size, c, kindT, 0), acc(size, c, kindQ, 0))
	})
}

// manySMMLA multiplies [2 rows][8] with [2 columns][8]: half as many products
// as manySDOT. Two slots, interleaved, are rows of 8 codes.
func manySMMLA(a *asm) {
	m := startMany(a, "manySMMLA")
	acc := func(pair, kind, rows int) v { return v(pair*4 + kind*2 + rows) }
	// rowsOf are the codes of two rows and two slots.
	rowsOf := func(slots, kind, rows int) v { return codes[slots*4+kind*2+rows] }
	m.groups(a, []int{8, 4, 2, 1}, 16, func(size, half int) {
		for slots := range 2 {
			raw := vs(24, 4) // [slot][kind]
			a.loadAll(raw, m.uNow, 128*half+64*slots)
			for kind := range kinds {
				a.zip1("S4", rowsOf(slots, kind, 0), raw[kind], raw[2+kind])
				a.zip2("S4", rowsOf(slots, kind, 1), raw[kind], raw[2+kind])
			}
		}
		for c := 0; c < size; c += 2 {
			// A column without a neighbour is its own.
			one, two := v(24+c%4), v(25+c%4)
			a.load(one, m.column[c], 16*half)
			if c+1 < size {
				a.load(two, m.column[c+1], 16*half)
			} else {
				two = one
			}
			pairs := vs(28+v(c%4), 2)
			a.zip1("D2", pairs[0], one, two)
			a.zip2("D2", pairs[1], one, two)
			for slots := range 2 {
				for kind := range kinds {
					for rows := range 2 {
						a.smmla(acc(c/2, kind, rows), rowsOf(slots, kind, rows), pairs[slots])
					}
				}
			}
		}
	}, func(size, c int) {
		gather := a.uzp1
		if c%2 == 1 {
			gather = a.uzp2
		}
		gather("S4", 24, acc(c/2, kindT, 0), acc(c/2, kindT, 1))
		gather("S4", 25, acc(c/2, kindQ, 0), acc(c/2, kindQ, 1))
		m.addSums(a, 24, 25)
	})
}

// manyNEON is for at most runNEON blocks: see dotNEON.
func manyNEON(a *asm) {
	m := startMany(a, "manyNEON")
	acc := func(column, kind, half int) v { return v((column*kinds+kind)*2 + half) }
	m.groups(a, []int{4, 2, 1}, 16, func(size, half int) {
		a.loadAll(codes, m.uNow, 128*half)
		for c := range size {
			digits := v(24 + c)
			a.load(digits, m.column[c], 16*half)
			for slot := range 4 {
				repeated := v(28 + slot)
				a.dup(repeated, digits, slot)
				for kind := range kinds {
					a.smlal(acc(c, kind, 0), codes[2*slot+kind], repeated)
					a.smlal2(acc(c, kind, 1), codes[2*slot+kind], repeated)
				}
			}
		}
	}, func(size, c int) {
		for kind := range kinds {
			gather(a, acc(c, kind, 0), acc(c, kind, 1))
		}
		m.addSums(a, acc(c, kindT, 0), acc(c, kindQ, 0))
	})
}
