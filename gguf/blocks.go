package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// codec decodes, and where set encodes, the values of a type. Both see whole
// blocks (of I2_S a whole tensor) and lengths that fit.
type codec struct {
	decode func(dst []float32, src []byte)
	// encode leaves it to the caller to find out whether it was exact.
	encode func(dst []byte, src []float32)
}

// codecs are the types that are decoded here. Each value is one float32 product
// of what §5 says, rounded once for each "·".
func (t Type) codec() codec {
	switch t {
	case F32:
		return codec{decodeF32, encodeF32}
	case F16:
		return codec{decodeF16, encodeF16}
	case BF16:
		return codec{decodeBF16, encodeBF16}
	case Q4_0:
		return codec{decodeQ4, nil}
	case Q5_0:
		return codec{decodeQ5, nil}
	case Q8_0:
		return codec{decodeQ8, nil}
	case Q6_K:
		return codec{decodeQ6K, nil}
	case TQ1_0:
		return codec{decodeTQ1, encodeTQ1}
	case TQ2_0:
		return codec{decodeTQ2, encodeTQ2}
	case Q2_0:
		return codec{decodeQ2(64), encodeQ2(64)}
	case Q2_0G128:
		return codec{decodeQ2(128), encodeQ2(128)}
	case I2_S:
		return codec{decodeI2S, encodeI2S}
	case FV5:
		return codec{decodeFV5, nil}
	case FV5B:
		return codec{decodeFV5B, nil}
	}
	return codec{}
}

// Decodes reports whether [Type.Dequantize] knows the type.
func (t Type) Decodes() bool { return t.codec().decode != nil }

// Dequantize decodes len(dst) values, whole blocks, from src. Of I2_S, whose
// scale is at the end, they are a whole tensor. It returns an error wrapping
// [ErrUnsupported] for types that this package does not decode.
func (t Type) Dequantize(dst []float32, src []byte) error {
	c := t.codec()
	if c.decode == nil {
		return fmt.Errorf("values of type %v are not decoded here: %w", t, ErrUnsupported)
	}
	size, err := t.Size([]uint64{uint64(len(dst))})
	if err != nil {
		return err
	}
	if size != int64(len(src)) {
		return fmt.Errorf("%d bytes of type %v for %d values, expected %d: %w", len(src), t, len(dst), size, ErrCorrupt)
	}
	if len(dst) > 0 {
		c.decode(dst, src)
	}
	return nil
}

// Quantize encodes src, whole blocks (of I2_S a whole tensor), into dst, if the
// type holds each value exactly. Otherwise the error wraps [ErrInexact] and
// names the first value that it does not hold; rounding is for those who know
// what the values mean.
func (t Type) Quantize(dst []byte, src []float32) error {
	c := t.codec()
	if c.encode == nil {
		return fmt.Errorf("type %v has no exact encoder: %w", t, ErrUnsupported)
	}
	size, err := t.Size([]uint64{uint64(len(src))})
	if err != nil {
		return err
	}
	if size != int64(len(dst)) {
		return fmt.Errorf("%d bytes of type %v for %d values, expected %d: %w", len(dst), t, len(src), size, ErrCorrupt)
	}
	if len(src) == 0 {
		return nil
	}
	c.encode(dst, src)
	back := make([]float32, len(src))
	c.decode(back, dst)
	for i := range src {
		if src[i] != back[i] && (src[i] == src[i] || back[i] == back[i]) { // NaN is NaN
			return fmt.Errorf("value %d: %v becomes %v in type %v: %w", i, src[i], back[i], t, ErrInexact)
		}
	}
	return nil
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func encodeF32(dst []byte, src []float32) {
	for i, f := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(f))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half(src[2*i:])
	}
}

func encodeF16(dst []byte, src []float32) {
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], toHalf(f))
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func encodeBF16(dst []byte, src []float32) {
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(math.Float32bits(f)>>16))
	}
}

// decodeQ4: f16 d, then nibbles; value j of 32 is the low one of byte j, or the
// high one of byte j-16: (q - 8) · d.
func decodeQ4(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[18:] {
		d := half(src)
		for j, q := range src[2:18] {
			dst[j] = float32(int(q&15)-8) * d
			dst[j+16] = float32(int(q>>4)-8) * d
		}
	}
}

// decodeQ5 is decodeQ4 with a fifth bit from a u32 after d: (q - 16) · d.
func decodeQ5(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[22:] {
		d, high := half(src), binary.LittleEndian.Uint32(src[2:])
		for j, q := range src[6:22] {
			dst[j] = float32(int(uint32(q&15)|high>>j&1<<4)-16) * d
			dst[j+16] = float32(int(uint32(q>>4)|high>>(j+16)&1<<4)-16) * d
		}
	}
}

// decodeQ8: f16 d, then 32 int8: q · d.
func decodeQ8(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[34:] {
		d := half(src)
		for j, q := range src[2:34] {
			dst[j] = float32(int8(q)) * d
		}
	}
}

// decodeQ6K: 128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales, f16
// d: (d · scale) · (q - 32), 16 values a scale. In each half of the block, byte l
// of 64 nibbles holds values l and l+64, and byte l of 32 pairs values l, l+32,
// l+64 and l+96.
func decodeQ6K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[210:] {
		low, high, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
		for i := range 256 {
			h, l := i/128, i%128
			q := low[h*64+l%64] >> (l / 64 * 4) & 15
			q |= high[h*32+l%32] >> (l / 32 * 2) & 3 << 4
			dst[i] = float32(d*float32(int8(scales[i/16]))) * float32(int(q)-32)
		}
	}
}

// half decodes an IEEE 754 binary16.
func half(b []byte) float32 {
	h := uint32(binary.LittleEndian.Uint16(b))
	sign, exp, frac := h>>15<<31, h>>10&31, h&1023
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp > 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	f := float32(frac) * 0x1p-24 // exact
	return math.Float32frombits(sign | math.Float32bits(f))
}

// toHalf rounds to the nearest binary16, ties to even.
func toHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign, abs := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case abs > 0xff<<23:
		return sign | 0x7e00 // NaN
	case abs >= 0x477ff000: // 65520, half way past the largest
		return sign | 0x7c00
	case abs < 113<<23: // below the normal numbers, 2^-14: a multiple of 2^-24
		// Adding 2^-1 leaves 2^-24 as the weight of the last bit.
		g := math.Float32frombits(abs) + 0.5
		return sign | uint16(math.Float32bits(g)-math.Float32bits(0.5))
	}
	abs += 0xfff + abs>>13&1 // round to even
	return sign | uint16((abs-112<<23)>>13)
}
