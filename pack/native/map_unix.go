//go:build unix

package native

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the file into memory, or reads it where it cannot be mapped
// (some network and virtual file systems).
func mapFile(f *os.File, size int64) (mapping, error) {
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return readFile(f, size)
	}
	advise(data)
	return mapping{data, releaser(data), func() error { return unix.Munmap(data) }}, nil
}
