package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	// int8Ahead is how far prefetching runs before reading weights, in bytes.
	int8Ahead = 8192
	// pairsTogether is the number of pairs of blocks with sums of their own, so
	// that no product waits for the one before.
	pairsTogether = 4
)

// int8Dot multiplies w+128, unsigned, with the digits and starts its sums at
// -128 times the digits, which is the same for all rows. Sums may wrap on the
// way; what comes out is at most 2^16 for each 64 columns. x is
// [blocks/2][P][64]; of the last pair half may be missing.
//
// Rows are done one by one, in the order of memory: that is how AVX2 came to the
// speed of reading, and here, too, there is time to read x for each.
func int8Dot(planes int) {
	begin(fmt.Sprintf("int8Dot%d", planes), "func(sums *int64, w *int8, stride int, x *byte, blocks, rows int)")
	sums, row := Load(Param("sums"), GP64()), Load(Param("w"), GP64())
	stride, rows := Load(Param("stride"), GP64()), Load(Param("rows"), GP64())
	flip := spread(words("signBits", 0x80808080))
	x, w, blocks := GP64(), GP64(), GP64()

	// start sums up 128 times the digits: 128 as an unsigned byte is the sign bit.
	start := zeros(planes)
	Load(Param("x"), x)
	Load(Param("blocks"), blocks)
	while("start", blocks, 2, func() {
		for p, sum := range start {
			dpbusd(at(x, p), flip, sum)
		}
		advance(planes*vec, x)
	})
	TESTQ(blocks, blocks)
	JZ(LabelRef("row"))
	for p, sum := range start {
		dpbusd(half(at(x, p)), flip, sum)
	}

	Label("row")
	acc := zeros(pairsTogether * planes) // [pair][plane]
	for p, sum := range start {
		VPSUBD(sum, acc[p], acc[p])
	}
	Load(Param("x"), x)
	Load(Param("blocks"), blocks)
	MOVQ(row, w)
	pair := func(i int) {
		weights := ZMM()
		PREFETCHT0(at(w, i).Offset(int8Ahead))
		VPXORD(at(w, i), flip, weights)
		for p := range planes {
			dpbusd(at(x, i*planes+p), weights, acc[i*planes+p])
		}
	}
	for _, pairs := range []int{pairsTogether, 1} {
		while(fmt.Sprintf("pairs%d", pairs), blocks, 2*pairs, func() {
			for i := range pairs {
				pair(i)
			}
			advance(pairs*vec, w)
			advance(pairs*planes*vec, x)
		})
	}
	TESTQ(blocks, blocks)
	JZ(LabelRef("even"))
	weights := half(at(w, 0))
	VPXORD(flip, weights, weights)
	for p := range planes {
		dpbusd(half(at(x, p)), weights, acc[p])
	}
	Label("even")
	for i := planes; i < len(acc); i++ {
		VPADDD(acc[i], acc[i%planes], acc[i%planes])
	}
	ADDQ(sum64(acc[:planes]), Mem{Base: sums})
	advance(8, sums)
	ADDQ(stride, row)
	DECQ(rows)
	JNZ(LabelRef("row"))
	end()
}

// half returns 32 bytes of memory and zeros.
func half(m Mem) VecVirtual {
	z := ZMM()
	VMOVDQU32(m, z.AsY())
	return z
}

// sum64 returns the sum of the lanes of each digit, put together.
func sum64(digits []VecVirtual) Register {
	var total VecVirtual
	for i := len(digits) - 1; i >= 0; i-- {
		wide, high := ZMM(), ZMM()
		VEXTRACTI64X4(Imm(1), digits[i], high.AsY())
		VPMOVSXDQ(high.AsY(), high)
		VPMOVSXDQ(digits[i].AsY(), wide)
		VPADDQ(high, wide, wide)
		if total != nil {
			VPSLLQ(Imm(8), total, total)
			VPADDQ(total, wide, wide)
		}
		total = wide
	}
	g := GP64()
	foldQ(total)
	VMOVQ(total.AsX(), g)
	return g
}

// foldQ leaves the sum of eight int64 in lane 0.
func foldQ(v VecVirtual) {
	t := ZMM()
	VEXTRACTI64X4(Imm(1), v, t.AsY())
	VPADDQ(t.AsY(), v.AsY(), v.AsY())
	VEXTRACTI64X2(Imm(1), v.AsY(), t.AsX())
	VPADDQ(t.AsX(), v.AsX(), v.AsX())
	VPSHUFD(Imm(0x4e), v.AsX(), t.AsX())
	VPADDQ(t.AsX(), v.AsX(), v.AsX())
}
