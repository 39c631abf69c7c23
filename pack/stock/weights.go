package stock

import (
	"fmt"

	"npack/ternary"
)

// Weights are the numbers that a file of these tensors stands for, made when
// they are asked for. Its methods are those of a model that is to be judged (see
// package dense) and may be called from several goroutines.
type Weights struct {
	m       *ternary.Model
	tensors map[string]*Tensor
	// Imitate is whether activations are rounded as llama.cpp's CPU code does.
	Imitate bool
}

// NewWeights returns the numbers of a file that Plan has planned.
func NewWeights(m *ternary.Model, tensors []Tensor) *Weights {
	w := &Weights{m: m, tensors: make(map[string]*Tensor, len(tensors))}
	for i := range tensors {
		w.tensors[tensors[i].Name] = &tensors[i]
	}
	return w
}

// Config returns the model's geometry.
func (w *Weights) Config() *ternary.Config { return &w.m.Config }

// Vector returns the values of a norm or bias, or nil.
func (w *Weights) Vector(name string) []float32 {
	if t := w.tensors[name]; t != nil {
		return t.source.Vector
	}
	return nil
}

// Rows encodes rows r0 to r1 and writes what they decode to into dst.
func (w *Weights) Rows(dst []float32, name string, r0, r1 int) error {
	t := w.tensors[name]
	if t == nil {
		return fmt.Errorf("tensor %q is not in the file", name)
	}
	return ternary.Guard(func() error {
		var p ternary.Part
		part, err := t.part(w.m, &p, r0, r1)
		if err != nil {
			return err
		}
		b := make([]byte, (r1-r0)*t.RowSize())
		t.NewEncoder().Encode(b, part)
		return t.Type.Dequantize(dst, b)
	})
}

// Round rounds what the tensor of that name is multiplied with.
func (w *Weights) Round(name string, x []float64) {
	if t := w.tensors[name]; w.Imitate && t != nil {
		RoundActivations(t.Type, x)
	}
}

// Half says how attention is computed: llama.cpp's cache is F16 unless it is
// told otherwise.
func (w *Weights) Half() bool { return w.Imitate }
