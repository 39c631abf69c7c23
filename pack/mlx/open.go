package mlx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"npack/pack"
	"npack/pack/hf"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
)

// File is an open pack of profile affine or planes. Its model is valid until
// Close; the files must not be changed or cut short meanwhile.
type File struct {
	dir     string
	name    string
	f       *safetensors.File
	rows    *rows.File // nil if the pack has none
	rec     record
	model   ternary.Model
	sources map[string]*source // by [ternary.Tensor.Name]
}

// source is where a matrix or table comes from.
type source struct {
	t                       ternary.Tensor
	weight, scales, biases  *safetensors.Tensor
	bits, group             int
	planes                  bool
	rowBytes, groups, scale int // of a row: bytes of weight, groups, bytes of scales
}

// Is reports whether the safetensors file at path holds weights of an MLX pack.
func Is(path string) bool {
	if filepath.Base(path) == rows.Name {
		return false
	}
	b, err := pack.ReadFile(filepath.Join(filepath.Dir(path), PackName), maxPackFile)
	if err != nil {
		return false
	}
	var r record
	return json.Unmarshal(b, &r) == nil && r.Format == packFormat
}

// Open opens the pack that the file at path, one of its files of weights, lies
// in, and checks all but the values of matrices and tables: those are checked
// when rows are read. Errors are [*pack.Error].
func Open(path string) (*File, error) {
	f := &File{dir: filepath.Dir(path), name: path}
	if err := f.read(PackName, &f.rec); err != nil {
		return nil, err
	}
	if err := f.checkRecord(); err != nil {
		return nil, err
	}
	if err := f.config(); err != nil {
		return nil, err
	}
	var err error
	if f.f, err = safetensors.Open(path); err != nil {
		return nil, err
	}
	if f.rows, err = rows.Open(f.dir); err != nil {
		f.rows = nil
		if !errors.Is(err, fs.ErrNotExist) {
			f.f.Close()
			return nil, err
		}
	}
	if err := f.build(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// read reads a JSON file of the pack.
func (f *File) read(name string, to any) error {
	path := filepath.Join(f.dir, name)
	b, err := pack.ReadFile(path, maxPackFile)
	if errors.Is(err, fs.ErrNotExist) {
		return &pack.Error{Kind: pack.ErrTruncated, File: path, Offset: -1, Found: "the file is not there", Expected: "one in every MLX pack", Hint: hintDamaged}
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, to); err != nil {
		e := &pack.Error{Kind: pack.ErrCorrupt, File: path, Offset: -1, Found: err.Error(), Expected: "what npack writes", Hint: hintDamaged}
		var s *json.SyntaxError
		if errors.As(err, &s) && s.Offset >= int64(len(b)) {
			e.Kind = pack.ErrTruncated
		}
		return e
	}
	return nil
}

func (f *File) checkRecord() error {
	path := filepath.Join(f.dir, PackName)
	fail := func(kind error, found, expected, hint string) error {
		return &pack.Error{Kind: kind, File: path, Offset: -1, Found: found, Expected: expected, Hint: hint}
	}
	switch r := &f.rec; {
	case r.Format != packFormat:
		return fail(pack.ErrCorrupt, fmt.Sprintf("format %q", r.Format), packFormat, hintDamaged)
	case r.Version != packVersion:
		return fail(pack.ErrUnsupported, fmt.Sprintf("version %d", r.Version), fmt.Sprint(packVersion), "a newer program may be needed")
	case r.Profile == Dense:
		return fail(pack.ErrUnsupported, "profile dense", "affine or planes", "npack import reads dense weights")
	case r.Profile == Nearest:
		return fail(pack.ErrUnsupported, "profile nearest: its weights are rounded", "affine or planes", "use the container that the pack was made of")
	case r.Profile != Affine && r.Profile != Planes:
		return fail(pack.ErrUnsupported, fmt.Sprintf("profile %q", r.Profile), "affine or planes", "a newer program may be needed")
	}
	return nil
}

// config reads the geometry.
func (f *File) config() error {
	var c struct {
		ModelType    string  `json:"model_type"`
		Layers       int     `json:"num_hidden_layers"`
		Hidden       int     `json:"hidden_size"`
		Heads        int     `json:"num_attention_heads"`
		KVHeads      int     `json:"num_key_value_heads"`
		HeadDim      int     `json:"head_dim"`
		Intermediate int     `json:"intermediate_size"`
		Vocab        int     `json:"vocab_size"`
		MaxPosition  int     `json:"max_position_embeddings"`
		RMSEps       float32 `json:"rms_norm_eps"`
		RopeTheta    float32 `json:"rope_theta"`
		Tied         bool    `json:"tie_word_embeddings"`
	}
	if err := f.read("config.json", &c); err != nil {
		return err
	}
	if c.ModelType != "qwen3" {
		return f.fail(pack.ErrUnsupported, "config.json", fmt.Sprintf("model_type %q", c.ModelType), "qwen3")
	}
	f.model.Config = ternary.Config{Arch: ternary.Qwen3, Layers: c.Layers, Hidden: c.Hidden, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		RotaryDims: c.HeadDim, Intermediate: c.Intermediate, Vocab: c.Vocab, MaxPosition: c.MaxPosition, RMSEps: c.RMSEps, RopeTheta: c.RopeTheta, Tied: c.Tied}
	return f.Place(f.model.CheckDims())
}

// build finds each tensor of the model in the files.
func (f *File) build() error {
	m := &f.model
	// Each layer has tensors; the number is not believed.
	if m.Config.Layers > len(f.f.Tensors) {
		return f.fail(pack.ErrCorrupt, "config.json", fmt.Sprintf("%d layers", m.Config.Layers), fmt.Sprintf("as many as %d tensors make", len(f.f.Tensors)))
	}
	f.sources = make(map[string]*source, len(f.rec.Tensors))
	m.Layers = make([]ternary.Layer, m.Config.Layers)
	shapes := m.LinearShapes()
	for i := range m.Layers {
		for j, w := range m.Layers[i].Linears() {
			*w = ternary.Matrix{Rows: shapes[j].Rows, Cols: shapes[j].Cols}
		}
	}
	table := func() *ternary.Int8Matrix { return &ternary.Int8Matrix{Rows: m.Vocab, Cols: m.Hidden} }
	if m.Head = *table(); !m.Tied {
		m.Embed = table()
	}
	used := 0
	vector := func(name string, n int) ([]float32, error) {
		t, err := f.find(hf.Module(name)+".weight", safetensors.F32, int64(n))
		if err != nil {
			return nil, err
		}
		v, err := t.Floats()
		if err != nil {
			return nil, err
		}
		used++
		for i, x := range v {
			if !finite(x) {
				return nil, f.Place(&ternary.Error{Tensor: name, Part: ternary.PartNorm, Row: i, Col: -1, Found: fmt.Sprintf("value %v", x), Expected: "a finite number"})
			}
		}
		return v, nil
	}
	for i := range m.Layers {
		for _, n := range m.Layers[i].Norms(&m.Config) {
			var err error
			if *n.Data, err = vector(ternary.LayerName(i, n.Name), n.Len); err != nil {
				return err
			}
		}
	}
	var err error
	if m.FinalNorm, err = vector("output_norm", m.Hidden); err != nil {
		return err
	}
	for t := range m.Tensors() {
		if t.Vector != nil {
			continue
		}
		s, err := f.source(t)
		if err != nil {
			return err
		}
		f.sources[t.Name] = s
		used += 3
	}
	if used != len(f.f.Tensors) {
		return f.extra()
	}
	m.Rows = f.readRows
	return f.Place(m.CheckShapes())
}

// extra names a tensor that the model does not have.
func (f *File) extra() error {
	known := map[string]bool{}
	for t := range f.model.Tensors() {
		for _, part := range []string{".weight", ".scales", ".biases"} {
			known[hf.Module(t.Name)+part] = true
		}
	}
	for i := range f.f.Tensors {
		if name := f.f.Tensors[i].Name; !known[name] {
			return f.fail(pack.ErrUnsupported, tensorPlace(name), "the model has no such part", "those of a qwen3 model alone")
		}
	}
	return f.fail(pack.ErrCorrupt, "", "a norm has scales", "a vector")
}

// source finds the tensors of a matrix or table and sets its layout.
func (f *File) source(t ternary.Tensor) (*source, error) {
	name := hf.Module(t.Name)
	rec, ok := f.rec.Tensors[name]
	s := &source{t: t, bits: rec.Bits, group: rec.GroupSize, planes: f.rec.Profile == Planes && t.Ternary != nil}
	shape := t.Shape()
	n, cols := int64(shape.Rows), int64(shape.Cols)
	switch {
	case !ok || !slices.Contains(widths, s.bits) || s.group != 32 && s.group != 64 && s.group != 128 || cols%int64(s.group) != 0,
		t.Int8 != nil && s.bits != 8, s.planes && s.bits != 2:
		return nil, &pack.Error{Kind: pack.ErrCorrupt, File: filepath.Join(f.dir, PackName), Place: "tensors: " + name, Offset: -1,
			Found: fmt.Sprintf("%d bits in groups of %d for %d columns", rec.Bits, rec.GroupSize, cols), Expected: "what npack writes", Hint: hintDamaged}
	}
	if s.planes {
		cols *= 2
	}
	var err error
	if s.weight, err = f.find(name+".weight", safetensors.U32, n, cols*int64(s.bits)/32); err != nil {
		return nil, err
	}
	if s.scales, err = f.find(name+".scales", safetensors.F32, n, cols/int64(s.group)); err != nil {
		return nil, err
	}
	if s.biases, err = f.find(name+".biases", safetensors.F32, n, cols/int64(s.group)); err != nil {
		return nil, err
	}
	s.rowBytes, s.groups = int(cols)*s.bits/8, int(cols)/s.group
	s.scale = 4 * s.groups
	return s, f.rows.Layout(t)
}

// find returns a tensor of that name, type and shape.
func (f *File) find(name string, d safetensors.DType, shape ...int64) (*safetensors.Tensor, error) {
	t := f.f.Tensor(name)
	if t == nil {
		return nil, f.fail(pack.ErrCorrupt, tensorPlace(name), "the tensor is not there", fmt.Sprintf("%v of shape %v", d, shape))
	}
	if t.DType != d || !slices.Equal(t.Shape, shape) {
		e := f.fail(pack.ErrCorrupt, tensorPlace(name), fmt.Sprintf("%v of shape %v", t.DType, t.Shape), fmt.Sprintf("%v of shape %v", d, shape))
		e.File, e.Offset = t.File(), t.FileAt()
		return nil, e
	}
	return t, nil
}

// Model returns the model, which is not in memory. Reading rows that break a
// rule is an error, a [*ternary.Error], which Place understands.
func (f *File) Model() *ternary.Model { return &f.model }

// Name is the path of the file of weights that was opened.
func (f *File) Name() string { return f.name }

// Size is the length in bytes of the container that the model makes.
func (f *File) Size() int64 { return native.ModelSize(&f.model) }

// Length is the length in bytes of all files of weights.
func (f *File) Length() int64 { return f.f.Size() }

// Container returns the sha256, in hex, and the length of the container that the
// pack was made from. ok is false without [rows.Name]: row sums are then
// computed, and a scale that no weight uses is that of the others.
func (f *File) Container() (sha256 string, bytes int64, ok bool) {
	if f.rows == nil {
		return "", 0, false
	}
	sha256, bytes = f.rows.Container()
	return sha256, bytes, true
}

// Close closes the files. The model must not be used afterwards.
func (f *File) Close() error {
	err := f.f.Close()
	if f.rows != nil {
		err = errors.Join(err, f.rows.Close())
	}
	return err
}

// CheckTensors compares the files of weights with their pins in pack.json and
// returns an error about the first that differs. It ends with ctx.
func (f *File) CheckTensors(ctx context.Context) error {
	for _, path := range f.f.Files() {
		pin, ok := f.rec.Files[filepath.Base(path)]
		if !ok {
			continue
		}
		got, err := pack.HashFile(ctx, path, nil)
		if err != nil {
			return err
		}
		if got != pin {
			return &pack.Error{Kind: pack.ErrNotEqual, File: path, Offset: -1, Found: fmt.Sprintf("%d bytes with sha256 %s", got.Bytes, got.SHA256),
				Expected: fmt.Sprintf("%d and %s, by %s", pin.Bytes, pin.SHA256, PackName), Hint: hintDamaged}
		}
	}
	return nil
}

// Place turns an error of the model, a [*ternary.Error], into a [*pack.Error]
// with the place in the file. Other errors are returned as they are.
func (f *File) Place(err error) error {
	var e *ternary.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Tensor == "" {
		return f.fail(pack.ErrCorrupt, "config.json", e.Found, e.Expected)
	}
	part, row := ".weight", max(e.Row, 0)
	switch e.Part {
	case ternary.PartSLo, ternary.PartSHi, ternary.PartScale:
		part = ".scales"
	}
	name := hf.Module(e.Tensor) + part
	p := f.fail(pack.ErrCorrupt, tensorPlace(name), e.Found, e.Expected)
	if at := e.At(); at != "" {
		p.Place += ": " + at
	}
	t := f.f.Tensor(name)
	if t == nil {
		return p
	}
	p.File = t.File()
	p.Offset = t.FileAt()
	if s := f.sources[e.Tensor]; s == nil { // a vector
		p.Offset += 4 * int64(row)
	} else if part == ".weight" {
		p.Offset += int64(row)*int64(s.rowBytes) + int64(max(e.Col, 0)*s.bits/8)
	} else {
		p.Offset += int64(row) * int64(s.scale)
	}
	return p
}

func (f *File) fail(kind error, place, found, expected string) *pack.Error {
	return &pack.Error{Kind: kind, File: f.name, Place: place, Offset: -1, Found: found, Expected: expected, Hint: hintDamaged}
}

const hintDamaged = "the pack is damaged or was changed: fetch it again, or make it again of the container"
