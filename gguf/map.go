package gguf

import (
	"errors"
	"io"
	"os"
	"unsafe"
)

// mapping is a file's bytes in memory.
type mapping struct {
	data    []byte
	release func(b []byte) // see [File.Release]; nil if data is no map
	close   func() error
}

// readFile is what mapFile falls back to: the whole file in ordinary memory.
func readFile(f *os.File, size int64) (mapping, error) {
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return mapping{}, err
	}
	return mapping{data: data, close: func() error { return nil }}, nil
}

// offsetIn returns where in data the view b starts, if it is one and not empty.
func offsetIn(data, b []byte) (int, bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	// A start before data wraps to a large number.
	ok := len(b) > 0 && at < uintptr(len(data)) && uintptr(len(b)) <= uintptr(len(data))-at
	return int(at), ok
}
