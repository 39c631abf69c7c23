package reference

import "math"

// Every float32 operation of the forward pass goes through add, sub and mul.
// The conversion in each is what forbids the compiler to fuse a product with a
// sum (Go specification, "Floating-point operators"); a test reads the
// compiler's listing for arm64 and GOAMD64=v3 and finds no fused instruction.
// observe counts subnormal results when built with the tag "subnormals" and is
// nothing otherwise.

func add(x, y float32) float32 { return observe(float32(x + y)) }
func sub(x, y float32) float32 { return observe(float32(x - y)) }
func mul(x, y float32) float32 { return observe(float32(x * y)) }

// Keep returns 0 if |x| < 2^-k, else x. NaN stays NaN. k is below 127.
func Keep(x float32, k uint) float32 {
	if abs(x) < pow2(-int32(k)) {
		return 0
	}
	return x
}

// keepAll applies [Keep] to every element of x.
func keepAll(x []float32, k uint) {
	for i, v := range x {
		x[i] = Keep(v, k)
	}
}

// Fold adds the halves of v onto each other until one value is left and
// returns it. len(v) is a power of two; v is overwritten.
func Fold(v []float32) float32 {
	for n := len(v) / 2; n > 0; n /= 2 {
		for i := range n {
			v[i] = add(v[i], v[i+n])
		}
	}
	return v[0]
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// pow2 returns 2^n for -126 <= n <= 127.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// finite reports whether x is neither NaN nor infinite.
func finite(x float32) bool { return math.Float32bits(x)>>23&0xff != 0xff }
