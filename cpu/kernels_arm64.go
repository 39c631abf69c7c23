//go:build !noasm

package cpu

import (
	"math"

	"golang.org/x/sys/cpu"
)

// All tiles have 4 rows: a part of a block is one 128-bit vector, and each of
// its lanes a row. With 32 registers that leaves 18 for sums that do not depend
// on each other, and more rows would need registers for little: the activations
// that rows share come from the first-level cache.

var i8mm = kernels{
	name: "i8mm", about: "Arm int8 matrix products (Neoverse V1, N2, Apple M2 and later)",
	present:   func() bool { return cpu.ARM64.HasASIMDDP && cpu.ARM64.HasI8MM },
	linear:    codeLinears(4, sdotDot, expandNEON, dotManyOf(manySMMLA, math.MaxInt), finishNEON),
	int8Bytes: int8DigitsBytes, int8Pack: int8PackDigits, int8Dot: sdot.int8Dot,
	vec: &neonVectors,
}

var sdot = kernels{
	name: "sdot", about: "Arm int8 dot products (Neoverse N1, Cortex-A55 and A76, Apple M1 and later)",
	present:   func() bool { return cpu.ARM64.HasASIMDDP },
	linear:    codeLinears(4, sdotDot, expandNEON, dotManyOf(manySDOT, math.MaxInt), finishNEON),
	int8Bytes: int8DigitsBytes, int8Pack: int8PackDigits,
	int8Dot: int8DotOf(int8DotSDOT1, int8DotSDOT2, int8DotSDOT3),
	vec:     &neonVectors,
}

var neon = kernels{
	name: "neon", about: "128-bit vectors, every 64-bit Arm",
	present:   func() bool { return cpu.ARM64.HasASIMD },
	linear:    codeLinears(4, neonDot, expandNEON, dotManyOf(manyNEON, neonRun), finishNEON),
	int8Bytes: int8DigitsBytes, int8Pack: int8PackDigits,
	int8Dot: int8DotOf(int8DotNEON1, int8DotNEON2, int8DotNEON3),
	vec:     &neonVectors,
}

var (
	sdotDot = [4]func([]int32, []byte, []int8, int){1: dotSDOT1, 2: dotSDOT2, 3: dotSDOT3}
	neonDot = [4]func([]int32, []byte, []int8, int){1: dotNEON1, 2: dotNEON2, 3: dotNEON3}
)

// neonRun is the number of blocks whose products manyNEON can add up in 16 bits.
const neonRun = 16

func archSets() []*kernels { return []*kernels{&i8mm, &sdot, &neon} }
