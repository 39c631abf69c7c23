// Command avx2 generates the 256-bit integer kernels of package cpu:
//
//	go generate ./cpu
//
// Each function is the kernel of the same name in the type kernels there, which
// says what its arguments are.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	vec       = 32 // bytes of a vector
	blockCols = 32 // columns of a block
)

// Constants, a vector long.
var (
	nibble = constant("nibble", 0x0f0f0f0f)

	column0 = dwords("column0", 0, ^0, 0, ^0, 0, ^0, 0, ^0) // the sums that it is part of
	column1 = dwords("column1", 0, 0, ^0, ^0, 0, 0, ^0, ^0)
	column3 = dwords("column3", 0, 0, 0, 0, ^0, ^0, ^0, ^0)
	byDigit = dwords("byDigit", 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703, 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703)
)

func main() {
	ConstraintExpr("!noasm")
	for _, k := range tableds {
		k.lookUp()
		k.lookUpMany()
		k.tables()
	}
	finish()
	for digits := 1; digits <= 2; digits++ {
		int8Dot(digits)
	}
	Generate()
}

// constant returns the address of a vector that is v in every dword.
func constant(name string, v uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range vec / 4 {
		DATA(4*i, U32(v))
	}
	return m
}

// dwords returns the address of a vector of those.
func dwords(name string, v ...int64) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range v {
		DATA(4*i, U32(uint32(v[i])))
	}
	return m
}

// load returns a vector of memory.
func load(m Mem) VecVirtual {
	y := YMM()
	VMOVDQU(m, y)
	return y
}

// zeros returns n vectors of zeros.
func zeros(n int) []VecVirtual {
	regs := make([]VecVirtual, n)
	for i := range regs {
		regs[i] = YMM()
		VPXOR(regs[i], regs[i], regs[i])
	}
	return regs
}
