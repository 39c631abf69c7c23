//go:build subnormals

package reference

import "sync/atomic"

// Subnormals counts the subnormal results of arithmetic since the program
// started. It exists only with the build tag "subnormals".
var Subnormals atomic.Int64

func observe(x float32) float32 {
	if x != 0 && abs(x) < pow2(-126) {
		Subnormals.Add(1)
	}
	return x
}
