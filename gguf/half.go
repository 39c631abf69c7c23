package gguf

// Float16 decodes an IEEE 754 binary16, exactly.
func Float16(bits uint16) float32 {
	return half([]byte{byte(bits), byte(bits >> 8)})
}

// ToFloat16 rounds to the nearest binary16, ties to even.
func ToFloat16(f float32) uint16 { return toHalf(f) }
