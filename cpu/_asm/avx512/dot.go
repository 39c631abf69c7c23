package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// ahead is how far prefetching runs before reading, in bytes: 32 blocks. The
// hardware's own stops at the end of a page.
const ahead = 32 * 3 * vec

// maxBlocks is the number of blocks after which a sum may be full: a block adds
// at most 2 slots * 4 columns * 2<<6 * -128 = -2^17 to it.
const maxBlocks = 1 << 14

// dot multiplies codes where they stand in their bytes, 0 to 2 times 4^s: one
// AND takes them out, no shift, and the sums of each s are divided by 4^s at the
// end. So a block of P = 3 takes 48 products and 19 other operations, as many
// as with GF2P8AFFINEQB but not bound to one port, and the 8P sums hide the
// latency of VPDPBUSD, 5 cycles.
func dot(planes int) {
	begin(fmt.Sprintf("dot%d", planes), "func(sums *int32, w *byte, x *int8, blocks int)")
	sums := Load(Param("sums"), GP64())
	w := Load(Param("w"), GP64())
	x := Load(Param("x"), GP64())
	blocks := Load(Param("blocks"), GP64())
	// With P = 3 there are registers for two masks.
	var masks [4]Op
	for s := range masks {
		masks[s] = words(fmt.Sprintf("slot%d", s), 0x03030303<<(2*s))
		if s < 2 || planes < 3 {
			masks[s] = spread(masks[s].(Mem))
		}
	}
	zero := zeros(1)[0]
	for i := range 2 * planes {
		VMOVDQU32(zero, at(sums, i))
	}

	Label("chunk")
	left := GP64()
	MOVL(U32(maxBlocks), left.As32())
	CMPQ(blocks, left)
	CMOVQLT(blocks, left)
	SUBQ(left, blocks)
	var acc [4][]VecVirtual // [s][kind*P+plane]
	for s := range acc {
		acc[s] = zeros(2 * planes)
	}

	Label("block")
	for i := range 3 {
		PREFETCHT0(at(w, i).Offset(ahead))
	}
	eachHalf(w, func(half int, t, q VecVirtual) {
		for s := range 4 {
			codes := vectors(2)
			for kind, v := range []VecVirtual{t, q} {
				if m, ok := masks[s].(Mem); ok {
					VPANDD_BCST(m, v, codes[kind])
				} else {
					VPANDD(masks[s], v, codes[kind])
				}
			}
			for p := range planes {
				digits := spread(Mem{Base: x, Disp: p*blockCols + (half*4+s)*4})
				dpbusd(digits, codes[0], acc[s][p])
				dpbusd(digits, codes[1], acc[s][planes+p])
			}
		}
	})
	advance(3*vec, w)
	advance(planes*blockCols, x)
	DECQ(left)
	JNZ(LabelRef("block"))

	for i := range 2 * planes {
		for s := 3; s > 0; s-- {
			VPSRAD(Imm(uint64(2*s)), acc[s][i], acc[s][i])
			VPADDD(acc[s][i], acc[0][i], acc[0][i])
		}
		VPADDD(at(sums, i), acc[0][i], acc[0][i])
		VMOVDQU32(acc[0][i], at(sums, i))
	}
	TESTQ(blocks, blocks)
	JNZ(LabelRef("chunk"))
	end()
}

// eachHalf calls f for both halves of the block at w with four codes of t and
// four of q in each byte.
func eachHalf(w Register, f func(half int, t, q VecVirtual)) {
	z := load(at(w, 2))
	for half := range 2 {
		t, q := load(at(w, half)), ZMM()
		if half == 1 {
			VPADDB(z, z, z)
		}
		VMOVDQA32(t, q)
		const flip = 0x78 // q ^ (z & upper)
		VPTERNLOGD_BCST(Imm(flip), words("upper", 0xaaaaaaaa), z, q)
		f(half, t, q)
	}
}

// expand is bound by its 16 stores a block.
func expand() {
	begin("expand", "func(u, w *byte, blocks int)")
	u := Load(Param("u"), GP64())
	w := Load(Param("w"), GP64())
	blocks := Load(Param("blocks"), GP64())
	mask := spread(words("slot0", 0x03030303))
	Label("block")
	for i := range 3 {
		PREFETCHT0(at(w, i).Offset(ahead))
	}
	eachHalf(w, func(half int, t, q VecVirtual) {
		for s := range 4 {
			for kind, v := range []VecVirtual{t, q} {
				code := ZMM()
				if s > 0 {
					VPSRLW(Imm(uint64(2*s)), v, code)
					v = code
				}
				VPANDD(mask, v, code)
				VMOVDQU32(code, at(u, (half*4+s)*2+kind))
			}
		}
	})
	advance(3*vec, w)
	advance(2*slots*vec, u)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	end()
}

// dotMany does as many columns at once as 24 sums are for, then fewer. Sums of
// maxCols columns fit 32 bits.
func dotMany(planes int) {
	begin(fmt.Sprintf("dotMany%d", planes), "func(sums *int32, u *byte, x *int8, blocks, columns, stride int)")
	m := many{
		planes: planes,
		sums:   Load(Param("sums"), GP64()), x: Load(Param("x"), GP64()),
		columns: Load(Param("columns"), GP64()), stride: Load(Param("stride"), GP64()),
		stride3: GP64(),
	}
	LEAQ(Mem{Base: m.stride, Index: m.stride, Scale: 2}, m.stride3)
	for _, n := range [][]int{{12, 8, 6, 5, 4, 3, 2, 1}, {6, 5, 4, 3, 2, 1}, {4, 3, 2, 1}}[planes-1] {
		m.loop(n)
	}
	end()
}

type many struct {
	planes                            int
	sums, x, columns, stride, stride3 Register
}

// loop does n columns at a time as long as there are n.
func (m many) loop(n int) {
	name := fmt.Sprintf("columns%d", n)
	while(name, m.columns, n, func() {
		u := Load(Param("u"), GP64())
		blocks := Load(Param("blocks"), GP64())
		x := make([]Register, (n+3)/4) // of columns 0, 4, 8
		for i := range x {
			x[i] = GP64()
			if i == 0 {
				MOVQ(m.x, x[0])
			} else {
				LEAQ(Mem{Base: x[i-1], Index: m.stride, Scale: 4}, x[i])
			}
		}
		acc := make([]VecVirtual, n*2*m.planes) // [column][kind][plane]
		for i := range acc {
			acc[i] = load(at(m.sums, i))
		}

		Label(name + "Block")
		for slot := range slots {
			t, q := load(at(u, 2*slot)), load(at(u, 2*slot+1))
			for c := range n {
				digits := Mem{Base: x[c/4], Disp: slot * 4}
				switch c % 4 {
				case 1, 2:
					digits.Index, digits.Scale = m.stride, uint8(c%4)
				case 3:
					digits.Index, digits.Scale = m.stride3, 1
				}
				for p := range m.planes {
					d := spread(digits.Offset(p * blockCols))
					sums := acc[c*2*m.planes:]
					dpbusd(d, t, sums[p])
					dpbusd(d, q, sums[m.planes+p])
				}
			}
		}
		advance(2*slots*vec, u)
		advance(m.planes*blockCols, x...)
		DECQ(blocks)
		JNZ(LabelRef(name + "Block"))

		for i, a := range acc {
			VMOVDQU32(a, at(m.sums, i))
		}
		advance(n*2*m.planes*vec, m.sums)
		for range n {
			ADDQ(m.stride, m.x)
		}
	})
}
