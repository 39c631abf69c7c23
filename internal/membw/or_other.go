//go:build noasm || !amd64

package membw

// or returns the bitwise or of the 64-bit words of b, a multiple of 256 bytes.
func or(b []byte) uint64 { return orGeneric(b) }
