// Command avx2vec generates the float kernels of the set avx2:
//
//	go generate ./cpu
//
// No fused operation is used: NUMERICS.md rounds every product. Operands stand
// in Go's order, destination last: VSUBPS(b, a, d) is d = a - b, and
// VCMPPS(p, b, a, d) is d = a p b.
package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!noasm")
	squares()
	normScale()
	absMax()
	add()
	addScaled()
	scale()
	rotate()
	toHalf()
	fromHalf()
	fromInt8()
	for planes := 1; planes <= 3; planes++ {
		quantize(planes)
	}
	siluMul()
	scores()
	mix()
	for _, heads := range []int{1, 2, 4} {
		scoresHalf(heads)
		mixHalf(heads)
	}
	softmax()
	Generate()
}

// lanes is the number of float32 in a register, vec its bytes.
const (
	lanes = 8
	vec   = 4 * lanes
)

// Comparisons, without a signal for NaN.
const (
	less    = U8(0x11)
	notLess = U8(0x15) // or unordered, so that NaN is kept
)

// begin starts a function that takes its slices by their first element; they
// have the lengths that the comments of type vectors give.
func begin(name, signature string) {
	TEXT(name+"AVX2", NOSPLIT, signature)
	Doc(fmt.Sprintf("%sAVX2 is %s of type vectors; its reference is %sGeneric.", name, name, name))
}

func end() {
	VZEROUPPER()
	RET()
}

func base(param string) Register   { return Load(Param(param).Base(), GP64()) }
func length(param string) Register { return Load(Param(param).Len(), GP64()) }

// spread returns a float parameter in all lanes.
func spread(param string) VecVirtual {
	b, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	y := YMM()
	VBROADCASTSS(b.Addr, y)
	return y
}

// while repeats body, which uses up step of n elements, while n >= step.
func while(name string, n Register, step int, body func()) {
	JMP(LabelRef(name + "Check"))
	Label(name)
	body()
	SUBQ(U32(step), n)
	Label(name + "Check")
	CMPQ(n, U32(step))
	JGE(LabelRef(name))
}

// eachDims repeats body, which takes 16 dimensions, the one at a place of all
// that it may use in addresses, while left >= 16: four times in a round, since a
// short loop's end is hard to foresee. next moves pointers on by a number of
// sixteens.
func eachDims(name string, left Register, body func(place int), next func(sixteens int)) {
	for _, round := range []int{4, 1} {
		while(fmt.Sprintf("%s%d", name, round), left, 16*round, func() {
			for place := range round {
				body(place)
			}
			next(round)
		})
	}
}

// advance moves pointers on by a number of bytes.
func advance(bytes int, pointers ...Register) {
	for _, p := range pointers {
		ADDQ(U32(bytes), p)
	}
}

func at(p Register, i int) Mem { return Mem{Base: p, Disp: i * vec} }

// constants are those in use, by value.
var constants = map[string]Mem{}

// words returns a constant of eight 32-bit words; one word fills all.
func words(name string, w ...uint32) Mem {
	m, ok := constants[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i := range lanes {
			DATA(4*i, U32(w[i%len(w)]))
		}
		constants[name] = m
	}
	return m
}

// number returns a float constant in all lanes.
func number(name string, f float32) Mem { return words(name, math.Float32bits(f)) }

// pow2 returns the constant 2^-k.
func pow2(k int) Mem { return number(fmt.Sprintf("twoToMinus%d", k), float32(math.Ldexp(1, -k))) }

func signless() Mem { return words("signless", 1<<31-1) }

// register loads a constant.
func register(m Mem) VecVirtual {
	y := YMM()
	VMOVUPS(m, y)
	return y
}

func zero() VecVirtual {
	y := YMM()
	VPXOR(y, y, y)
	return y
}

// keeper holds the constants of keep_k.
type keeper struct{ abs, bound Op }

func newKeeper(k int) keeper { return keeper{register(signless()), register(pow2(k))} }

// keep clears the lanes of v below the bound in size.
func (k keeper) keep(v VecVirtual) {
	t := YMM()
	VANDPS(k.abs, v, t)
	VCMPPS(notLess, k.bound, t, t)
	VANDPS(t, v, v)
}
