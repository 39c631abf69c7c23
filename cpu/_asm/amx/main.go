// Command amx writes the kernel of package cpu that multiplies on tiles:
//
//	go generate ./cpu
//
// Neither avo nor Go's assembler knows the instructions of AMX. They are written as
// bytes with the instruction in Intel's syntax behind them (encode.go); a test has
// the GNU assembler encode each of them too. The rest is left to Go's assembler.
package main

import (
	"flag"
	"log"
	"os"
)

func main() {
	out := flag.String("out", "amx_amd64.s", "file to write")
	flag.Parse()
	a := newFile()
	tiles(a)
	if err := os.WriteFile(*out, a.out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// The tiles. Two tiles of activations and two of codes have four sums, which do
// not wait for each other: by Intel's manual a product takes 52 cycles and one can
// begin every 16.
const (
	t0, q0 = tile(0), tile(1) // sums of x0, by t and by q
	t1, q1 = tile(2), tile(3) // sums of x1
	x0, x1 = tile(4), tile(5)
	ct, cq = tile(6), tile(7) // codes of t and of q
)

const (
	row   = 64       // bytes of a row of a tile, of a slot's codes of one kind
	slot  = 2 * row  // bytes of a slot's codes
	block = 8 * slot // bytes of a block's codes
	pass  = 4 * 8    // bytes of a pass
	step  = 2        // blocks multiplied at once
)

// tiles writes tilesAMX: see package cpu.
func tiles(a *asm) {
	const (
		passes, n, left = "SI", "AX", "CX"
		sums, kind      = "DI", "R15" // kind: from the sums of t to those of q
		x, codes        = "DX", "BX"
		at0, at1        = "R8", "R9"
		xStride         = "R10"
		sumStride       = "R11"
		codeStride      = "R12"
	)
	a.function("tilesAMX", "(config *tileConfig, passes *tilePass, n int, sums *int32, u *byte, x *int8, steps, xStride, sumStride int)", 72)
	a.op("MOVQ config+0(FP), %s", at0)
	a.op("MOVQ passes+8(FP), %s", passes)
	a.op("MOVQ n+16(FP), %s", n)
	a.op("MOVQ sums+24(FP), %s", sums)
	a.op("MOVQ x+40(FP), %s", x)
	a.op("MOVQ xStride+56(FP), %s", xStride)
	a.op("MOVQ sumStride+64(FP), %s", sumStride)
	a.op("MOVQ %s, %s", sumStride, kind)
	a.op("SHRQ $1, %s", kind)
	a.op("MOVQ $%d, %s", slot, codeStride)
	a.ldtilecfg(at0)

	a.label("pass")
	eachSum := func(move func(t tile, at, stride string, offset int)) {
		for i, pair := range [][2]tile{{t0, q0}, {t1, q1}} {
			a.op("MOVQ %d(%s), %s", 16+8*i, passes, at0)
			a.op("ADDQ %s, %s", sums, at0)
			a.op("LEAQ (%s)(%s*1), %s", at0, kind, at1)
			move(pair[0], at0, sumStride, 0)
			move(pair[1], at1, sumStride, 0)
		}
	}
	eachSum(a.tileloadd)
	a.op("MOVQ 0(%s), %s", passes, at0)
	a.op("ADDQ %s, %s", x, at0)
	a.op("MOVQ 8(%s), %s", passes, at1)
	a.op("ADDQ %s, %s", x, at1)
	a.op("MOVQ u+32(FP), %s", codes)
	a.op("MOVQ steps+48(FP), %s", left)

	a.label("step")
	a.tileloadd(x0, at0, xStride, 0)
	a.tileloadd(ct, codes, codeStride, 0)
	a.tdpbsud(t0, x0, ct)
	a.tileloadd(cq, codes, codeStride, row)
	a.tdpbsud(q0, x0, cq)
	a.tileloadd(x1, at1, xStride, 0)
	a.tdpbsud(t1, x1, ct)
	a.tdpbsud(q1, x1, cq)
	a.op("ADDQ $%d, %s", row, at0)
	a.op("ADDQ $%d, %s", row, at1)
	a.op("ADDQ $%d, %s", step*block, codes)
	a.op("DECQ %s", left)
	a.op("JNZ step")

	eachSum(a.tilestored)
	a.op("ADDQ $%d, %s", pass, passes)
	a.op("DECQ %s", n)
	a.op("JNZ pass")
	a.tilerelease()
	a.op("RET")
}
