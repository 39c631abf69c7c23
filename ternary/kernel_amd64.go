//go:build !noasm

package ternary

import "golang.org/x/sys/cpu"

//go:generate go -C _asm run . -out ../kernel_amd64.s -pkg ternary

// countPlanesAVX2 sets out to what countPlanesGeneric would add to it for
// blocks > 0 blocks of 32 bytes of each plane.
//
//go:noescape
func countPlanesAVX2(bp, bn, br *byte, blocks int, out *[5]uint64)

// sumBytesAVX2 returns the sum of blocks > 0 blocks of 32 bytes, each with its
// top bit flipped: of int8 values plus 128. Its reference is sumInt8Generic.
//
//go:noescape
func sumBytesAVX2(q *byte, blocks int) uint64

// countPlanesFast counts a part of the planes, from the start, and returns how
// many bytes of each.
func countPlanesFast(bp, bn, br []byte, sums *[5]uint64) int {
	if len(bp) < 32 || !cpu.X86.HasAVX2 {
		return 0
	}
	countPlanesAVX2(&bp[0], &bn[0], &br[0], len(bp)/32, sums)
	return len(bp) &^ 31
}

// sumInt8Fast adds up a part of q, from the start, and returns how many values.
func sumInt8Fast(q []int8) (sum int64, n int) {
	if len(q) < 32 || !cpu.X86.HasAVX2 {
		return 0, 0
	}
	n = len(q) &^ 31
	return int64(sumBytesAVX2(&bytesOf(q)[0], n/32)) - 128*int64(n), n
}
