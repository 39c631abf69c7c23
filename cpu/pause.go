//go:build !noasm && (amd64 || arm64)

package cpu

// pause tells the processor n > 0 times that this is a waiting loop.
//
//go:noescape
func pause(n uint32)
