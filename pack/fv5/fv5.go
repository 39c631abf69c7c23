// Package fv5 reads and writes two-magnitude ternary models as GGUF files with
// the tensor types FV5 and FV5B. FORMAT.md beside this file is the description;
// "§" in comments names a section of it.
//
// Blocks hold planes in pieces of 256 columns, so a model that is read is not in
// memory (see [ternary.Model.Rows]): its rows are gathered when they are asked
// for.
package fv5

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"npack/gguf"
	"npack/pack"
	"npack/pack/native"
	"npack/ternary"
)

// File is an open FV5 file. Its model is valid until Close; the file must not be
// changed or cut short meanwhile.
type File struct {
	name    string
	g       *gguf.File
	model   ternary.Model
	tensors map[string]*source // by [ternary.Tensor.Name]
	extra   extra
	sha256  string // of the container, or ""
	bytes   uint64
}

// source is where a tensor of the model comes from.
type source struct {
	*gguf.Tensor
	deviations // of the tensor
}

// Open maps the file at path, or the set of shards that it belongs to, and
// checks all but the values of matrices and tables. Those are checked when rows
// are read: a file of another program comes with no digest, and what breaks a
// rule must not become a container. Errors are [*pack.Error].
func Open(path string) (*File, error) {
	if err := identify(path); err != nil {
		return nil, err
	}
	g, err := gguf.Open(path)
	if err != nil {
		return nil, Explain(err)
	}
	f := &File{name: path, g: g}
	if err := f.read(); err != nil {
		g.Close()
		return nil, err
	}
	return f, nil
}

// OpenBytes opens a file that is in memory. b must not change afterwards.
func OpenBytes(name string, b []byte) (*File, error) {
	if _, err := pack.Identify(name, b[:min(len(b), pack.SniffLen)], int64(len(b))); err != nil {
		return nil, err
	}
	g, err := gguf.OpenBytes(name, b)
	if err != nil {
		return nil, Explain(err)
	}
	f := &File{name: name, g: g}
	return f, f.read()
}

// identify refuses what is no model file at all in the words of package pack.
func identify(path string) error {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return nil // package gguf says so
	}
	fd, err := os.Open(path)
	if err != nil {
		return err
	}
	defer fd.Close()
	head := make([]byte, min(st.Size(), pack.SniffLen))
	if _, err := fd.ReadAt(head, 0); err != nil {
		return err
	}
	_, err = pack.Identify(path, head, st.Size())
	return err
}

// Explain turns an error of package gguf into a [*pack.Error]. Other errors are
// returned as they are.
func Explain(err error) error {
	var e *gguf.Error
	if !errors.As(err, &e) {
		return err
	}
	kind := pack.ErrCorrupt
	switch e.Kind {
	case gguf.ErrTruncated:
		kind = pack.ErrTruncated
	case gguf.ErrUnsupported:
		kind = pack.ErrUnsupported
	case gguf.ErrNotGGUF:
		kind = pack.ErrNotModel
	}
	return &pack.Error{Kind: kind, File: e.File, Place: e.Place, Offset: e.Offset, Found: e.Found, Expected: e.Expected, Hint: e.Hint}
}

// read makes the model.
func (f *File) read() error {
	if err := f.checkTypes(); err != nil {
		return err
	}
	if err := f.config(); err != nil {
		return err
	}
	c := &f.model.Config
	embed := f.g.Tensor("token_embd.weight")
	if embed == nil {
		return f.fail(pack.ErrCorrupt, tensor("token_embd.weight"), "the tensor is not there", "an embedding", hintDamaged)
	}
	if embed.Rows() > ternary.MaxVocab {
		return f.fail(pack.ErrCorrupt, tensor(embed.Name), fmt.Sprintf("%d rows", embed.Rows()), fmt.Sprintf("at most %d", ternary.MaxVocab), hintDamaged)
	}
	c.Vocab = int(embed.Rows())
	c.Tied = f.g.Tensor("output.weight") == nil
	if err := c.CheckDims(); err != nil {
		return f.Place(err)
	}
	if c.Layers > len(f.g.Tensors) { // each has some; the number is not believed
		return f.fail(pack.ErrCorrupt, "key "+quote(c.Arch.String()+".block_count"), fmt.Sprintf("%d layers", c.Layers), fmt.Sprintf("as many as %d tensors make", len(f.g.Tensors)), hintDamaged)
	}
	if err := f.readExtra(); err != nil {
		return err
	}
	f.model.Rows, f.model.Release = f.rows, f.g.Release
	return f.build()
}

// build finds each tensor of the model in the file.
func (f *File) build() error {
	m := &f.model
	f.tensors = make(map[string]*source, len(f.g.Tensors))
	byName := make(map[string]*gguf.Tensor, len(f.g.Tensors))
	for i := range f.g.Tensors {
		byName[f.g.Tensors[i].Name] = &f.g.Tensors[i]
	}
	used := 0
	find := func(name string, typ gguf.Type, cols, rows int) (*gguf.Tensor, error) {
		t := byName[name]
		switch {
		case t == nil:
			return nil, f.fail(pack.ErrCorrupt, tensor(name), "the tensor is not there", "one of type "+typ.String(), hintDamaged)
		case t.Type != typ:
			return nil, f.fail(pack.ErrUnsupported, tensor(name), fmt.Sprintf("type %v", t.Type), typ.String(), "the file was made for another program, which is the one to run it")
		case t.Cols() != uint64(cols) || t.Rows() != uint64(rows):
			return nil, f.fail(pack.ErrCorrupt, tensor(name), fmt.Sprintf("dimensions %v", t.Dims), fmt.Sprintf("[%d %d], by the metadata", cols, rows), hintDamaged)
		}
		used++
		return t, nil
	}
	vector := func(name, what string, n int) ([]float32, error) {
		t, err := find(name+"."+what, gguf.F32, n, 1)
		if err != nil {
			return nil, err
		}
		v := make([]float32, n) // as many as are in the file
		if err := t.Type.Dequantize(v, t.Data); err != nil {
			return nil, err
		}
		part := ternary.PartNorm
		if what == "bias" {
			part = ternary.PartBias
		}
		for i, x := range v {
			if err := finite(name, part, i, x); err != nil {
				return nil, f.Place(err)
			}
		}
		return v, nil
	}
	i := 0 // of the tensor, in the model's order
	add := func(name string, t *gguf.Tensor) deviations {
		d := f.extra[i]
		f.tensors[name] = &source{t, d}
		i++
		return d
	}
	table := func(name string) (*ternary.Int8Matrix, error) {
		t, err := find(name+".weight", gguf.FV5B, m.Hidden, m.Vocab)
		if err != nil {
			return nil, err
		}
		q := &ternary.Int8Matrix{Rows: m.Vocab, Cols: m.Hidden, ColsPad: padTo(m.Hidden, 64), Stride: padTo(m.Hidden, 64)}
		d := add(name, t)
		return q, f.place(name, d.table(q))
	}

	if !m.Tied {
		var err error
		if m.Embed, err = table("token_embd"); err != nil {
			return err
		}
	}
	shapes := m.LinearShapes()
	m.Layers = make([]ternary.Layer, m.Config.Layers)
	for n := range m.Layers {
		l := &m.Layers[n]
		for _, x := range l.Norms(&m.Config) {
			var err error
			if *x.Data, err = vector(ternary.LayerName(n, x.Name), "weight", x.Len); err != nil {
				return err
			}
			i++
		}
		for j, w := range l.Linears() {
			name, s := ternary.LayerName(n, ternary.Projections[j]), shapes[j]
			t, err := find(name+".weight", gguf.FV5, s.Cols, s.Rows)
			if err != nil {
				return err
			}
			pad := padTo(s.Cols, 512)
			*w = ternary.Matrix{Rows: s.Rows, Cols: s.Cols, ColsPad: pad, Stride: pad / 8}
			if byName[name+".bias"] != nil {
				if w.Bias, err = vector(name, "bias", s.Rows); err != nil {
					return err
				}
				w.BiasFlag = 1
			}
			d := add(name, t)
			if err := f.place(name, d.matrix(w)); err != nil {
				return err
			}
		}
	}
	var err error
	if m.FinalNorm, err = vector("output_norm", "weight", m.Hidden); err != nil {
		return err
	}
	i++
	name := "output"
	if m.Tied {
		name = "token_embd"
	}
	head, err := table(name)
	if err != nil {
		return err
	}
	m.Head = *head
	if used != len(f.g.Tensors) {
		for i := range f.g.Tensors {
			t := &f.g.Tensors[i]
			if !f.uses(t) {
				return f.fail(pack.ErrUnsupported, tensor(t.Name), "the model has no such part", "the tensors of a "+m.Arch.String()+" model alone", "a newer program may be needed")
			}
		}
	}
	return f.Place(m.CheckShapes())
}

// uses reports whether the model that was built takes t.
func (f *File) uses(t *gguf.Tensor) bool {
	for x := range f.model.Tensors() {
		if t.Name == x.Name+".weight" || x.Ternary != nil && t.Name == x.Name+".bias" {
			return true
		}
	}
	return false
}

// Name is the path that the file was opened with.
func (f *File) Name() string { return f.name }

// Size is the length in bytes of the container that the model makes.
func (f *File) Size() int64 { return native.ModelSize(&f.model) }

// Model returns the model, which is not in memory. Reading rows that break a
// rule is an error, a [*ternary.Error], which Place understands.
func (f *File) Model() *ternary.Model { return &f.model }

// GGUF returns the file that the model is read from.
func (f *File) GGUF() *gguf.File { return f.g }

// Length is the length in bytes of the file, or of all shards.
func (f *File) Length() int64 { return f.g.Length() }

// Container returns the sha256, in hex, and the length of the container that the
// file was made from. ok is false for files of other programs: their row sums
// are computed.
func (f *File) Container() (sha256 string, bytes int64, ok bool) {
	return f.sha256, int64(f.bytes), f.sha256 != ""
}

// Close unmaps the file. The model must not be used afterwards.
func (f *File) Close() error { return f.g.Close() }

// rows gathers rows of a tensor out of its blocks; see [ternary.Model.Rows].
func (f *File) rows(p *ternary.Part, t ternary.Tensor, r0, r1 int) error {
	s := f.tensors[t.Name]
	p.Size(t, r1-r0)
	if t.Int8 != nil {
		return s.table(t.Name, &p.Int8, r0, f.g.Release)
	}
	if t.Ternary.Bias != nil {
		p.Ternary.Bias = t.Ternary.Bias[r0:r1]
	}
	return s.matrix(t.Name, &p.Ternary, r0, f.g.Release)
}

// matrix fills m with rows from r0 on.
func (s *source) matrix(name string, m *ternary.Matrix, r0 int, release func([]byte)) error {
	blocks := m.Cols / gguf.FV5Weights
	rowBytes := blocks * gguf.FV5Bytes
	data := s.Data[r0*rowBytes : (r0+m.Rows)*rowBytes]
	for r := range m.Rows {
		row := data[r*rowBytes : (r+1)*rowBytes]
		at := r * m.Stride
		bp, bn, br := m.BP[at:at+m.Stride], m.BN[at:at+m.Stride], m.BR[at:at+m.Stride]
		scales := binary.LittleEndian.Uint64(row)
		for b := range blocks {
			k := (*[gguf.FV5Bytes]byte)(row[b*gguf.FV5Bytes:])
			if binary.LittleEndian.Uint64(k[:]) != scales {
				return differs(name, ternary.PartSLo, r0+r, b*gguf.FV5Weights)
			}
			*(*[32]byte)(bp[32*b:]) = [32]byte(k[8:40])
			*(*[32]byte)(bn[32*b:]) = [32]byte(k[40:72])
			*(*[32]byte)(br[32*b:]) = [32]byte(k[72:104])
		}
		for _, plane := range [][]byte{bp, bn, br} {
			clear(plane[32*blocks:])
		}
		m.SLo[r] = math.Float32frombits(uint32(scales))
		m.SHi[r] = math.Float32frombits(uint32(scales >> 32))
		lo, hi, err := checkRow(name, m, r0, r)
		if err != nil {
			return err
		}
		m.RSLo[r], m.RSHi[r] = int32(lo), int32(hi)
	}
	s.rsLo.apply(m.RSLo, r0)
	s.rsHi.apply(m.RSHi, r0)
	release(data)
	return nil
}

// table fills m with rows from r0 on.
func (s *source) table(name string, m *ternary.Int8Matrix, r0 int, release func([]byte)) error {
	blocks := m.Cols / gguf.FV5Weights
	rowBytes := blocks * gguf.FV5BBytes
	data := s.Data[r0*rowBytes : (r0+m.Rows)*rowBytes]
	q := bytesOf(m.Q)
	for r := range m.Rows {
		row := data[r*rowBytes : (r+1)*rowBytes]
		to := q[r*m.Stride : (r+1)*m.Stride]
		scale := binary.LittleEndian.Uint32(row)
		for b := range blocks {
			k := row[b*gguf.FV5BBytes : (b+1)*gguf.FV5BBytes]
			if binary.LittleEndian.Uint32(k) != scale {
				return differs(name, ternary.PartScale, r0+r, b*gguf.FV5Weights)
			}
			copy(to[b*gguf.FV5Weights:], k[4:])
		}
		clear(to[m.Cols:])
		if s.padding != nil {
			copy(to[m.Cols:], s.padding[(r0+r)*(m.Stride-m.Cols):])
		}
		m.Scale[r] = math.Float32frombits(scale)
		if err := finite(name, ternary.PartScale, r0+r, m.Scale[r]); err != nil {
			return err
		}
		m.WSum[r] = int32(ternary.SumInt8(m.Row(r)))
	}
	s.wsum.apply(m.WSum, r0)
	release(data)
	return nil
}

func differs(name, part string, row, col int) error {
	return &ternary.Error{Tensor: name, Part: part, Row: row, Col: col,
		Found: "the block has another scale than the row's first", Expected: "a row's scales in each of its blocks"}
}

// Place turns an error of the model, a [*ternary.Error], into a [*pack.Error]
// with the place in the file. Other errors are returned as they are.
func (f *File) Place(err error) error {
	if errors.Is(err, ternary.ErrFault) {
		return pack.Unreadable(f.name, err)
	}
	var e *ternary.Error
	if !errors.As(err, &e) {
		return err
	}
	p := f.fail(pack.ErrCorrupt, tensor(e.Tensor+".weight"), e.Found, e.Expected, hintDamaged)
	if e.Tensor == "" {
		p.Place = "metadata"
		return p
	}
	name := e.Tensor + ".weight"
	if e.Part == ternary.PartBias {
		name = e.Tensor + ".bias"
	}
	p.Place = tensor(name)
	if at := e.At(); at != "" {
		p.Place += ": " + at
	}
	t := f.g.Tensor(name)
	if t == nil {
		return p
	}
	p.File = t.File()
	p.Offset = t.FileAt + within(t, e.Part, e.Row, e.Col)
	return p
}

// within is how far into a tensor's data a value lies, in bytes.
func within(t *gguf.Tensor, part string, row, col int) int64 {
	switch part {
	case ternary.PartRSLo, ternary.PartRSHi, ternary.PartWSum:
		return 0 // not in blocks
	case ternary.PartBias, ternary.PartNorm:
		return 4 * int64(max(row, 0))
	}
	weights, size := t.Type.Block()
	blocks := int64(t.Cols()) / int64(weights)
	row, col = max(row, 0), max(col, 0)
	at := (int64(row)*blocks + int64(col/weights)) * int64(size)
	in := int64(col % weights)
	switch part {
	case ternary.PartBP:
		at += 8 + in/8
	case ternary.PartBN:
		at += 40 + in/8
	case ternary.PartBR:
		at += 72 + in/8
	case ternary.PartSHi:
		at += 4
	case ternary.PartQ:
		at += 4 + in
	}
	return at
}

// place is Place for what is wrong with the extra record.
func (f *File) place(name string, err error) error {
	if err == nil {
		return nil
	}
	return f.fail(pack.ErrCorrupt, "key "+quote(keyExtra)+": "+tensor(name), err.Error(), "what npack writes", hintDamaged)
}

func (f *File) fail(kind error, place, found, expected, hint string) *pack.Error {
	return &pack.Error{Kind: kind, File: f.name, Place: place, Offset: -1, Found: found, Expected: expected, Hint: hint}
}

const hintDamaged = "the file is damaged or was made wrongly: compare its sha256 with the publisher's and fetch it again"

func padTo(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

func (f *File) damaged(place, found, expected string, offset int64) error {
	e := f.fail(pack.ErrCorrupt, place, found, expected, hintDamaged)
	e.Offset = offset
	return e
}
