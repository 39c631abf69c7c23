//go:build linux || darwin

package native

import (
	"os"

	"golang.org/x/sys/unix"
)

// releaser returns a function that takes the pages of a view of the map out of
// this process's memory; they stay in the system's cache and come back when
// they are touched. Pages that the view shares with its neighbours go too.
func releaser(data []byte) func([]byte) {
	page := os.Getpagesize()
	return func(b []byte) {
		at, ok := offsetIn(data, b)
		if !ok {
			return // not of this map: dropping other memory would lose it
		}
		// An error costs memory, not correctness.
		_ = unix.Madvise(data[at&^(page-1):at+len(b)], unix.MADV_DONTNEED)
	}
}
