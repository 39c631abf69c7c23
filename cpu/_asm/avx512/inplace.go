package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const byteCols = 8 // columns in a byte of a plane

// planeAhead is how far prefetching of a plane runs before reading, in bytes.
const planeAhead = 4096

// inPlace does 16 rows of planes, two at a time, so that activations are loaded half
// as often; three planes of two rows are six streams. A vector is 64 bytes of a row,
// byte j of which belongs to columns 8j to 8j+7.
//
// Bits 2k+1 and 2k of a byte of even are the code of column 8j+2k, those of odd of
// column 8j+2k+1: eight operations make both, for t and q. A code is taken out by
// GF2P8AFFINEQB. dot has no need of that, but of sums for each k, for which a second row
// and the end of a short one leave no room and no time.
func inPlace(planes int) {
	begin(fmt.Sprintf("dotInPlace%d", planes), "func(sums *int32, bp, bn, br *byte, stride, groups int, tail uint64, x *int8)")
	d := placed{planes: planes, upper: spread(words("upper", 0xaaaaaaaa))}
	sums := Load(Param("sums"), GP64())
	for i, name := range []string{"bp", "bn", "br"} {
		d.base[i] = Load(Param(name), GP64())
	}
	stride := Load(Param("stride"), GP64())
	for k := range d.fields {
		d.fields[k] = ZMM()
		// The last byte of a matrix is row 0.
		VPBROADCASTQ(words(fmt.Sprintf("field%d", k), 0, 0x01<<(2*k)<<24|0x02<<(2*k)<<16), d.fields[k])
	}
	tail := Load(Param("tail"), GP64())
	KMOVQ(tail, K1)
	first, pairs := GP64(), GP64()
	MOVL(U32(0), first.As32())
	MOVL(U32(8), pairs.As32())

	Label("pair")
	d.at[0], d.at[1] = GP64(), GP64()
	MOVQ(first, d.at[0])
	LEAQ(Mem{Base: first, Index: stride, Scale: 1}, d.at[1])
	d.x = Load(Param("x"), GP64())
	d.acc = zeros(4 * planes)
	groups := Load(Param("groups"), GP64())
	TESTQ(groups, groups)
	JZ(LabelRef("tail"))
	Label("group")
	d.group(false)
	advance(vec, d.at[:]...)
	advance(byteCols*planes*vec, d.x)
	DECQ(groups)
	JNZ(LabelRef("group"))
	Label("tail")
	TESTQ(tail, tail)
	JZ(LabelRef("end"))
	d.group(true)
	Label("end")
	for i := 0; i < len(d.acc); i += 4 {
		s := foldFour(d.acc[i:])
		VMOVQ(s, Mem{Base: sums, Disp: i / 2 * vec})
		VPEXTRQ(Imm(1), s, Mem{Base: sums, Disp: (i/2 + 1) * vec})
	}
	advance(8, sums)
	LEAQ(Mem{Base: first, Index: stride, Scale: 2}, first)
	DECQ(pairs)
	JNZ(LabelRef("pair"))
	end()
}

type placed struct {
	planes int
	base   [3]Register   // bp, bn, br
	at     [2]Register   // of the two rows, from there
	x      Register      // [8][P][64]
	upper  VecVirtual    // the upper bit of each code
	fields [4]VecVirtual // matrices that take code k out
	acc    []VecVirtual  // [kind][plane][row]
}

// group adds 64 bytes of both rows; of the last ones of a row, those in K1.
func (d *placed) group(tail bool) {
	var codes [2][2][2]VecVirtual // [parity][row][kind]
	for row := range 2 {
		var b [3]VecVirtual // bp, bn, br
		for i := range b {
			m := Mem{Base: d.base[i], Index: d.at[row], Scale: 1}
			b[i] = ZMM()
			if tail {
				VMOVDQU8_Z(m, K1, b[i])
			} else {
				PREFETCHT0(m.Offset(planeAhead))
				VMOVDQU32(m, b[i])
			}
		}
		const xnor, upperOfFirst, upperOfSecond, flip = 0xc3, 0xe4, 0xd8, 0x6c
		// even = bp<<1 where upper, else zero; odd = bp where upper, else zero>>1.
		zero, even, odd, flips := b[1], ZMM(), ZMM(), ZMM()
		VPTERNLOGD(Imm(xnor), b[0], b[0], zero)
		VPADDB(b[0], b[0], even)
		VPTERNLOGD(Imm(upperOfFirst), d.upper, zero, even)
		VPSRLW(Imm(1), zero, odd)
		VPTERNLOGD(Imm(upperOfSecond), d.upper, b[0], odd)
		// q is t with the upper bit flipped where br is set.
		VPADDB(b[2], b[2], flips)
		VPTERNLOGD(Imm(flip), d.upper, even, flips)
		VPTERNLOGD(Imm(flip), d.upper, odd, b[2])
		codes[0][row] = [2]VecVirtual{even, flips}
		codes[1][row] = [2]VecVirtual{odd, b[2]}
	}
	for slot := range byteCols {
		var code [2][2]VecVirtual // [kind][row]
		for kind := range 2 {
			for row := range 2 {
				code[kind][row] = ZMM()
				affine(d.fields[slot/2], codes[slot%2][row][kind], code[kind][row])
			}
		}
		for p := range d.planes {
			digits := load(at(d.x, slot*d.planes+p))
			for kind := range 2 {
				for row := range 2 {
					dpbusd(digits, code[kind][row], d.acc[(kind*d.planes+p)*2+row])
				}
			}
		}
	}
}

// foldFour returns the sums of the lanes of four vectors, which it uses up.
func foldFour(v []VecVirtual) Register {
	for i := 0; i < 4; i += 2 { // to [a, b, a, b] in each 128 bits
		low := ZMM()
		VPUNPCKLDQ(v[i+1], v[i], low)
		VPUNPCKHDQ(v[i+1], v[i], v[i])
		VPADDD(low, v[i], v[i])
	}
	s, t := ZMM(), ZMM() // [a, b, c, d]
	VPUNPCKLQDQ(v[2], v[0], s)
	VPUNPCKHQDQ(v[2], v[0], t)
	VPADDD(t, s, s)
	VEXTRACTI64X4(Imm(1), s, t.AsY())
	VPADDD(t.AsY(), s.AsY(), s.AsY())
	VEXTRACTI64X2(Imm(1), s.AsY(), t.AsX())
	VPADDD(t.AsX(), s.AsX(), s.AsX())
	return s.AsX()
}

// formInPlace does pairs of blocks. Within 16 bytes, 2 of each bit of a byte, it sorts
// bytes by that bit, then words in the whole vector.
func formInPlace(planes int) {
	begin(fmt.Sprintf("formInPlace%d", planes), "func(dst, x *int8, groups int)")
	dst := Load(Param("dst"), GP64())
	x := Load(Param("x"), GP64())
	groups := Load(Param("groups"), GP64())
	pairs := GP64()
	bytes, sorted := ZMM(), ZMM()
	VBROADCASTI32X4(words("slotBytes", 0x09010800, 0x0b030a02, 0x0d050c04, 0x0f070e06), bytes)
	// Word s of each 16 bytes goes to quarter word of qword s.
	var order [16]uint32
	for i := range order {
		s, quarter := i/2, i%2*2
		order[i] = uint32(quarter*8+s) | uint32((quarter+1)*8+s)<<16
	}
	VMOVDQU32(words("slotWords", order[:]...), sorted)
	Label("group")
	MOVL(U32(vec/8), pairs.As32())
	Label("pair")
	for p := range planes {
		digits := ZMM()
		VMOVDQU32(Mem{Base: x, Disp: p * blockCols}, digits.AsY())
		VINSERTI64X4(Imm(1), Mem{Base: x, Disp: (planes + p) * blockCols}, digits, digits)
		VPSHUFB(bytes, digits, digits)
		VPERMW(digits, sorted, digits)
		for s := 0; s < byteCols; s += 2 {
			two := XMM()
			VEXTRACTI32X4(Imm(uint64(s/2)), digits, two)
			VMOVLPS(two, Mem{Base: dst, Disp: (s*planes + p) * vec})
			VMOVHPS(two, Mem{Base: dst, Disp: ((s+1)*planes + p) * vec})
		}
	}
	advance(2*planes*blockCols, x)
	advance(8, dst)
	DECQ(pairs)
	JNZ(LabelRef("pair"))
	advance((byteCols*planes-1)*vec, dst)
	DECQ(groups)
	JNZ(LabelRef("group"))
	end()
}
