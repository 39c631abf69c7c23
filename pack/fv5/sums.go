package fv5

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"npack/gguf"
)

// blockSums returns the sums of bp - bn over the columns of each magnitude, and a
// word that is not 0 if bp and bn share a bit or br has one that neither has.
func blockSums(k *[gguf.FV5Bytes]byte) (lo, hi int, bad uint64) {
	for i := range 4 {
		p := binary.LittleEndian.Uint64(k[8+8*i:])
		n := binary.LittleEndian.Uint64(k[40+8*i:])
		r := binary.LittleEndian.Uint64(k[72+8*i:])
		bad |= p&n | r&^(p|n)
		h := bits.OnesCount64(p&r) - bits.OnesCount64(n&r)
		hi += h
		lo += bits.OnesCount64(p) - bits.OnesCount64(n) - h
	}
	return lo, hi, bad
}

// bytesOf returns v's own memory as bytes.
func bytesOf(v []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}
