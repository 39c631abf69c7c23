package ternary

import "unsafe"

// bytesOf returns v's own memory as bytes.
func bytesOf[T int8 | int32 | float32](v []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(t)))
}
