package ternary

import "unsafe"

// int8Bytes returns q's own memory as bytes.
func int8Bytes(q []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q))), len(q))
}
