package native

import "golang.org/x/sys/unix"

// advise asks that a file that is not in the system's cache yet is read into
// it in pages of 2 MiB, where the file system has them. Mapping 4 KiB pages
// takes longer than counting the weights in them: a walk over an 8B file has
// then three quarters of the memory's speed instead of two fifths. Without the
// feature nothing changes.
func advise(data []byte) { _ = unix.Madvise(data, unix.MADV_HUGEPAGE) }
