//go:build !linux

package membw

func allocate(n int) (b []byte, release func()) { return heap(n) }
