package main

import "fmt"

// int8Dot: rows of int8 weights, four at a time, with P digits of activations
// as they are, [blocks][P][32]. A lane of 32 bits gets at most 8*2^14 a block.
//
// product adds the products of 16 bytes to a sum.
func int8Dot(a *asm, set string, planes int, product func(sum, w, x v)) {
	const sums, w, stride, x, rows, blocks = r(0), r(1), r(2), r(3), r(4), r(5)
	const xNow, left, next, s0, s1 = r(12), r(13), r(14), r(15), r(16)
	a.function(fmt.Sprintf("int8Dot%s%d", set, planes), "(sums *int64, w *int8, stride int, x *byte, rows, blocks int)", 48)
	for i, name := range []string{"sums", "w", "stride", "x", "rows", "blocks"} {
		a.argument(name, 8*i, r(i))
	}
	row := []r{8, 9, 10, 11}
	acc := func(row, p int) v { return v(row*planes + p) }
	digits := vs(12, 2*planes) // [P][2]
	for _, size := range []int{4, 1} {
		a.label(fmt.Sprintf("rows%d", size))
		a.op("CMP $%d, %v", size, rows)
		if size == 4 {
			a.op("BLT rows1")
		} else {
			a.op("BLT done")
		}
		for i := range size {
			a.op("MOVD %v, %v", w, row[i])
			a.addTo(w, stride)
		}
		a.op("MOVD %v, %v", x, xNow)
		a.op("MOVD %v, %v", blocks, left)
		// What follows in memory are the next rows; rows are too short for
		// the hardware to learn from each.
		a.op("MOVD %v, %v", w, next)
		a.zero(vs(0, size*planes)...)

		loop := fmt.Sprintf("loop%d", size)
		a.label(loop)
		for at64 := 0; at64 < 32*size; at64 += 64 {
			a.op("PRFM %s, PLDL1STRM", place(next, at64))
		}
		a.addImmediate(next, 32*size)
		a.loadAll(digits, xNow, 0)
		a.addImmediate(xNow, 32*planes)
		for i := range size {
			weights := vs(18+v(i%2)*2, 2)
			a.op("FLDPQ.P 32(%v), (F%d, F%d)", row[i], weights[0], weights[1])
			for half := range 2 {
				for p := range planes {
					product(acc(i, p), weights[half], digits[2*p+half])
				}
			}
		}
		a.next(left, loop)

		for i := range size {
			for p := planes - 1; p >= 0; p-- {
				a.saddlv(acc(i, p), acc(i, p))
				a.op("VMOV %v.D[0], %v", acc(i, p), s1)
				if p < planes-1 {
					a.op("ADD %v<<8, %v", s0, s1)
				}
				a.op("MOVD %v, %v", s1, s0)
			}
			a.op("MOVD (%v), %v", sums, s1)
			a.op("ADD %v, %v", s0, s1)
			a.op("MOVD.P %v, 8(%v)", s1, sums)
		}
		a.op("SUB $%d, %v", size, rows)
		a.op("B rows%d", size)
	}
	a.label("done")
	a.op("RET")
}

func int8SDOT(a *asm, planes int) { int8Dot(a, "SDOT", planes, a.sdot) }

// int8NEON: two products of bytes may be 2^15, so each pair of neighbours goes
// to 32 bits at once.
func int8NEON(a *asm, planes int) {
	temp := v(22)
	int8Dot(a, "NEON", planes, func(sum, w, x v) {
		low, high := temp, temp+1
		temp = 22 + (temp-20)%8
		a.smull(low, w, x)
		a.smull2(high, w, x)
		a.sadalp(sum, low)
		a.sadalp(sum, high)
	})
}
