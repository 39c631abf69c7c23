//go:build !unix && !windows

package cpu

func allocate(n int) ([]byte, error) { return make([]byte, n), nil }

func release([]byte) error { return nil }
