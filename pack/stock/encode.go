package stock

import (
	"encoding/binary"
	"math"

	"npack/gguf"
	"npack/ternary"
)

// Encoder encodes rows of a tensor. It is for one goroutine; a tensor may have
// several.
type Encoder struct {
	row func(dst []byte, part *ternary.Tensor, r int)
}

// NewEncoder returns an encoder for the tensor.
func (t *Tensor) NewEncoder() *Encoder {
	float := t.Type == gguf.F32 || t.Type == gguf.F16 || t.Type == gguf.BF16
	switch {
	case float || t.rounding == Nearest:
		src, put := make([]float32, t.Cols), floats[t.Type]
		return &Encoder{func(dst []byte, part *ternary.Tensor, r int) {
			part.Values(src, r)
			put(dst, src)
		}}
	case t.source.Int8 != nil:
		return &Encoder{new(table).row}
	case t.Type == gguf.Q6_K:
		return &Encoder{new(sixBit).row}
	}
	return &Encoder{newLevels(t.Type).row}
}

// Encode encodes all rows of part, which are some of the tensor's, into dst,
// which has [Tensor.RowSize] bytes for each.
func (e *Encoder) Encode(dst []byte, part ternary.Tensor) {
	rows := partRows(&part)
	size := len(dst) / max(1, rows)
	for r := range rows {
		e.row(dst[r*size:(r+1)*size], &part, r)
	}
}

func partRows(part *ternary.Tensor) int {
	switch {
	case part.Ternary != nil:
		return part.Ternary.Rows
	case part.Int8 != nil:
		return part.Int8.Rows
	}
	return 1
}

// values writes the weights of all rows of part as the container has them: those
// of an embedding are the float32 products, as FV5B's are.
func values(dst []float32, part ternary.Tensor) {
	rows := partRows(&part)
	cols := len(dst) / max(1, rows)
	for r := range rows {
		part.Values(dst[r*cols:(r+1)*cols], r)
	}
}

// floats are encoders that take values as they come and round each.
var floats = map[gguf.Type]func(dst []byte, src []float32){
	gguf.F32: putF32, gguf.F16: putF16, gguf.BF16: putBF16,
	gguf.Q8_0: nearestQ8, gguf.Q6_K: nearestQ6, gguf.Q5_0: nearestQ5, gguf.Q4_0: nearestQ4,
}

func putF32(dst []byte, src []float32) {
	for i, f := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(f))
	}
}

func putF16(dst []byte, src []float32) {
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], gguf.ToFloat16(f))
	}
}

// putBF16 rounds to the nearest, ties to even; weights are finite.
func putBF16(dst []byte, src []float32) {
	for i, f := range src {
		b := math.Float32bits(f)
		binary.LittleEndian.PutUint16(dst[2*i:], uint16((b+0x7fff+b>>16&1)>>16))
	}
}

// The packers below write one block of integers as llama.cpp lays them out.

func packQ8(dst []byte, d uint16, q []int8) {
	binary.LittleEndian.PutUint16(dst, d)
	for i, v := range q[:32] {
		dst[2+i] = byte(v)
	}
}

func packQ5(dst []byte, d uint16, q []int8) {
	binary.LittleEndian.PutUint16(dst, d)
	var high uint32
	for i := range 16 {
		a, b := uint32(q[i]+16), uint32(q[i+16]+16)
		dst[6+i] = byte(a&15 | b&15<<4)
		high |= a>>4<<i | b>>4<<(i+16)
	}
	binary.LittleEndian.PutUint32(dst[2:], high)
}

func packQ4(dst []byte, d uint16, q []int8) {
	binary.LittleEndian.PutUint16(dst, d)
	for i := range 16 {
		dst[2+i] = byte(q[i]+8) | byte(q[i+16]+8)<<4
	}
}

func packQ6(dst []byte, d uint16, scales *[16]int8, q []int8) {
	clear(dst[:192])
	for i, v := range q[:256] {
		c, h, l := byte(v+32), i/128, i%128
		dst[h*64+l%64] |= c & 15 << (l / 64 * 4)
		dst[128+h*32+l%32] |= c >> 4 << (l / 32 * 2)
	}
	for i, s := range scales {
		dst[192+i] = byte(s)
	}
	binary.LittleEndian.PutUint16(dst[208:], d)
}
