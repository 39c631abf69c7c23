package foreign

import (
	"fmt"
	"math"

	"npack/pack"
	"npack/ternary"
)

// library finds the parts of a model in a file. Names are those of
// [ternary.Tensor]; shapes have been compared with the file when it answers.
type library interface {
	// vector returns the n values of a norm.
	vector(name string, n int) ([]float32, error)
	// bias returns those of a linear's bias, or nil if it has none.
	bias(name string, n int) ([]float32, error)
	linear(name string, s ternary.Shape) (source, error)
	table(name string, s ternary.Shape) (source, error)
}

// build makes the model of the configuration out of the parts in lib. Vectors
// are read, matrices and tables are not.
func (f *File) build(lib library) error {
	m := &f.model
	f.sources = map[string]source{}
	shape := ternary.Shape{Rows: m.Vocab, Cols: m.Hidden}
	table := func(name string) (ternary.Int8Matrix, error) {
		x, err := lib.table(name, shape)
		f.sources[name] = x
		t := ternary.Int8Matrix{Rows: m.Vocab, Cols: m.Hidden}
		if err == nil {
			err = f.known.Layout(ternary.Tensor{Name: name, Int8: &t})
		}
		return t, err
	}
	if !m.Tied {
		t, err := table("token_embd")
		if err != nil {
			return err
		}
		m.Embed = &t
	}
	shapes := m.LinearShapes()
	for n := range m.Config.Layers {
		var l ternary.Layer
		for _, x := range l.Norms(&m.Config) {
			var err error
			if *x.Data, err = lib.vector(ternary.LayerName(n, x.Name), x.Len); err != nil {
				return err
			}
		}
		for j, w := range l.Linears() {
			name, s := ternary.LayerName(n, ternary.Projections[j]), shapes[j]
			x, err := lib.linear(name, s)
			if err != nil {
				return err
			}
			f.sources[name] = x
			*w = ternary.Matrix{Rows: s.Rows, Cols: s.Cols}
			if w.Bias, err = lib.bias(name, s.Rows); err != nil {
				return err
			}
			if err := f.known.Layout(ternary.Tensor{Name: name, Ternary: w}); err != nil {
				return err
			}
		}
		m.Layers = append(m.Layers, l)
	}
	var err error
	if m.FinalNorm, err = lib.vector("output_norm", m.Hidden); err != nil {
		return err
	}
	name := "output"
	if m.Tied {
		name = "token_embd"
	}
	if m.Head, err = table(name); err != nil {
		return err
	}
	m.Rows = f.rows
	return m.CheckShapes()
}

// rows reads rows of a tensor of the model; see [ternary.Model.Rows].
func (f *File) rows(p *ternary.Part, t ternary.Tensor, r0, r1 int) error {
	p.Size(t, r1-r0)
	x := f.sources[t.Name]
	k, err := f.recall(p, t, r0, r1-r0)
	switch {
	case err != nil:
		return err
	case t.Int8 != nil:
		return x.table(&p.Int8, r0, k)
	case t.Ternary.Bias != nil:
		p.Ternary.Bias = t.Ternary.Bias[r0:r1]
	}
	return x.matrix(&p.Ternary, r0, k)
}

// recall reads what is known of n rows from r0 on.
func (f *File) recall(p *ternary.Part, t ternary.Tensor, r0, n int) (k known, err error) {
	if f.known == nil {
		return k, nil
	}
	k.scales = true
	if err := f.known.Scales(t, p, r0); err != nil {
		return k, err
	}
	if t.Int8 != nil {
		k.padding, err = f.known.Padding(t, r0, n)
	} else {
		k.br, err = f.known.BR(t, r0, n)
	}
	return k, err
}

// checkFinite refuses values that are no numbers.
func checkFinite(o *origin, v []float32) error {
	for i, x := range v {
		if math.Float32bits(x)&infinity == infinity {
			return o.wrong(pack.ErrCorrupt, -1, fmt.Sprintf("value %d is %v", i, x), "a finite number", hintDamaged)
		}
	}
	return nil
}
