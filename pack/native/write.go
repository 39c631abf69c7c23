package native

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"unsafe"

	"npack/ternary"
)

// Write writes m as a container and calls m.Release on what it has written. A
// model that came from a container gives the same bytes again, strides, flags
// and integrity words included. m must keep [ternary.Model.CheckShapes], or
// nothing is written; its values are not looked at.
func Write(w io.Writer, m *ternary.Model) error {
	if err := m.CheckShapes(); err != nil {
		return err
	}
	e := encoder{m: m, w: bufio.NewWriterSize(w, 64<<10)}
	eok := 2
	if m.Tied {
		eok = 1
	}
	e.int(magic, 4, int(m.Arch))
	for _, f := range m.Fields() {
		e.int(f.Value)
	}
	e.floats([]float32{m.RMSEps, m.RopeTheta})
	e.int(eok)

	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			e.trit(t)
		case t.Int8 != nil:
			e.int8(t)
		default:
			e.floats(t.Vector)
		}
		if e.err != nil {
			return e.err
		}
		m.ReleaseTensor(t)
	}
	return e.w.Flush()
}

const magic = 0x43545254 // "TRTC", little endian

// encoder keeps the first error.
type encoder struct {
	m    *ternary.Model
	part ternary.Part
	w    *bufio.Writer
	buf  [4]byte
	err  error
}

func (e *encoder) bytes(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

func (e *encoder) word(u uint32) {
	binary.LittleEndian.PutUint32(e.buf[:], u)
	e.bytes(e.buf[:])
}

func (e *encoder) int(v ...int) {
	for _, n := range v {
		e.word(uint32(n))
	}
}

func (e *encoder) floats(v []float32) {
	for _, f := range v {
		e.word(math.Float32bits(f))
	}
}

func (e *encoder) ints(v []int32) {
	for _, n := range v {
		e.word(uint32(n))
	}
}

// read returns rows of t, or keeps the error.
func (e *encoder) read(t ternary.Tensor, r0, r1 int) (part ternary.Tensor) {
	if e.err == nil {
		part, e.err = e.m.ReadRows(&e.part, t, r0, r1)
	}
	if e.err != nil {
		return ternary.Tensor{Ternary: new(ternary.Matrix), Int8: new(ternary.Int8Matrix)} // nothing is written any more
	}
	return part
}

func (e *encoder) trit(t ternary.Tensor) {
	m := e.read(t, 0, t.Ternary.Rows).Ternary
	e.int(t.Ternary.Rows, t.Ternary.Cols, t.Ternary.ColsPad, t.Ternary.Stride)
	e.bytes(m.BP)
	e.bytes(m.BN)
	e.bytes(m.BR)
	e.floats(m.SLo)
	e.floats(m.SHi)
	e.ints(m.RSLo)
	e.ints(m.RSHi)
	e.int(int(t.Ternary.BiasFlag))
	e.floats(t.Ternary.Bias)
}

// int8 writes a table in pieces: it may be larger than all that has to be in
// memory.
func (e *encoder) int8(t ternary.Tensor) {
	m := t.Int8
	e.int(m.Rows, m.Cols, m.ColsPad, m.Stride)
	scale, wsum := make([]float32, 0, m.Rows), make([]int32, 0, m.Rows)
	for r0, r1 := range t.Chunks() {
		part := e.read(t, r0, r1)
		e.bytes(int8Bytes(part.Int8.Q))
		scale, wsum = append(scale, part.Int8.Scale...), append(wsum, part.Int8.WSum...)
		e.m.ReleaseTensor(ternary.Tensor{Int8: part.Int8})
	}
	e.floats(scale)
	e.ints(wsum)
}

// int8Bytes returns q's own memory as bytes.
func int8Bytes(q []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q))), len(q))
}

// Size is the length of the container of a model with this configuration, as
// publishers write it: rows padded to 512 columns, tables to 64 values, and
// biases on q, k and v for Qwen2 alone. c must keep [ternary.Config.CheckDims].
func Size(c *ternary.Config) int64 {
	table := geometry + int64(c.Vocab)*(int64(padTo(c.Hidden, 64))+8)
	size := headerSize + table + 4*int64(c.Hidden)
	if !c.Tied {
		size += table
	}
	var layer int64
	for _, n := range new(ternary.Layer).Norms(c) {
		layer += 4 * int64(n.Len)
	}
	for j, s := range c.LinearShapes() {
		rows := int64(s.Rows)
		layer += geometry + rows*(3*int64(padTo(s.Cols, 512)/8)+16) + 4
		if c.Arch == ternary.Qwen2 && j < 3 {
			layer += 4 * rows
		}
	}
	return size + int64(c.Layers)*layer
}

// ModelSize is the length in bytes of what [Write] makes of m.
func ModelSize(m *ternary.Model) int64 {
	size := int64(headerSize)
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			w := t.Ternary
			size += geometry + int64(w.Rows)*(3*int64(w.Stride)+16) + 4 + 4*int64(len(w.Bias))
		case t.Int8 != nil:
			size += geometry + int64(t.Int8.Rows)*(int64(t.Int8.Stride)+8)
		default:
			size += 4 * int64(len(t.Vector))
		}
	}
	return size
}

func padTo(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }
