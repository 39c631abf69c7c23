package gguf

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapFile maps the file into memory, or reads it where it cannot be mapped.
func mapFile(f *os.File, size int64) (mapping, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return readFile(f, size)
	}
	// The view keeps the mapping alive.
	defer windows.CloseHandle(h)
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return readFile(f, size)
	}
	// The address is no Go memory: it is read through its own location so that
	// vet's rule about uintptr conversions, meant for Go memory, is kept.
	data := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), int(size))
	return mapping{data, nil, func() error { return windows.UnmapViewOfFile(addr) }}, nil
}
