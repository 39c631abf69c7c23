// Command avxvnni generates the kernels of package cpu that multiply with the
// 256-bit VPDPBUSD of AVX-VNNI:
//
//	go generate ./cpu
//
// Each function is the kernel of the same name in the type kernels there, or is
// declared beside it. Operands stand in Go's order, destination last.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	vec       = 32           // bytes of a vector
	blockCols = 32           // columns of a block
	slots     = 8            // of 4 columns in a block
	vecRows   = 8            // rows of a vector of sums: R of a block of codes
	tileRows  = 64           // R
	block     = 12 * vecRows // bytes of 8 rows and 32 columns: parts A, B and Z, a vector each
	group     = 8            // blocks of 8 rows that lie in a row, before those of the next 8 rows
	kindSums  = 4 * tileRows // bytes of the sums of one digit, of t or of q
)

// asm is a file in the making. Package build has one, too, but lets nobody touch
// it between the choice of registers and the output.
type asm struct {
	*build.Context
	constants map[uint32]Mem
}

func main() {
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	avo := build.NewFlags(flags)
	flags.Parse(os.Args[1:])
	config := avo.Config()
	config.Passes = slices.Insert(config.Passes, 1, pass.Interface(pass.FunctionPass(encode))) // behind pass.Compile
	os.Exit(build.Main(config, program()))
}

func program() *build.Context {
	a := asm{build.NewContext(), map[uint32]Mem{}}
	a.ConstraintExpr("!noasm")
	for planes := 1; planes <= 3; planes++ {
		a.dot(planes)
	}
	a.expand()
	for planes := 1; planes <= 3; planes++ {
		a.dotMany(planes)
	}
	for planes := 1; planes <= 3; planes++ {
		a.int8Dot(planes)
	}
	return a.Context
}

// begin starts a function of the set.
func (a asm) begin(name, signature string) {
	a.Function(name + "AVXVNNI")
	a.SignatureExpr(signature)
}

func (a asm) end() {
	a.VZEROUPPER()
	a.RET()
}

// argument returns the argument of that name in a register.
func (a asm) argument(name string) Register { return a.Load(a.Param(name), a.GP64()) }

// spread returns a dword of memory in all lanes.
func (a asm) spread(m Mem) VecVirtual {
	y := a.YMM()
	a.VPBROADCASTD(m, y)
	return y
}

// load returns a vector of memory.
func (a asm) load(m Mem) VecVirtual {
	y := a.YMM()
	a.VMOVDQU(m, y)
	return y
}

// zeros returns n vectors of zeros.
func (a asm) zeros(n int) []VecVirtual {
	v := make([]VecVirtual, n)
	for i := range v {
		v[i] = a.YMM()
		a.VPXOR(v[i], v[i], v[i])
	}
	return v
}

// constant returns the address of a vector that is v in every dword.
func (a asm) constant(v uint32) Mem {
	m, ok := a.constants[v]
	if !ok {
		m = a.StaticGlobal(named("all%08x", v))
		a.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range vec / 4 {
			a.AddDatum(4*i, U32(v))
		}
		a.constants[v] = m
	}
	return m
}

// move returns a copy of r.
func (a asm) move(r Register) Register {
	to := a.GP64()
	a.MOVQ(r, to)
	return to
}

// advance moves pointers on by a number of bytes.
func (a asm) advance(bytes int, pointers ...Register) {
	for _, p := range pointers {
		a.ADDQ(U32(bytes), p)
	}
}

// take returns how many of what is left are done next, most at a time, and takes
// them off.
func (a asm) take(left Register, most int) Register {
	n := a.GP64()
	a.MOVL(U32(most), n.As32())
	a.CMPQ(left, n)
	a.CMOVQLT(left, n)
	a.SUBQ(n, left)
	return n
}

// loop repeats body, which may not change n, until n has been counted down to 0.
func (a asm) loop(label string, n Register, body func()) {
	a.Label(label)
	body()
	a.DECQ(n)
	a.JNZ(LabelRef(label))
}

// unrolled does n times what body does, twice at a time as long as there are two:
// body(i) is for place i, next(k) moves on k places.
func (a asm) unrolled(label string, n Register, body, next func(int)) {
	left := a.move(n)
	a.SUBQ(Imm(2), left)
	a.JLT(LabelRef(label + "Odd"))
	a.Label(label + "Two")
	body(0)
	body(1)
	next(2)
	a.SUBQ(Imm(2), left)
	a.JGE(LabelRef(label + "Two"))
	a.Label(label + "Odd")
	a.TESTQ(U32(1), left)
	a.JZ(LabelRef(label + "Done"))
	body(0)
	next(1)
	a.Label(label + "Done")
}

func at(p Register, disp int) Mem { return Mem{Base: p, Disp: disp} }

func named(format string, args ...any) string { return fmt.Sprintf(format, args...) }
