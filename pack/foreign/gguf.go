package foreign

import (
	"fmt"
	"path/filepath"
	"strings"

	"npack/gguf"
	"npack/pack"
	"npack/pack/fv5"
	"npack/ternary"
)

// ggufArchs are the architectures whose forward pass is one of ours.
var ggufArchs = map[string]struct {
	arch     ternary.Arch
	permuted bool // the rows of q and k are in the order of interleaved pairs
}{
	"llama":        {ternary.Qwen2, true},
	"qwen2":        {ternary.Qwen2, false},
	"qwen3":        {ternary.Qwen3, false},
	"bitnet-b1.58": {ternary.BitNet, false},
	"bitnet-25":    {ternary.BitNet, false},
}

// ggufFile finds the parts of a model in a GGUF file.
type ggufFile struct {
	g        *gguf.File
	c        *ternary.Config
	permuted bool
	byName   map[string]*gguf.Tensor
	used     map[string]bool
	tables   *tableReport
}

func (f *File) openGGUF(path string) error {
	g, err := gguf.Open(path)
	if err != nil {
		return fv5.Explain(err)
	}
	return f.readGGUF(g)
}

// readGGUF makes the model of an open file.
func (f *File) readGGUF(g *gguf.File) error {
	f.closer, f.size, f.form, f.dir = g, g.Length(), "GGUF", filepath.Dir(f.name)
	c := &f.model.Config
	lib := &ggufFile{g: g, c: c, byName: map[string]*gguf.Tensor{}, used: map[string]bool{}, tables: &f.tables}
	for i := range g.Tensors {
		t := &g.Tensors[i]
		lib.byName[t.Name] = t
		if t.Type == gguf.FV5 {
			return lib.origin(t).wrong(pack.ErrUnsupported, -1, "type "+t.Type.String()+", which is ours", "a file of another program", "npack from-gguf makes the container of it")
		}
	}
	if err := lib.config(); err != nil {
		return err
	}
	embed := lib.byName["token_embd.weight"]
	if embed == nil {
		return lib.key("", "tensor \"token_embd.weight\" is not there", "an embedding")
	}
	c.Vocab = int(min(embed.Rows(), ternary.MaxVocab+1))
	c.Tied = lib.byName["output.weight"] == nil
	if err := c.Validate(); err != nil {
		return f.configError(f.name, err)
	}
	if err := f.build(lib); err != nil {
		return err
	}
	for i := range g.Tensors {
		if t := &g.Tensors[i]; !lib.used[t.Name] {
			return lib.origin(t).wrong(pack.ErrUnsupported, -1, "the model has no such part", fmt.Sprintf("the tensors of a %v model alone", c.Arch), "a newer program may be needed")
		}
	}
	f.form += ", " + f.ternaryTypes(lib)
	f.model.Release = g.Release
	return nil
}

// ternaryTypes names the type of the first linear.
func (f *File) ternaryTypes(lib *ggufFile) string {
	return lib.byName[ternary.LayerName(0, ternary.Projections[0])+".weight"].Type.String()
}

// key is an error about the metadata.
func (l *ggufFile) key(key, found, expected string) *pack.Error {
	e := &pack.Error{Kind: pack.ErrUnsupported, File: l.g.Name(), Offset: -1, Found: found, Expected: expected, Hint: "the model computes what no topology of this program does, or the file is damaged"}
	if key != "" {
		e.Place = fmt.Sprintf("key %q", key)
	}
	return e
}

// config reads the geometry.
func (l *ggufFile) config() error {
	const keyArch = "general.architecture"
	v, _ := l.g.Value(keyArch)
	name, _ := v.Text()
	a, ok := ggufArchs[name]
	if !ok {
		e := l.key(keyArch, "the architecture is "+v.Print(), "llama, qwen2, qwen3, bitnet-b1.58 or bitnet-25")
		if name == "bitnet" {
			e.Hint = "files of this name come with SiLU and with squared ReLU, and nothing in them says which: import the model from its safetensors"
		}
		return e
	}
	c := l.c
	c.Arch, l.permuted = a.arch, a.permuted
	number := func(key string, to *int, missing int) error {
		key = name + "." + key
		v, ok := l.g.Value(key)
		if !ok && missing >= 0 {
			*to = missing
			return nil
		}
		n, isInt := v.Uint()
		if !isInt || n > ternary.MaxPositions {
			return l.key(key, "the value is "+v.Print(), fmt.Sprintf("a number up to %d", ternary.MaxPositions))
		}
		*to = int(n)
		return nil
	}
	const needed = -1
	for _, n := range []struct {
		key string
		to  *int
	}{{"block_count", &c.Layers}, {"context_length", &c.MaxPosition}, {"embedding_length", &c.Hidden}, {"feed_forward_length", &c.Intermediate}, {"attention.head_count", &c.Heads}} {
		if err := number(n.key, n.to, needed); err != nil {
			return err
		}
	}
	if c.Heads < 1 {
		return l.key(name+".attention.head_count", fmt.Sprint(c.Heads), "at least 1")
	}
	if c.Layers > len(l.g.Tensors) { // each has some; the number is not believed
		return l.key(name+".block_count", fmt.Sprintf("%d layers", c.Layers), fmt.Sprintf("as many as %d tensors make", len(l.g.Tensors)))
	}
	var values int
	for _, n := range []struct {
		key     string
		to      *int
		missing func() int
	}{
		{"attention.head_count_kv", &c.KVHeads, func() int { return c.Heads }}, {"attention.key_length", &c.HeadDim, func() int { return c.Hidden / c.Heads }},
		{"attention.value_length", &values, func() int { return c.HeadDim }}, {"rope.dimension_count", &c.RotaryDims, func() int { return c.HeadDim }},
	} {
		if err := number(n.key, n.to, n.missing()); err != nil {
			return err
		}
	}
	if values != c.HeadDim {
		return l.key(name+".attention.value_length", fmt.Sprintf("values of %d", values), fmt.Sprintf("the width of keys, %d", c.HeadDim))
	}
	if l.permuted && c.RotaryDims != c.HeadDim {
		return l.key(name+".rope.dimension_count", fmt.Sprintf("%d rotated dimensions", c.RotaryDims), fmt.Sprintf("all %d of a head", c.HeadDim))
	}
	c.RopeTheta = 10000 // llama.cpp's where the key is not there
	for _, n := range []struct {
		key    string
		to     *float32
		needed bool
	}{{"attention.layer_norm_rms_epsilon", &c.RMSEps, true}, {"rope.freq_base", &c.RopeTheta, false}} {
		v, ok := l.g.Value(name + "." + n.key)
		x, isFloat := v.Float()
		switch {
		case isFloat:
			*n.to = float32(x)
		case ok || n.needed:
			return l.key(name+"."+n.key, "the value is "+v.Print(), "a number above 0")
		}
	}
	return l.plainAngles(name)
}

// plainAngles refuses the keys that change angles or attention.
func (l *ggufFile) plainAngles(name string) error {
	if v, ok := l.g.Value(name + ".rope.scaling.type"); ok {
		kind, _ := v.Text()
		factor := 1.0
		if f, ok := l.g.Value(name + ".rope.scaling.factor"); ok {
			factor, _ = f.Float()
		}
		if kind != "none" && (kind != "linear" || factor != 1) {
			return l.key(name+".rope.scaling.type", v.Print(), "none")
		}
	}
	if v, ok := l.g.Value(name + ".attention.sliding_window"); ok {
		if n, _ := v.Uint(); n > 0 && n < uint64(l.c.MaxPosition) {
			return l.key(name+".attention.sliding_window", v.Print(), "attention over all positions")
		}
	}
	return nil
}

func (l *ggufFile) origin(t *gguf.Tensor) *origin {
	o := &origin{name: t.Name, file: t.File(), at: t.FileAt, form: t.Type.String()}
	if n, _ := t.Type.Block(); n > 1 && t.Type != gguf.I2_S { // which has one scale
		o.group = n
	}
	return o
}

// find returns a tensor of that name and shape; nil if there is none and it need
// not be there.
func (l *ggufFile) find(name string, s ternary.Shape, needed bool) (*gguf.Tensor, error) {
	t := l.byName[name]
	switch {
	case t == nil && !needed:
		return nil, nil
	case t == nil:
		return nil, l.key("", fmt.Sprintf("tensor %q is not there", name), fmt.Sprintf("one of %d x %d values", s.Rows, s.Cols))
	case t.Cols() != uint64(s.Cols) || t.Rows() != uint64(s.Rows):
		return nil, l.origin(t).wrong(pack.ErrCorrupt, -1, fmt.Sprintf("dimensions %v", t.Dims), fmt.Sprintf("[%d %d], by the metadata", s.Cols, s.Rows), hintDamaged)
	case !t.Type.Decodes():
		return nil, l.origin(t).wrong(pack.ErrUnsupported, -1, fmt.Sprintf("type %v", t.Type), "a type that this program decodes", "weights of this type are not ternary")
	}
	l.used[name] = true
	return t, nil
}

func (l *ggufFile) vector(name string, n int) ([]float32, error) {
	return l.numbers(name+".weight", n, true)
}

func (l *ggufFile) bias(name string, n int) ([]float32, error) {
	v, err := l.numbers(name+".bias", n, false)
	if order := l.order(name); order != nil && v != nil {
		w := make([]float32, n)
		for r := range w {
			w[r] = v[order(r)]
		}
		v = w
	}
	return v, err
}

func (l *ggufFile) numbers(name string, n int, needed bool) ([]float32, error) {
	t, err := l.find(name, ternary.Shape{Rows: 1, Cols: n}, needed)
	if t == nil {
		return nil, err
	}
	v := make([]float32, n) // as many as are in the file
	if err := t.Type.Dequantize(v, t.Data); err != nil {
		return nil, err
	}
	return v, checkFinite(l.origin(t), v)
}

// order returns where rows of q and k are that a converter has put into the order
// of interleaved pairs: within a head, row 2i+j there is row i + j·half of ours.
func (l *ggufFile) order(name string) func(r int) int {
	if !l.permuted || !strings.HasSuffix(name, ".attn_q") && !strings.HasSuffix(name, ".attn_k") {
		return nil
	}
	dim := l.c.HeadDim
	return func(r int) int {
		head, d := r/dim, r%dim
		return head*dim + d%(dim/2)*2 + d/(dim/2)
	}
}

func (l *ggufFile) linear(name string, s ternary.Shape) (source, error) {
	x, err := l.rows(name+".weight", s)
	if err != nil {
		return nil, err
	}
	x.order = l.order(name)
	return x, nil
}

func (l *ggufFile) table(name string, s ternary.Shape) (source, error) {
	x, err := l.rows(name+".weight", s)
	if err != nil {
		return nil, err
	}
	x.report = l.tables
	return x, nil
}

// rows is the source of a matrix or table.
func (l *ggufFile) rows(name string, s ternary.Shape) (*values, error) {
	t, err := l.find(name, s, true)
	if err != nil {
		return nil, err
	}
	x := &values{origin: *l.origin(t), rows: s.Rows, cols: s.Cols}
	switch t.Type {
	case gguf.F16:
		x.narrow = roundF16
	case gguf.BF16:
		x.narrow = roundBF16
	case gguf.I2_S:
		l.wholeScale(x, t)
		return x, nil
	}
	size, err := t.Type.Size([]uint64{uint64(s.Cols)})
	if err != nil {
		return nil, err
	}
	x.rowBytes = int(size)
	x.load = func(_ []byte, r0, r1 int) ([]byte, error) { return t.Data[r0*x.rowBytes : r1*x.rowBytes], nil }
	x.decode = func(dst []float32, src []byte) { mustDecode(t.Type, dst, src) }
	return x, nil
}

// wholeScale reads I2_S, whose one scale is behind all rows. A row and the scale
// are decoded as a tensor of one row.
func (l *ggufFile) wholeScale(x *values, t *gguf.Tensor) {
	x.rowBytes = x.cols / 4
	codes := x.rows * x.rowBytes
	tail := t.Data[codes:]
	x.load = func(_ []byte, r0, r1 int) ([]byte, error) { return t.Data[r0*x.rowBytes : r1*x.rowBytes], nil }
	x.decode = func(dst []float32, src []byte) {
		mustDecode(t.Type, dst, append(append(make([]byte, 0, len(src)+len(tail)), src...), tail...))
	}
}

// mustDecode decodes whole blocks of a type that [gguf.Type.Decodes]: only their
// lengths could be wrong, and they come from the type.
func mustDecode(t gguf.Type, dst []float32, src []byte) {
	if err := t.Dequantize(dst, src); err != nil {
		panic(err)
	}
}
