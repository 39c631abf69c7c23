// Command avx512 generates the 512-bit kernels of package cpu:
//
//	go generate ./cpu
//
// Each function is the kernel of the same name in the types kernels and vectors
// there, which say what its arguments are. R is 16, so that a part of a block of
// weights is one vector. Operands stand in Go's order, destination last:
// VSUBPS(b, a, d) is d = a - b, and VCMPPS(p, b, a, k) is k = a p b.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	vec       = 64 // bytes of a vector
	blockCols = 32 // columns of a block
	slots     = 8  // of 4 columns in a block
)

func main() {
	ConstraintExpr("!noasm")
	for planes := 1; planes <= 3; planes++ {
		dot(planes)
	}
	expand()
	for planes := 1; planes <= 3; planes++ {
		dotMany(planes)
	}
	finish()
	for planes := 1; planes <= 3; planes++ {
		inPlace(planes)
		formInPlace(planes)
	}
	for planes := 1; planes <= 3; planes++ {
		int8Dot(planes)
	}
	floats()
	Generate()
}

// begin starts a function of the set.
func begin(name, signature string) { TEXT(name+"AVX512", NOSPLIT, signature) }

func end() {
	VZEROUPPER()
	RET()
}

// dpbusd adds to each of 16 sums the products of four unsigned bytes with four
// signed ones. avo 0.5 does not know the instruction; Go's assembler does.
func dpbusd(signed, unsigned, sum Op) {
	Instruction(&ir.Instruction{
		Opcode: "VPDPBUSD", Operands: []Op{signed, unsigned, sum},
		Inputs: []Op{signed, unsigned, sum}, Outputs: []Op{sum},
		ISA: []string{"AVX512VNNI"},
	})
}

// affine makes each byte of to the product of a matrix of 8 x 8 bits and the byte of
// from. Of the instruction the same is true.
func affine(matrix, from, to Op) {
	Instruction(&ir.Instruction{
		Opcode: "VGF2P8AFFINEQB", Operands: []Op{Imm(0), matrix, from, to},
		Inputs: []Op{matrix, from}, Outputs: []Op{to},
		ISA: []string{"AVX512F", "GFNI"},
	})
}

// constants are those in use, by name.
var constants = map[string]Mem{}

// words returns the address of a constant.
func words(name string, w ...uint32) Mem {
	m, ok := constants[name]
	if !ok {
		m = GLOBL(name+"512", RODATA|NOPTR)
		for i, v := range w {
			DATA(4*i, U32(v))
		}
		constants[name] = m
	}
	return m
}

// load returns a vector of memory.
func load(m Mem) VecVirtual {
	z := ZMM()
	VMOVDQU32(m, z)
	return z
}

// spread returns a dword of memory in all lanes.
func spread(m Mem) VecVirtual {
	z := ZMM()
	VPBROADCASTD(m, z)
	return z
}

// zeros returns n vectors of zeros.
func zeros(n int) []VecVirtual {
	regs := vectors(n)
	for _, z := range regs {
		VPXORD(z, z, z)
	}
	return regs
}

func vectors(n int) []VecVirtual {
	v := make([]VecVirtual, n)
	for i := range v {
		v[i] = ZMM()
	}
	return v
}

// param returns where the parameter of that name lies.
func param(name string) Mem {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

func at(p Register, i int) Mem { return Mem{Base: p, Disp: i * vec} }

// advance moves pointers on by a number of bytes.
func advance(bytes int, pointers ...Register) {
	for _, p := range pointers {
		ADDQ(U32(bytes), p)
	}
}

// while repeats body, which uses up step of n, while n >= step.
func while(name string, n Register, step int, body func()) {
	JMP(LabelRef(name + "Check"))
	Label(name)
	body()
	SUBQ(U32(step), n)
	Label(name + "Check")
	CMPQ(n, U32(step))
	JGE(LabelRef(name))
}
