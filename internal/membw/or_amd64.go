//go:build !noasm

package membw

import "golang.org/x/sys/cpu"

//go:generate go -C _asm run . -out ../or_amd64.s -pkg membw

// orAVX2 returns the bitwise or of the 64-bit words of 4*lines lines of 64
// bytes, lines > 0. Its reference is orGeneric.
//
//go:noescape
func orAVX2(p *byte, lines int) uint64

// or returns the bitwise or of the 64-bit words of b, a multiple of 256 bytes.
func or(b []byte) uint64 {
	if !cpu.X86.HasAVX2 || len(b) == 0 {
		return orGeneric(b)
	}
	return orAVX2(&b[0], len(b)/256)
}
