package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// mostSums is how many vectors of sums there are registers for, beside codes of t
// and of q.
const mostSums = 14

// expand writes the codes of a part of a group of blocks; the blocks of 8 rows
// begin stride bytes behind those of the 8 rows before.
func (a asm) expand() {
	a.begin("expand", "func(u, w *byte, blocks, stride int)")
	u, w, blocks, stride := a.argument("u"), a.argument("w"), a.argument("blocks"), a.argument("stride")
	upper := a.load(a.constant(0xaaaaaaaa))
	three := a.load(a.constant(0x03030303))
	rows := a.GP64()
	a.MOVL(U32(tileRows/vecRows), rows.As32())
	a.loop("rows", rows, func() {
		from, to, left := a.move(w), a.move(u), a.move(blocks)
		a.loop("block", left, func() {
			a.PREFETCHT0(at(from, ahead))
			a.PREFETCHT0(at(from, ahead+64))
			for half := range 2 {
				t, q := a.half(at(from, 0), half, upper)
				for s := range 4 {
					for kind, v := range []VecVirtual{t, q} {
						code := a.YMM()
						if s > 0 {
							a.VPSRLW(Imm(uint64(2*s)), v, code)
							v = code
						}
						a.VPAND(three, v, code)
						a.VMOVDQU(code, at(to, ((half*4+s)*2+kind)*kindSums))
					}
				}
			}
			a.advance(block, from)
			a.advance(slots*2*kindSums, to)
		})
		a.ADDQ(stride, w)
		a.advance(vec, u)
	})
	a.end()
}

// dotMany does as many columns at once as there are registers for, then fewer.
// Their digits, spread to vectors, are operands in the first-level cache for all
// rows, so that a product takes one instruction, and a seventh for its codes.
func (a asm) dotMany(planes int) {
	a.begin(named("dotMany%d", planes), "func(sums *int32, u *byte, x *int8, blocks, columns, stride int, spread *byte)")
	m := many{
		asm: a, planes: planes,
		sums: a.argument("sums"), x: a.argument("x"), columns: a.argument("columns"), stride: a.argument("stride"),
	}
	for n := mostSums / 2 / planes; n > 0; n-- {
		next := named("fewer%d", n)
		a.CMPQ(m.columns, Imm(uint64(n)))
		a.JLT(LabelRef(next))
		a.Label(named("by%d", n))
		m.some(n)
		a.SUBQ(Imm(uint64(n)), m.columns)
		a.CMPQ(m.columns, Imm(uint64(n)))
		a.JGE(LabelRef(named("by%d", n)))
		a.Label(next)
	}
	a.end()
}

type many struct {
	asm
	planes                   int
	sums, x, columns, stride Register
}

// some does n columns.
func (m many) some(n int) {
	a, name := m.asm, named("columns%d", n)
	digits := n * m.planes * vec // of a slot, [column][plane]
	m.spreadColumns(name, n)

	// With few columns several sums share the slots, so that no product waits for
	// the one before.
	parts := 1 << (bits.Len(uint(mostSums/(2*n*m.planes))) - 1)
	size := n * 2 * m.planes
	u, sum, rows := a.argument("u"), a.move(m.sums), a.GP64()
	a.MOVL(U32(tileRows/vecRows), rows.As32())
	a.loop(name+"Rows", rows, func() {
		acc := make([]VecVirtual, size, parts*size) // [part][column][kind][plane]
		for i := range acc {
			acc[i] = a.load(at(sum, i*kindSums))
		}
		acc = append(acc, a.zeros((parts-1)*size)...)
		from, spread, left := a.move(u), a.argument("spread"), a.argument("blocks")
		a.loop(name+"Block", left, func() {
			for slot := range slots {
				t, q := a.load(at(from, slot*2*kindSums)), a.load(at(from, (slot*2+1)*kindSums))
				for c := range n {
					for p := range m.planes {
						d := at(spread, slot*digits+(c*m.planes+p)*vec)
						sums := acc[slot%parts*size+c*2*m.planes:]
						a.dpbusd(d, t, sums[p])
						a.dpbusd(d, q, sums[m.planes+p])
					}
				}
			}
			a.advance(slots*2*kindSums, from)
			a.advance(slots*digits, spread)
		})
		for i := range size {
			for part := 1; part < parts; part++ {
				a.VPADDD(acc[part*size+i], acc[i], acc[i])
			}
			a.VMOVDQU(acc[i], at(sum, i*kindSums))
		}
		a.advance(vec, u, sum)
	})
	a.advance(size*kindSums, m.sums)
}

// spreadColumns writes the digits of n columns, [block][slot][column][plane] vectors,
// and moves x on to the next columns.
func (m many) spreadColumns(name string, n int) {
	a := m.asm
	multiple := map[int]Register{1: m.stride} // of the stride, odd
	for i := 3; i < n; i += 2 {
		multiple[i] = a.GP64()
		a.LEAQ(Mem{Base: m.stride, Index: m.stride, Scale: uint8(i - 1)}, multiple[i])
	}
	x, to, left := a.move(m.x), a.argument("spread"), a.argument("blocks")
	a.loop(name+"Spread", left, func() {
		for slot := range slots {
			for c := range n {
				digits := at(x, slot*4)
				if c > 0 {
					scale := c & -c
					digits.Index, digits.Scale = multiple[c/scale], uint8(scale)
				}
				for p := range m.planes {
					a.VMOVDQU(a.spread(digits.Offset(p*blockCols)), at(to, (slot*n*m.planes+c*m.planes+p)*vec))
				}
			}
		}
		a.advance(m.planes*blockCols, x)
		a.advance(slots*n*m.planes*vec, to)
	})
	for range n {
		a.ADDQ(m.stride, m.x)
	}
}
