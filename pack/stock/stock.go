// Package stock writes models into GGUF files that programs without the types
// FV5 and FV5B load: llama.cpp as it is published, Ollama, LM Studio.
//
// Their block formats store a scale and small integers. A general quantiser
// rounds each weight to the nearest multiple of a scale that it takes from the
// largest one. A row of a ternary model has five values, 0, ±lo and ±hi, and an
// embedding row is small integers times one scale already, so here the scale and
// the integers are searched for: see levels.go, sixbit.go and table.go.
package stock

import (
	"fmt"
	"strings"

	"npack/gguf"
	"npack/pack"
	"npack/ternary"
)

// Type is a type of file, with the type of its linears and of its embeddings.
type Type struct {
	Name     string
	Linear   gguf.Type
	Table    gguf.Type // of the embeddings
	FileType uint32    // llama.cpp's llama_ftype, for general.file_type
}

// Types are the types of files that can be written, the smallest first. The
// embeddings' int8 values fit Q8_0 as they are, where a smaller type would
// round them.
var Types = []Type{
	{"q4_0", gguf.Q4_0, gguf.Q8_0, 2},
	{"q5_0", gguf.Q5_0, gguf.Q8_0, 8},
	{"q6_k", gguf.Q6_K, gguf.Q8_0, 18},
	{"q8_0", gguf.Q8_0, gguf.Q8_0, 7},
	{"f16", gguf.F16, gguf.F16, 1},
	{"bf16", gguf.BF16, gguf.BF16, 32},
	{"f32", gguf.F32, gguf.F32, 0},
}

// Names lists the names of Types.
func Names() []string {
	names := make([]string, len(Types))
	for i, t := range Types {
		names[i] = t.Name
	}
	return names
}

// ParseType returns the type of that name, in upper or lower case.
func ParseType(name string) (Type, bool) {
	for _, t := range Types {
		if strings.EqualFold(name, t.Name) {
			return t, true
		}
	}
	return Type{}, false
}

// Rounding is how weights become blocks.
type Rounding int

const (
	Levels  Rounding = iota // by the search of this package
	Nearest                 // as llama-quantize does, to compare with
)

// Tensor is a tensor of a stock file.
type Tensor struct {
	Name string // with ".weight" or ".bias"
	Type gguf.Type
	Rows int // 1 of a vector
	Cols int

	source   ternary.Tensor
	rounding Rounding
}

// Dims returns the dimensions as GGUF has them.
func (t *Tensor) Dims() []uint64 {
	if t.source.Vector != nil {
		return []uint64{uint64(t.Cols)}
	}
	return []uint64{uint64(t.Cols), uint64(t.Rows)}
}

// RowSize is the bytes of a row.
func (t *Tensor) RowSize() int {
	weights, bytes := t.Type.Block()
	return t.Cols / weights * bytes
}

// Plan lists the tensors of a file of type ty. It refuses models that the
// published llama.cpp would run differently or not at all, with an error of kind
// [pack.ErrUnsupported].
func Plan(m *ternary.Model, ty Type, r Rounding) ([]Tensor, error) {
	if err := runs(m); err != nil {
		return nil, err
	}
	var list []Tensor
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			w := t.Ternary
			list = append(list, Tensor{t.Name + ".weight", fit(ty.Linear, w.Cols), w.Rows, w.Cols, t, r})
			if w.Bias != nil {
				v := ternary.Tensor{Name: t.Name, Layer: t.Layer, Vector: w.Bias}
				list = append(list, Tensor{t.Name + ".bias", gguf.F32, 1, w.Rows, v, r})
			}
		case t.Int8 != nil:
			want := ty.Table
			if r == Nearest {
				want = nearestTable(ty, m.Tied || t.Name == "output")
			}
			list = append(list, Tensor{t.Name + ".weight", fit(want, t.Int8.Cols), t.Int8.Rows, t.Int8.Cols, t, r})
		default:
			list = append(list, Tensor{t.Name + ".weight", gguf.F32, 1, len(t.Vector), t, r})
		}
	}
	return list, nil
}

// fit returns t, or where rows of cols values are no whole blocks of it a type
// with smaller blocks, the one that llama-quantize takes.
func fit(t gguf.Type, cols int) gguf.Type {
	whole := func(t gguf.Type) bool {
		weights, _ := t.Block()
		return cols%weights == 0
	}
	if t == gguf.Q6_K && !whole(t) {
		t = gguf.Q8_0
	}
	if !whole(t) {
		t = gguf.F16
	}
	return t
}

// runs reports whether the published llama.cpp computes what m means.
func runs(m *ternary.Model) error {
	refuse := func(place, found, expected string) error {
		return &pack.Error{Kind: pack.ErrUnsupported, Place: place, Offset: -1, Found: found, Expected: expected,
			Hint: "without --stock the GGUF file is for programs that know FV5"}
	}
	if m.Arch == ternary.BitNet {
		// Its graph for "bitnet" has SiLU where this topology has a squared ReLU,
		// and no 8-bit activations.
		return refuse("header", "arch is 2 (BitNet)", "1 (Qwen2) or 3 (Qwen3): unpatched llama.cpp computes another function for its bitnet")
	}
	if m.RotaryDims != m.HeadDim {
		return refuse("header", fmt.Sprintf("rotary_dims is %d", m.RotaryDims), fmt.Sprintf("head_dim, %d: unpatched llama.cpp rotates whole heads", m.HeadDim))
	}
	if m.Arch == ternary.Qwen2 && m.QDim() != m.Hidden {
		return refuse("header", fmt.Sprintf("n_heads * head_dim is %d", m.QDim()), fmt.Sprintf("hidden, %d: unpatched llama.cpp has no other qwen2", m.Hidden))
	}
	for i := range m.Layers {
		for j, w := range m.Layers[i].Linears() {
			if w.Bias != nil && j > 2 {
				return refuse(fmt.Sprintf("tensor %q", ternary.LayerName(i, ternary.Projections[j])), "biases", "none but on attn_q, attn_k and attn_v")
			}
		}
	}
	return nil
}
