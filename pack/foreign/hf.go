package foreign

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"

	"npack/pack"
	"npack/pack/hf"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
)

// hfFiles finds the parts of a model in the safetensors files of a Hugging Face
// repository.
type hfFiles struct {
	f      *safetensors.File
	form   bitnetForm
	used   map[string]bool
	tables *tableReport
	near   *atomic.Int64
}

// openHF reads the safetensors file, set or directory at path.
func (f *File) openHF(path string) error {
	st, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	f.closer = st
	f.dir, f.repository = filepath.Dir(st.Files()[0]), true
	name := filepath.Join(f.dir, configName)
	text, err := pack.ReadOptional(name, maxConfig)
	if err != nil {
		return err
	}
	if f.known, err = rows.Open(f.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.readHF(st, name, text)
}

// readHF makes the model of open files and the text of their configuration, which
// is nil if there is none.
func (f *File) readHF(st *safetensors.File, name string, text []byte) error {
	f.size, f.form = st.Size(), "Hugging Face safetensors"
	if text == nil {
		return explainMissingConfig(st)
	}
	config, err := parseConfig(name, text)
	if err != nil {
		return err
	}
	m := &f.model
	form, err := config.read(name, &m.Config)
	if err != nil {
		return err
	}
	if err := m.Config.Validate(); err != nil {
		return f.configError(name, err)
	}
	lib := &hfFiles{f: st, form: form, used: map[string]bool{}, tables: &f.tables, near: &f.near}
	// A file may hold the embedding twice though its configuration ties them.
	head := st.Tensor(hf.Module("output") + ".weight")
	m.Tied = head == nil
	if config.Tied != nil && *config.Tied && head != nil {
		m.Tied = true
		lib.used[head.Name] = true
		f.drop(head.Name, "tie_word_embeddings is set: the library replaces it by the input embedding")
	}
	if err := f.build(lib); err != nil {
		return err
	}
	switch form {
	case multiplied, divided:
		f.form += ", BitNet packed"
	case trained:
		f.form += ", BitNet as trained"
		f.trained = true
	}
	if form != notBitNet && m.Arch != ternary.BitNet {
		f.drop("8-bit activations", fmt.Sprintf("the source rounds the input of each linear to 8 bits, topology %v does not", m.Arch))
	}
	return f.leftOver(st, lib)
}

// leftOver drops or refuses the tensors that the model does not take.
func (f *File) leftOver(st *safetensors.File, lib *hfFiles) error {
	for i := range st.Tensors {
		t := &st.Tensors[i]
		switch {
		case lib.used[t.Name]:
		case strings.HasSuffix(t.Name, ".rotary_emb.inv_freq"):
			f.drop(t.Name, "computed from rope_theta")
		default:
			return lib.origin(t).wrong(pack.ErrUnsupported, -1, "the model has no such part", fmt.Sprintf("the tensors of a %v model alone", f.model.Arch), "a newer program may be needed")
		}
	}
	return nil
}

// explainMissingConfig says what can be said of a file without its config.json,
// which alone tells what the numbers mean.
func explainMissingConfig(st *safetensors.File) error {
	lib := &hfFiles{f: st}
	for i := range st.Tensors {
		t := &st.Tensors[i]
		if t.DType == safetensors.U8 && st.Tensor(strings.TrimSuffix(t.Name, ".weight")+".weight_scale") != nil {
			return lib.origin(t).wrong(pack.ErrUnsupported, -1, "weights of four to a byte, and no "+configName+" to say whether weight_scale multiplies or divides them", configName+" with quantization_config beside the file",
				"fetch the repository's "+configName)
		}
	}
	for i := range st.Tensors {
		t := &st.Tensors[i]
		if len(t.Shape) != 2 || t.Rows() < 1 || t.Cols() > ternary.MaxWidth {
			continue
		}
		x, err := lib.floats(t, ternary.Shape{Rows: 1, Cols: int(t.Cols())})
		if err != nil {
			continue // not numbers
		}
		err = x.each(0, 1, func(r int, v []float32) error {
			if _, _, err := magnitudes(v); err != nil {
				return x.misfit(r, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return &pack.Error{Kind: pack.ErrUnsupported, File: st.Files()[0], Offset: -1, Found: "there is no " + configName + " beside the file", Expected: "the configuration of the model",
		Hint: "fetch the repository's " + configName + ": safetensors do not say what model their tensors make"}
}

func (h *hfFiles) origin(t *safetensors.Tensor) *origin {
	return &origin{name: t.Name, file: t.File(), at: t.FileAt(), form: t.DType.String()}
}

// find returns the tensor of that name, or nil.
func (h *hfFiles) find(name string) *safetensors.Tensor {
	t := h.f.Tensor(name)
	if t != nil {
		h.used[name] = true
	}
	return t
}

// need returns the tensor of that name.
func (h *hfFiles) need(name string) (*safetensors.Tensor, error) {
	if t := h.find(name); t != nil {
		return t, nil
	}
	return nil, &pack.Error{Kind: pack.ErrCorrupt, File: h.f.Files()[0], Place: fmt.Sprintf("tensor %q", name), Offset: -1, Found: "the tensor is not there", Expected: "one, by " + configName,
		Hint: "the repository is incomplete, or its " + configName + " belongs to another model"}
}

// shaped refuses a tensor of another shape than dims.
func (h *hfFiles) shaped(t *safetensors.Tensor, dims ...int) error {
	ok := len(t.Shape) == len(dims)
	for i, d := range dims {
		ok = ok && t.Shape[i] == int64(d)
	}
	if !ok {
		return h.origin(t).wrong(pack.ErrCorrupt, -1, fmt.Sprintf("shape %v", t.Shape), fmt.Sprintf("%v, by %s", dims, configName), hintDamaged)
	}
	return nil
}

func (h *hfFiles) vector(name string, n int) ([]float32, error) {
	t, err := h.need(hf.Module(name) + ".weight")
	if err != nil {
		return nil, err
	}
	return h.numbers(t, n)
}

func (h *hfFiles) bias(name string, n int) ([]float32, error) {
	t := h.find(hf.Module(name) + ".bias")
	if t == nil {
		return nil, nil
	}
	return h.numbers(t, n)
}

// numbers reads a vector of n values.
func (h *hfFiles) numbers(t *safetensors.Tensor, n int) ([]float32, error) {
	if err := h.shaped(t, n); err != nil {
		return nil, err
	}
	v, err := t.Floats()
	if err != nil {
		return nil, err
	}
	return v, checkFinite(h.origin(t), v)
}

// scale reads the weight_scale of a linear, or nil if there is none.
func (h *hfFiles) scale(name string) (*float32, error) {
	t := h.find(hf.Module(name) + ".weight_scale")
	if t == nil {
		return nil, nil
	}
	if t.Rows()*t.Cols() != 1 {
		return nil, h.origin(t).wrong(pack.ErrUnsupported, -1, fmt.Sprintf("shape %v", t.Shape), "one value", "")
	}
	v, err := t.Floats()
	if err != nil {
		return nil, err
	}
	if !finiteScale(v[0]) {
		return nil, h.origin(t).wrong(pack.ErrCorrupt, -1, fmt.Sprintf("the scale is %v", v[0]), "a finite number above 0", hintDamaged)
	}
	return &v[0], nil
}

func (h *hfFiles) linear(name string, s ternary.Shape) (source, error) {
	t, err := h.need(hf.Module(name) + ".weight")
	if err != nil {
		return nil, err
	}
	if t.DType == safetensors.U8 {
		return h.packed(name, t, s)
	}
	if err := h.shaped(t, s.Rows, s.Cols); err != nil {
		return nil, err
	}
	x, err := h.floats(t, s)
	if err != nil {
		return nil, err
	}
	scale, err := h.scale(name)
	switch {
	case err != nil:
		return nil, err
	case h.form == trained:
		return &master{values: *x, bf16: t.DType == safetensors.BF16, near: h.near}, nil
	case scale == nil || *scale == 1:
		return x, nil
	case h.form == multiplied:
		decode := x.decode
		x.decode = func(dst []float32, src []byte) {
			decode(dst, src)
			for i := range dst {
				dst[i] *= *scale
			}
		}
		return x, nil
	}
	return nil, h.origin(t).wrong(pack.ErrUnsupported, -1, fmt.Sprintf("type %v with a weight_scale", t.DType), "packed weights (U8)", "")
}

// packed is the source of weights of four to a byte.
func (h *hfFiles) packed(name string, t *safetensors.Tensor, s ternary.Shape) (source, error) {
	o := h.origin(t)
	o.form = "packed U8"
	if h.form != multiplied && h.form != divided {
		return nil, o.wrong(pack.ErrUnsupported, -1, "weights of four to a byte, and no offline quantization_config in "+configName+" to say whether weight_scale multiplies or divides them", "one of the method \"bitnet\"", "")
	}
	if s.Rows%4 != 0 {
		return nil, o.wrong(pack.ErrUnsupported, -1, fmt.Sprintf("%d rows", s.Rows), "a multiple of 4, as four rows are packed together", "")
	}
	if err := h.shaped(t, s.Rows/4, s.Cols); err != nil {
		return nil, err
	}
	scale, err := h.scale(name)
	if err != nil {
		return nil, err
	}
	if scale == nil {
		return nil, o.wrong(pack.ErrCorrupt, -1, "there is no weight_scale", "one beside the packed weights", hintDamaged)
	}
	x := &packed{origin: *o, t: t, cols: s.Cols, scale: *scale}
	if h.form == divided { // a weight is the quotient, rounded once
		if x.scale = 1 / *scale; !finiteScale(x.scale) {
			return nil, o.wrong(pack.ErrUnsupported, -1, fmt.Sprintf("1/%v, the magnitude of the weights, is %v", *scale, x.scale), "a finite number above 0", "")
		}
	}
	return x, nil
}

func (h *hfFiles) table(name string, s ternary.Shape) (source, error) {
	t, err := h.need(hf.Module(name) + ".weight")
	if err != nil {
		return nil, err
	}
	if err := h.shaped(t, s.Rows, s.Cols); err != nil {
		return nil, err
	}
	x, err := h.floats(t, s)
	if err != nil {
		return nil, err
	}
	x.report = h.tables
	return x, nil
}

// floats is the source of a tensor of numbers, whose shape has been looked at.
func (h *hfFiles) floats(t *safetensors.Tensor, s ternary.Shape) (*values, error) {
	x := &values{origin: *h.origin(t), rows: s.Rows, cols: s.Cols}
	switch t.DType {
	case safetensors.F32:
	case safetensors.BF16:
		x.narrow = roundBF16
	case safetensors.F16:
		x.narrow = roundF16
	default:
		return nil, x.wrong(pack.ErrUnsupported, -1, fmt.Sprintf("type %v", t.DType), "F32, BF16 or F16, or U8 with the quantization method \"bitnet\"", "")
	}
	x.rowBytes = s.Cols * t.DType.Bits() / 8
	x.decode = t.DType.Float32s
	x.load = func(buf []byte, r0, r1 int) ([]byte, error) {
		b := buf[:(r1-r0)*x.rowBytes]
		_, err := t.ReadAt(b, int64(r0)*int64(x.rowBytes))
		return b, err
	}
	return x, nil
}
