package native

import (
	"errors"
	"io"
	"os"
)

// mapping is a file's bytes in memory.
type mapping struct {
	data    []byte
	release func(b []byte) // see [ternary.Model.Release]; nil if data is no map
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
