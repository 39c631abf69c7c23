//go:build unix

package cpu

import "golang.org/x/sys/unix"

// allocate returns n bytes of zeros straight from the system, in huge pages
// where it gives them: gigabytes of weights are none of the garbage collector's
// business, and a walk over them should not miss the TLB at every page.
func allocate(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err == nil {
		adviseHuge(b)
	}
	return b, err
}

// release gives memory of allocate back.
func release(b []byte) error {
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}
