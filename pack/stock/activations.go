package stock

import (
	"math"

	"npack/gguf"
)

// RoundActivations rounds x, the input of a linear whose weights are of type t,
// in place as llama.cpp's CPU backend does before it multiplies: it brings
// activations into the number format that its dot product for t takes. F32
// leaves them alone. The length is a multiple of t's block.
//
// On a GPU other roundings apply; some kernels do none.
func RoundActivations(t gguf.Type, x []float64) {
	switch t {
	case gguf.F16:
		for i, v := range x {
			x[i] = float64(gguf.Float16(gguf.ToFloat16(float32(v))))
		}
	case gguf.BF16:
		for i, v := range x {
			b := math.Float32bits(float32(v))
			x[i] = float64(math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff))
		}
	case gguf.Q8_0, gguf.Q5_0, gguf.Q4_0: // with Q8_0
		for ; len(x) > 0; x = x[32:] {
			largest := largest64(x[:32])
			d := float64(gguf.Float16(gguf.ToFloat16(float32(largest / 127))))
			roundTo(x[:32], 127/largest, d)
		}
	case gguf.Q6_K: // with Q8_K
		for ; len(x) > 0; x = x[256:] {
			largest := largest64(x[:256])
			roundTo(x[:256], 127/largest, largest/127)
		}
	}
}

func largest64(x []float64) (m float64) {
	for _, v := range x {
		m = max(m, math.Abs(v))
	}
	return m
}

func roundTo(x []float64, inv, d float64) {
	for i, v := range x {
		if v != 0 {
			x[i] = math.RoundToEven(v*inv) * d
		}
	}
}
