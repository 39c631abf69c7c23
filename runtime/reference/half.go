package reference

import "math"

// F32toF16 converts to IEEE half precision, rounded to nearest even, with half
// subnormals and infinities; NaN becomes a quiet NaN.
func F32toF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520, the middle between the largest half and 2^16
		return sign | 0x7c00
	case b >= 0x38800000: // 2^-14, the smallest normal half
		b -= 112 << 23 // exponent bias 127 -> 15
		return sign | uint16(roundShift(b, 13))
	case b < 0x33000000: // 2^-25: half of the smallest subnormal; 2^-25 itself ties to 0
		return sign
	}
	// The significand as an integer, shifted so that one unit is 2^-24.
	return sign | uint16(roundShift(b&0x7fffff|0x800000, 126-b>>23))
}

// roundShift returns b / 2^n, 0 < n < 32, rounded to nearest even.
func roundShift(b, n uint32) uint32 {
	return (b + 1<<(n-1) - 1 + b>>n&1) >> n
}

// F16toF32 converts from IEEE half precision, exactly.
func F16toF32(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0: // frac * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
