package gguf

import (
	"encoding/binary"
	"math"
)

// The encoders below take the largest magnitude of a block as its scale, which
// is right for values -s, 0 and +s and for no others; Quantize finds out.

// trit is the code of f by its sign: 0, 1 or 2.
func trit(f float32) byte {
	switch {
	case f > 0:
		return 2
	case f < 0:
		return 0
	}
	return 1
}

func largest(src []float32) (m float32) {
	for _, f := range src {
		m = max(m, float32(math.Abs(float64(f))))
	}
	return m
}

// tq1At says where value i of a TQ1_0 block is: digit n of byte b. 160 values
// are five digits in each of 32 bytes, 80 in 16, the last 16 four digits in 4.
func tq1At(i int) (b, n int) {
	switch {
	case i < 160:
		return i % 32, i / 32
	case i < 240:
		return 32 + (i-160)%16, (i - 160) / 16
	}
	return 48 + (i-240)%4, (i - 240) / 4
}

var pow3 = [5]byte{1, 3, 9, 27, 81}

// decodeTQ1: 52 bytes of base-3 digits, f16 d: (q - 1) · d. A byte is the
// fraction of five digits, in 256ths rounded up: multiplied by a power of 3
// modulo 256 it is the fraction behind that digit, whose first one the product
// with 3 carries out.
func decodeTQ1(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[54:] {
		d := half(src[52:])
		for i := range 256 {
			b, n := tq1At(i)
			q := uint16(src[b]*pow3[n]) * 3 >> 8
			dst[i] = float32(int(q)-1) * d
		}
	}
}

func encodeTQ1(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[54:], src[256:] {
		var digits [52]uint16
		for i, f := range src[:256] {
			b, n := tq1At(i)
			digits[b] += uint16(trit(f)) * uint16(pow3[4-n])
		}
		for b, v := range digits {
			dst[b] = byte((v*256 + 242) / 243)
		}
		binary.LittleEndian.PutUint16(dst[52:], toHalf(largest(src[:256])))
	}
}

// decodeTQ2: 64 bytes of bit pairs, f16 d: (q - 1) · d. In each half of the block
// byte l of 32 holds values l, l+32, l+64 and l+96, the first in the lowest bits.
func decodeTQ2(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[66:] {
		d := half(src[64:])
		for i := range 256 {
			q := src[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
			dst[i] = float32(int(q)-1) * d
		}
	}
}

func encodeTQ2(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[66:], src[256:] {
		clear(dst[:64])
		for i, f := range src[:256] {
			dst[i/128*32+i%32] |= trit(f) << (i % 128 / 32 * 2)
		}
		binary.LittleEndian.PutUint16(dst[64:], toHalf(largest(src[:256])))
	}
}

// decodeQ2: f16 d, bit pairs of 64 values (or 128, in a fork), four values a byte
// from the lowest bits up: (q - 1) · d, so that one code of four is +2.
func decodeQ2(n int) func(dst []float32, src []byte) {
	return func(dst []float32, src []byte) {
		for ; len(dst) > 0; dst, src = dst[n:], src[2+n/4:] {
			d := half(src)
			for i := range n {
				q := src[2+i/4] >> (i % 4 * 2) & 3
				dst[i] = float32(int(q)-1) * d
			}
		}
	}
}

func encodeQ2(n int) func(dst []byte, src []float32) {
	return func(dst []byte, src []float32) {
		for ; len(src) > 0; dst, src = dst[2+n/4:], src[n:] {
			clear(dst[2 : 2+n/4])
			for i, f := range src[:n] {
				dst[2+i/4] |= trit(f) << (i % 4 * 2)
			}
			binary.LittleEndian.PutUint16(dst, toHalf(largest(src[:n])))
		}
	}
}

// i2sTail is what follows the codes of an I2_S tensor: its f32 scale, and nothing
// in the other bytes.
const i2sTail = 32

// decodeI2S: bit pairs of the whole tensor, then its one f32 scale: (q - 1) · s.
// Of 128 values byte l of 32 holds l, l+32, l+64 and l+96, the first in the
// highest bits. (The fork's ARM build packs groups of 64 and cannot be told from
// this; published files are packed like this.)
func decodeI2S(dst []float32, src []byte) {
	s := math.Float32frombits(binary.LittleEndian.Uint32(src[len(dst)/4:]))
	for i := range dst {
		q := src[i/128*32+i%32] >> (6 - i%128/32*2) & 3
		dst[i] = float32(int(q)-1) * s
	}
}

func encodeI2S(dst []byte, src []float32) {
	clear(dst)
	for i, f := range src {
		dst[i/128*32+i%32] |= trit(f) << (6 - i%128/32*2)
	}
	binary.LittleEndian.PutUint32(dst[len(src)/4:], math.Float32bits(largest(src)))
}

// Blocks of FV5 and FV5B, in values and bytes.
const (
	FV5Weights = 256
	FV5Bytes   = 104
	FV5BBytes  = 260
)

// PutFV5 writes one block: the two magnitudes and 32 bytes of each plane, bit i
// of byte j being value 8j+i.
func PutFV5(dst []byte, lo, hi float32, bp, bn, br []byte) {
	_ = dst[FV5Bytes-1]
	binary.LittleEndian.PutUint32(dst, math.Float32bits(lo))
	binary.LittleEndian.PutUint32(dst[4:], math.Float32bits(hi))
	copy(dst[8:40], bp[:32])
	copy(dst[40:72], bn[:32])
	copy(dst[72:104], br[:32])
}

// SplitFV5 returns the parts of a block; the planes are views.
func SplitFV5(b []byte) (lo, hi float32, bp, bn, br []byte) {
	_ = b[FV5Bytes-1]
	lo = math.Float32frombits(binary.LittleEndian.Uint32(b))
	hi = math.Float32frombits(binary.LittleEndian.Uint32(b[4:]))
	return lo, hi, b[8:40], b[40:72], b[72:104]
}

// decodeFV5: (bp - bn) · (br ? hi : lo).
func decodeFV5(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[FV5Weights:], src[FV5Bytes:] {
		lo, hi, bp, bn, br := SplitFV5(src)
		for i := range FV5Weights {
			bit := func(p []byte) int { return int(p[i/8] >> (i % 8) & 1) }
			s := lo
			if bit(br) != 0 {
				s = hi
			}
			dst[i] = float32(bit(bp)-bit(bn)) * s
		}
	}
}

// decodeFV5B: f32 s, then 256 int8: q · s.
func decodeFV5B(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[FV5Weights:], src[FV5BBytes:] {
		s := math.Float32frombits(binary.LittleEndian.Uint32(src))
		for i, q := range src[4:FV5BBytes] {
			dst[i] = float32(int8(q)) * s
		}
	}
}
