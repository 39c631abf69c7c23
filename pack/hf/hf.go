// Package hf writes a model as a directory of the Hugging Face layout: dense
// weights in safetensors, config.json and the tokenizer's files, which the
// transformers library loads and runs. FORMAT.md beside this file is the
// description; "§" in comments names a section of it.
package hf

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
)

// Options say what is written.
type Options struct {
	DType    safetensors.DType // F32, which is exact, or BF16
	MaxShard int64             // bytes of data in a file at most; 0 is one file
	Side     string            // the directory that the tokenizer's files are copied from
	// Progress, if set, is told how many bytes of how many are written.
	Progress func(done, total int64)
}

// Result says what was written.
type Result struct {
	Bytes  int64 // of weights, all files together
	Files  int   // of weights
	DType  string
	SHA256 string // of the container that the model makes
	// Exact says that every weight is the container's; LargestError is how far
	// one is off otherwise, relative to it.
	Exact        bool
	LargestError float64
	Tokenizer    bool // a tokenizer.json was there to copy
}

// Size returns the bytes that the files of weights will have.
func Size(m *ternary.Model, o Options) (int64, error) {
	files, _, err := plan(m, o)
	return setSize(files), err
}

func setSize(files []safetensors.Header) (n int64) {
	for i := range files {
		n += int64(len(files[i].Encode())) + files[i].DataSize()
	}
	return n
}

// plan lays out the files of weights.
func plan(m *ternary.Model, o Options) ([]safetensors.Header, family, error) {
	if err := m.CheckShapes(); err != nil {
		return nil, 0, err
	}
	f, err := familyOf(m)
	if err != nil {
		return nil, 0, err
	}
	h := safetensors.Header{Metadata: []safetensors.KV{{Key: "format", Value: "pt"}}}
	add := func(name string, d safetensors.DType, shape ...int) {
		t := safetensors.Tensor{Name: name, DType: d}
		for _, n := range shape {
			t.Shape = append(t.Shape, int64(n))
		}
		h.Tensors = append(h.Tensors, t)
	}
	for t := range m.Tensors() {
		module, shape := Module(t.Name), t.Shape()
		if t.Vector != nil {
			add(module+".weight", o.DType, shape.Cols)
			continue
		}
		add(module+".weight", o.DType, shape.Rows, shape.Cols)
		if t.Ternary == nil {
			continue
		}
		if t.Ternary.Bias != nil {
			add(module+".bias", o.DType, shape.Rows)
		}
		if f == bitNet {
			add(module+".weight_scale", safetensors.F32, 1)
		}
	}
	files, err := h.Split(o.MaxShard)
	return files, f, err
}

// Write writes the model into d (§1). The error is a [*ternary.Error] if a
// weight breaks a rule, else a [*pack.Error] about what the layout cannot hold.
func Write(ctx context.Context, d *outfile.Dir, m *ternary.Model, o Options) (*Result, error) {
	files, f, err := plan(m, o)
	if err != nil {
		return nil, err
	}
	if _, err := m.Survey(ctx, ternary.WalkOptions{}); err != nil {
		return nil, err
	}
	side, err := CopySide(d, o.Side, m.Vocab)
	if err != nil {
		return nil, err
	}
	container, err := native.Digest(ctx, m)
	if err != nil {
		return nil, err
	}
	r := &Result{Bytes: setSize(files), Files: len(files), DType: o.DType.String(), Tokenizer: side.Tokenizer, SHA256: container.SHA256}
	if err := d.WriteFile("config.json", config(m, f, o.DType, side)); err != nil {
		return nil, err
	}
	x := &exporter{ctx: ctx, m: m, o: o, family: f, total: r.Bytes}
	if err := safetensors.WriteSet(d, files, x.write); err != nil {
		return nil, err
	}
	r.LargestError, r.Exact = x.worst, x.worst == 0
	if !r.Exact {
		return r, nil // another model: the container's rows are not its
	}
	w, err := d.Create(rows.Name)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	if err := rows.Write(ctx, w, m, container.SHA256, container.Bytes); err != nil {
		return nil, err
	}
	return r, w.Commit()
}

// exporter writes the data of all tensors.
type exporter struct {
	ctx         context.Context
	m           *ternary.Model
	o           Options
	family      family
	w           *bufio.Writer
	buf         []byte
	done, total int64
	worst       float64 // relative error
}

func (x *exporter) write(w io.Writer) error {
	x.w = bufio.NewWriterSize(w, 1<<20)
	for t := range x.m.Tensors() {
		if t.Vector != nil {
			if err := x.values(t.Name, -1, t.Vector); err != nil {
				return err
			}
			continue
		}
		if err := x.rows(t); err != nil {
			return err
		}
		if t.Ternary == nil {
			continue
		}
		if err := x.values(t.Name, -1, t.Ternary.Bias); err != nil {
			return err
		}
		if x.family == bitNet {
			if _, err := x.w.Write([]byte{0, 0, 0x80, 0x3f}); err != nil { // weight_scale: 1
				return err
			}
		}
	}
	return x.w.Flush()
}

// rows writes a matrix or table.
func (x *exporter) rows(t ternary.Tensor) error {
	v := make([]float32, t.Shape().Cols)
	var p ternary.Part
	for r0, r1 := range t.Chunks() {
		part, err := x.m.ReadRows(&p, t, r0, r1)
		if err != nil {
			return err
		}
		for r := range r1 - r0 {
			if err := tellable(t.Name, &part, r0, r); err != nil {
				return err
			}
			part.Values(v, r)
			if err := x.values(t.Name, r0+r, v); err != nil {
				return err
			}
		}
		x.m.ReleaseTensor(part)
	}
	return nil
}

// tellable refuses a row whose weights cannot be told from their values.
func tellable(name string, part *ternary.Tensor, r0, r int) error {
	if q := part.Int8; q != nil {
		if s := float64(q.Scale[r]); math.Abs(128*s) <= math.MaxFloat32 && (s != 0 || allZero(q.Row(r))) {
			return nil
		}
		return &pack.Error{Kind: pack.ErrUnsupported, Place: fmt.Sprintf("tensor %q: row %d", name, r0+r), Offset: -1,
			Found: fmt.Sprintf("scale %v", q.Scale[r]), Expected: "one whose products with the row's values are finite and tell them", Hint: "such a model can be converted to GGUF or tv4z"}
	}
	m := part.Ternary
	if m.SLo[r] != 0 && m.SHi[r] != 0 {
		return nil
	}
	for i := r * m.Stride; i < (r+1)*m.Stride; i++ {
		used := m.BP[i] | m.BN[i]
		if m.SLo[r] == 0 && used&^m.BR[i] != 0 || m.SHi[r] == 0 && used&m.BR[i] != 0 {
			return &pack.Error{Kind: pack.ErrUnsupported, Place: fmt.Sprintf("tensor %q: row %d", name, r0+r), Offset: -1,
				Found: "a weight that is not 0 has a magnitude of 0", Expected: "magnitudes that tell the weights", Hint: "such a model can be converted to GGUF or tv4z"}
		}
	}
	return nil
}

func allZero(q []int8) bool {
	for _, v := range q {
		if v != 0 {
			return false
		}
	}
	return true
}

// values writes floats in the type that is asked for: a row of the tensor of that
// name, or all of a vector if row is -1. It refuses those that the type does not
// hold.
func (x *exporter) values(name string, row int, v []float32) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	x.buf = x.buf[:0]
	for i, f := range v {
		bits := math.Float32bits(f)
		if x.o.DType == safetensors.BF16 {
			b := bits + 0x7fff + bits>>16&1 // to nearest, ties to even
			if b&0x7f800000 == 0x7f800000 {
				return tooLarge(name, row, i, f)
			}
			x.buf = binary.LittleEndian.AppendUint16(x.buf, uint16(b>>16))
			if bits&0xffff != 0 {
				x.off(f, math.Float32frombits(b&^0xffff))
			}
			continue
		}
		x.buf = binary.LittleEndian.AppendUint32(x.buf, bits)
	}
	_, err := x.w.Write(x.buf)
	if x.done += int64(len(x.buf)); x.o.Progress != nil {
		x.o.Progress(x.done, x.total)
	}
	return err
}

// infiniteBF16 is the least number that BF16 rounds to infinity.
const infiniteBF16 = 0x1.ffp127

// tooLarge is the error about a weight that BF16 rounds to infinity.
func tooLarge(name string, row, i int, f float32) error {
	place := fmt.Sprintf("tensor %q: value %d", name, i)
	if row >= 0 {
		place = fmt.Sprintf("tensor %q: row %d, column %d", name, row, i)
	}
	return &pack.Error{Kind: pack.ErrUnsupported, Place: place, Offset: -1, Found: fmt.Sprintf("%v, which BF16 rounds to infinity", f), Expected: fmt.Sprintf("less than %v", float32(infiniteBF16)), Hint: "F32 holds all weights"}
}

func (x *exporter) off(want, got float32) {
	x.worst = max(x.worst, math.Abs(float64(got)-float64(want))/math.Abs(float64(want)))
}
