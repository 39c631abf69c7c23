package native

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// littleEndian says whether numbers of the file can be used where they lie.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// floats returns b as float32 values: a view of it where the machine's order of
// bytes and alignment allow, else a copy.
func floats(b []byte) []float32 {
	if viewable(b) {
		return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// ints is floats for int32 values.
func ints(b []byte) []int32 {
	if viewable(b) {
		return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
	}
	v := make([]int32, len(b)/4)
	for i := range v {
		v[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

func viewable(b []byte) bool {
	return littleEndian && uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == 0
}

// int8s returns b's own memory as int8 values.
func int8s(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}

// offsetIn returns where in data the view b starts, if it is one and not empty.
func offsetIn(data, b []byte) (int, bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	// A start before data wraps to a large number.
	ok := len(b) > 0 && at < uintptr(len(data)) && uintptr(len(b)) <= uintptr(len(data))-at
	return int(at), ok
}
