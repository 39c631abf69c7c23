//go:build linux || darwin

package gguf

import "golang.org/x/sys/unix"

// releaser returns a function that takes the pages of a view of the map out of
// this process's memory; they stay in the system's cache and come back when they
// are touched.
//
// A fault maps the pages around it too, in Linux the aligned 64 KiB, some of
// which may belong to a view that was released before. So up to that much before
// b goes with it; without this a walk in chunks of 1 MiB leaves several percent
// of the file resident.
func releaser(data []byte) func([]byte) {
	const around = 64 << 10 // a multiple of every system's page size
	return func(b []byte) {
		at, ok := offsetIn(data, b)
		if !ok {
			return // not of this map: dropping other memory would lose it
		}
		// An error costs memory, not correctness.
		_ = unix.Madvise(data[at&^(around-1):at+len(b)], unix.MADV_DONTNEED)
	}
}
