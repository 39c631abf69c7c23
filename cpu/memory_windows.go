package cpu

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// allocate returns n bytes of zeros straight from the system: gigabytes of
// weights are none of the garbage collector's business.
func allocate(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	p, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_COMMIT|windows.MEM_RESERVE, windows.PAGE_READWRITE)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n), nil // memory that is not Go's does not move
}

// release gives memory of allocate back.
func release(b []byte) error {
	if b == nil {
		return nil
	}
	return windows.VirtualFree(uintptr(unsafe.Pointer(unsafe.SliceData(b))), 0, windows.MEM_RELEASE)
}
