//go:build !noasm

package coded

import "golang.org/x/sys/cpu"

//go:generate go -C _asm run . -out ../pair_amd64.s -pkg coded

// decodePairBMI2 is decodePairGeneric for symbols > 0. It needs BMI2, LZCNT and
// MOVBE.
//
//go:noescape
func decodePairBMI2(lanes *[2]lane, symbols int) (eaten0, eaten1 int)

var haveKernel = cpu.X86.HasBMI2 && cpu.X86.HasLZCNT && cpu.X86.HasMOVBE

// decodePair is decodePairGeneric for symbols > 0.
func decodePair(lanes *[2]lane, symbols int) (eaten0, eaten1 int) {
	if haveKernel {
		return decodePairBMI2(lanes, symbols)
	}
	return decodePairGeneric(lanes, symbols)
}
