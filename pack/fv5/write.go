package fv5

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"strings"
	"unsafe"

	"npack/gguf"
	"npack/pack"
	"npack/pack/native"
	"npack/ternary"
)

// Options are what a file says besides the model.
type Options struct {
	Name      string     // general.name; "" leaves the key out
	Version   string     // of this program, for the provenance key
	Tokenizer *Tokenizer // nil leaves its keys out
}

// Write writes m as a GGUF file and calls m.Release on what it has written. The
// file holds all that the container of m holds, so that reading gives the same
// container again. Rows that are not whole blocks, and weights that break a rule
// of the format, are an error, a [*ternary.Error] where there is a place.
//
// Digests stand before the data. If w can seek they are filled in at the end;
// otherwise m is read twice.
func Write(w io.Writer, m *ternary.Model, o Options) error {
	x, err := newExport(m, o)
	if err != nil {
		return err
	}
	seek, start := seeker(w)
	if seek == nil {
		if _, err := x.pass(io.Discard); err != nil {
			return err
		}
		if same, err := x.pass(w); err != nil || same {
			return err
		}
		return errors.New("the model changed while it was written")
	}
	// A second pass is for models with something in the extra record that only
	// reading them shows: the header grows.
	for range 2 {
		if _, err := seek.Seek(start, io.SeekStart); err != nil {
			return err
		}
		length := x.size()
		if _, err := x.pass(w); err != nil {
			return err
		}
		if x.size() != length {
			continue
		}
		if _, err := seek.Seek(start, io.SeekStart); err != nil {
			return err
		}
		h, err := x.header()
		if err != nil {
			return err
		}
		if _, err := w.Write(h.Encode()); err != nil {
			return err
		}
		_, err = seek.Seek(start+length, io.SeekStart)
		return err
	}
	return errors.New("the model changed while it was written")
}

// seeker returns w if it can seek, and where it is.
func seeker(w io.Writer) (io.Seeker, int64) {
	if s, ok := w.(io.Seeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			return s, at
		}
	}
	return nil, 0
}

// Size is the length in bytes of the file that [Write] makes of m, unless m
// holds row sums that are no plain sums, which make it longer. The error is that
// of writing.
func Size(m *ternary.Model, o Options) (int64, error) {
	x, err := newExport(m, o)
	if err != nil {
		return 0, err
	}
	return x.size(), nil
}

// export is a model on its way into a file.
type export struct {
	m     *ternary.Model
	o     Options
	parts []part // in file order
	fixed []gguf.KV

	// What only reading the model tells.
	container string              // its sha256 in hex
	digests   [][sha256.Size]byte // of parts
	extra     extra
}

// part is a tensor of the file: one of the model, or a bias.
type part struct {
	gguf.Tensor
	t     ternary.Tensor
	index int // of t in the model
	bias  bool
}

func newExport(m *ternary.Model, o Options) (*export, error) {
	if err := m.CheckShapes(); err != nil {
		return nil, err
	}
	x := &export{m: m, o: o, container: strings.Repeat("0", 2*sha256.Size), extra: extra{}}
	i := 0
	for t := range m.Tensors() {
		p := part{t: t, index: i, Tensor: gguf.Tensor{Name: t.Name + ".weight"}}
		switch {
		case t.Ternary != nil:
			p.Type, p.Dims = gguf.FV5, dims(t.Ternary.Cols, t.Ternary.Rows)
		case t.Int8 != nil:
			p.Type, p.Dims = gguf.FV5B, dims(t.Int8.Cols, t.Int8.Rows)
		default:
			p.Type, p.Dims = gguf.F32, dims(len(t.Vector))
		}
		if cols := p.Cols(); p.Type != gguf.F32 && cols%gguf.FV5Weights != 0 {
			return nil, &pack.Error{Kind: pack.ErrUnsupported, Place: tensor(t.Name), Offset: -1, Found: fmt.Sprintf("%d x %d (rows x columns)", p.Rows(), cols),
				Expected: fmt.Sprintf("columns in whole blocks of %d", gguf.FV5Weights), Hint: "GGUF cannot hold this model; its container and the coded transport can"}
		}
		x.parts = append(x.parts, p)
		if w := t.Ternary; w != nil && w.Bias != nil {
			x.parts = append(x.parts, part{t: t, index: i, bias: true, Tensor: gguf.Tensor{Name: t.Name + ".bias", Type: gguf.F32, Dims: dims(w.Rows)}})
		}
		if err := x.geometry(i, t); err != nil {
			return nil, err
		}
		i++
	}
	x.digests = make([][sha256.Size]byte, len(x.parts))
	x.fixed = metadata(&m.Config)
	if o.Name != "" {
		x.fixed = slices.Insert(x.fixed, 1, gguf.KV{Key: keyName, Value: gguf.String(o.Name)})
	}
	version := o.Version
	if version == "" {
		version = "devel"
	}
	x.fixed = append(x.fixed, gguf.KV{Key: keyFileType, Value: gguf.Uint32(fileType)}, gguf.KV{Key: keyQuantVersion, Value: gguf.Uint32(2)},
		gguf.KV{Key: keyProvenance, Value: gguf.String("fermion-fv5/npack-" + version)})
	if o.Tokenizer != nil {
		x.fixed = append(x.fixed, o.Tokenizer.metadata()...)
	}
	// Errors of the layout come before anything is read or written.
	_, err := x.header()
	return x, err
}

func dims(n ...int) (d []uint64) {
	for _, v := range n {
		d = append(d, uint64(v))
	}
	return d
}

// geometry notes strides and flags that are not the usual ones.
func (x *export) geometry(i int, t ternary.Tensor) error {
	var d deviations
	var err error
	switch {
	case t.Ternary != nil:
		w := t.Ternary
		pad := padTo(w.Cols, 512)
		if w.ColsPad != pad || w.Stride != pad/8 {
			d.geometry, d.colsPad, d.stride = true, w.ColsPad, w.Stride
		}
		if w.Bias != nil && w.BiasFlag != 1 {
			d.biasFlag = w.BiasFlag
		}
		err = fits(w.Rows, w.Cols, 3*w.Stride, gguf.FV5Bytes)
	case t.Int8 != nil:
		q := t.Int8
		pad := padTo(q.Cols, 64)
		if q.ColsPad != pad || q.Stride != pad {
			d.geometry, d.colsPad, d.stride = true, q.ColsPad, q.Stride
		}
		err = fits(q.Rows, q.Cols, q.Stride, gguf.FV5BBytes)
	}
	if err != nil {
		return fmt.Errorf("tensor %q: %w: GGUF cannot hold this padding", t.Name, err)
	}
	if d.geometry || d.biasFlag != 0 {
		x.extra[i] = d
	}
	return nil
}

// header returns the file's header with what is known by now.
func (x *export) header() (*gguf.Header, error) {
	names := make([]string, len(x.digests))
	for i, d := range x.digests {
		names[i] = hex.EncodeToString(d[:])
	}
	h := &gguf.Header{Metadata: append(slices.Clone(x.fixed),
		gguf.KV{Key: keySHA256, Value: gguf.String(x.container)},
		gguf.KV{Key: keyBytes, Value: gguf.Uint64(uint64(native.ModelSize(x.m)))},
		gguf.KV{Key: keyTensors, Value: gguf.Strings(names)})}
	if b := x.extra.encode(); b != nil {
		h.Metadata = append(h.Metadata, gguf.KV{Key: keyExtra, Value: gguf.Bytes(b)})
	}
	for _, p := range x.parts {
		h.Tensors = append(h.Tensors, p.Tensor)
	}
	return h, h.LayOut()
}

func (x *export) size() int64 {
	h, err := x.header()
	if err != nil {
		return 0 // newExport has laid it out
	}
	return h.FileSize()
}

// pass writes the file with what is known by now and finds out the rest. same
// says that all of it was known.
func (x *export) pass(w io.Writer) (same bool, err error) {
	h, err := x.header()
	if err != nil {
		return false, err
	}
	before := h.Encode()
	// The container is hashed beside the writing, which it takes as long as.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hashed := make(chan error, 1)
	var container pack.Pin
	go func() {
		var err error
		container, err = native.Digest(ctx, x.m)
		hashed <- err
	}()
	g, err := gguf.NewWriter(w, h)
	if err == nil {
		err = x.data(g)
	}
	if err == nil {
		err = g.Close()
	}
	if err != nil {
		cancel()
	}
	if hashErr := <-hashed; err == nil {
		err = hashErr
	}
	if err != nil {
		return false, err
	}
	x.container = container.SHA256
	if h, err = x.header(); err != nil {
		return false, err
	}
	return bytes.Equal(before, h.Encode()), nil
}

// chunk is a piece of a tensor's data on its way out.
type chunk struct {
	b    []byte
	part int
	last bool // of its tensor
}

// data makes the tensors' data in one goroutine and hashes and writes it in
// this one.
func (x *export) data(w io.Writer) error {
	const ahead = 3
	chunks, free := make(chan chunk, ahead), make(chan []byte, ahead+1)
	for range ahead + 1 {
		free <- nil
	}
	stop, made := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(chunks)
		made <- ternary.Guard(func() error {
			p := producer{x: x, out: chunks, free: free, stop: stop}
			return p.run()
		})
	}()
	h := sha256.New()
	var err error
	for c := range chunks {
		if err != nil {
			continue
		}
		h.Write(c.b)
		if _, err = w.Write(c.b); err != nil {
			close(stop)
			continue
		}
		if c.last {
			h.Sum(x.digests[c.part][:0])
			h.Reset()
		}
		free <- c.b
	}
	if madeErr := <-made; err == nil {
		err = madeErr
	}
	return err
}

var errStopped = errors.New("stopped")

// producer turns rows into blocks.
type producer struct {
	x    *export
	out  chan<- chunk
	free <-chan []byte
	stop <-chan struct{}
	rows ternary.Part
}

func (p *producer) run() error {
	for i := range p.x.parts {
		if err := p.part(i, &p.x.parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// buffer returns n bytes to fill.
func (p *producer) buffer(n int) ([]byte, error) {
	select {
	case b := <-p.free:
		return slices.Grow(b[:0], n)[:n], nil
	case <-p.stop:
		return nil, errStopped
	}
}

func (p *producer) part(i int, t *part) error {
	m := p.x.m
	if t.bias || t.t.Vector != nil {
		v, name, what := t.t.Vector, t.t.Name, ternary.PartNorm
		if t.bias {
			v, what = t.t.Ternary.Bias, ternary.PartBias
		}
		b, err := p.buffer(4 * len(v))
		if err != nil {
			return err
		}
		for k, f := range v {
			if err := finite(name, what, k, f); err != nil {
				return err
			}
			binary.LittleEndian.PutUint32(b[4*k:], math.Float32bits(f))
		}
		p.out <- chunk{b, i, true}
		return nil
	}
	d := p.x.extra[t.index]
	d.rsLo, d.rsHi, d.wsum, d.padding = nil, nil, nil, nil
	rows := int(t.Rows())
	rowBytes := int(t.Size) / max(1, rows) // set by the layout
	if t.Size == 0 {
		w, size := t.Type.Block()
		rowBytes = int(t.Cols()) / w * size
	}
	for r0, r1 := range t.t.Chunks() {
		b, err := p.buffer((r1 - r0) * rowBytes)
		if err != nil {
			return err
		}
		part, err := m.ReadRows(&p.rows, t.t, r0, r1)
		if err != nil {
			return err
		}
		if part.Ternary != nil {
			err = matrix(b, t.t.Name, part.Ternary, r0, &d)
		} else {
			err = table(b, t.t.Name, part.Int8, r0, &d)
		}
		if err != nil {
			return err
		}
		p.out <- chunk{b, i, r1 == rows}
		m.ReleaseTensor(part)
	}
	if !d.empty() {
		p.x.extra[t.index] = d
	} else {
		delete(p.x.extra, t.index)
	}
	return nil
}

func (d *deviations) empty() bool {
	return !d.geometry && d.rsLo == nil && d.rsHi == nil && d.wsum == nil && d.biasFlag == 0 && d.padding == nil
}

// matrix makes blocks of all rows of m, which are those from r0 on, and notes
// their integrity words.
func matrix(b []byte, name string, m *ternary.Matrix, r0 int, d *deviations) error {
	blocks := m.Cols / gguf.FV5Weights
	for r := range m.Rows {
		at := r * m.Stride
		bp, bn, br := m.BP[at:at+m.Stride], m.BN[at:at+m.Stride], m.BR[at:at+m.Stride]
		scales := uint64(math.Float32bits(m.SLo[r])) | uint64(math.Float32bits(m.SHi[r]))<<32
		for i := range blocks {
			k := (*[gguf.FV5Bytes]byte)(b)
			b = b[gguf.FV5Bytes:]
			binary.LittleEndian.PutUint64(k[:], scales)
			*(*[32]byte)(k[8:]) = [32]byte(bp[32*i:])
			*(*[32]byte)(k[40:]) = [32]byte(bn[32*i:])
			*(*[32]byte)(k[72:]) = [32]byte(br[32*i:])
		}
		lo, hi, err := checkRow(name, m, r0, r)
		if err != nil {
			return err
		}
		d.rsLo.note(r0+r, m.RSLo[r], lo)
		d.rsHi.note(r0+r, m.RSHi[r], hi)
	}
	return nil
}

func table(b []byte, name string, m *ternary.Int8Matrix, r0 int, d *deviations) error {
	blocks := m.Cols / gguf.FV5Weights
	q := bytesOf(m.Q)
	for r := range m.Rows {
		row := q[r*m.Stride : (r+1)*m.Stride]
		for i := range blocks {
			binary.LittleEndian.PutUint32(b, math.Float32bits(m.Scale[r]))
			copy(b[4:gguf.FV5BBytes], row[i*gguf.FV5Weights:])
			b = b[gguf.FV5BBytes:]
		}
		if err := finite(name, ternary.PartScale, r0+r, m.Scale[r]); err != nil {
			return err
		}
		d.wsum.note(r0+r, m.WSum[r], int(ternary.SumInt8(m.Row(r))))
		if pad := row[m.Cols:]; d.padding != nil || bytes.ContainsFunc(pad, func(c rune) bool { return c != 0 }) {
			if d.padding == nil {
				d.padding = make([]byte, (r0+r)*len(pad))
			}
			d.padding = append(d.padding, pad...)
		}
	}
	return nil
}

// checkRow returns the sums of row r of m, which holds the rows of tensor name
// from r0 on, if the row keeps the rules.
func checkRow(name string, m *ternary.Matrix, r0, r int) (lo, hi int, err error) {
	if lo, hi, err = m.RowSums(name, r0, r); err != nil {
		return 0, 0, err
	}
	if err = finite(name, ternary.PartSLo, r0+r, m.SLo[r]); err == nil {
		err = finite(name, ternary.PartSHi, r0+r, m.SHi[r])
	}
	return lo, hi, err
}

func finite(name, part string, row int, f float32) error {
	if math.Float32bits(f)&0x7f800000 != 0x7f800000 {
		return nil
	}
	return &ternary.Error{Tensor: name, Part: part, Row: row, Col: -1, Found: fmt.Sprintf("%s is %v", part, f), Expected: "a finite number"}
}

// CheckTensors compares the data of every tensor with the digest that the file
// has for it, in file order, and returns an error about the first that differs.
// Without digests it returns nil.
func (f *File) CheckTensors(ctx context.Context) error {
	v, ok := f.g.Value(keyTensors)
	if !ok {
		return nil
	}
	want, ok := v.Strings()
	if !ok || len(want) != len(f.g.Tensors) {
		return f.damaged("key "+quote(keyTensors), "the value is "+v.Print(), fmt.Sprintf("%d strings, one for each tensor", len(f.g.Tensors)), -1)
	}
	return ternary.Guard(func() error {
		h := sha256.New()
		for i := range f.g.Tensors {
			t := &f.g.Tensors[i]
			h.Reset()
			if err := f.hash(ctx, h, t.Data); err != nil {
				return err
			}
			if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, want[i]) {
				return f.damaged(tensor(t.Name), "the data has sha256 "+got, want[i]+", by the metadata", t.FileAt)
			}
		}
		return nil
	})
}

// hash hashes a tensor's data, releasing it as it goes, until ctx ends.
func (f *File) hash(ctx context.Context, h hash.Hash, data []byte) error {
	for b := range slices.Chunk(data, 1<<20) {
		if err := ctx.Err(); err != nil {
			return err
		}
		h.Write(b)
		f.g.Release(b)
	}
	return nil
}

// bytesOf returns v's own memory as bytes.
func bytesOf(v []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}
