// Package modeldiff finds the first place where two models of any formats have
// different weights.
package modeldiff

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"npack/pack/formats"
	"npack/ternary"
)

// Difference is the first place where two models differ.
type Difference struct {
	Tensor string `json:"tensor,omitempty"` // empty for the geometry
	Part   string `json:"part"`             // "weight", a scale, a field of the geometry
	Row    int    `json:"row"`              // -1 where it does not apply
	Column int    `json:"column"`
	A      string `json:"value_a"`
	B      string `json:"value_b"`
}

func (d *Difference) String() string {
	var b strings.Builder
	if d.Tensor != "" {
		fmt.Fprintf(&b, "tensor %q: ", d.Tensor)
	}
	if d.Row >= 0 {
		fmt.Fprintf(&b, "row %d", d.Row)
		if d.Column >= 0 {
			fmt.Fprintf(&b, ", column %d", d.Column)
		}
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "%s is %s and %s", d.Part, d.A, d.B)
	return b.String()
}

// First returns the first difference of two open models in the container's
// order, nil if there is none. Geometry, weights, scales, norms and biases
// count; how a format stores them does not. progress is told how many weights
// of how many were compared. Errors have the place in the file.
func First(ctx context.Context, a, b formats.Source, progress func(done, total int64)) (*Difference, error) {
	d := differ{ctx: ctx, src: [2]formats.Source{a, b}, progress: progress}
	if err := ternary.Guard(d.run); err != nil {
		return nil, err
	}
	return d.first, nil
}

type differ struct {
	ctx         context.Context
	src         [2]formats.Source
	parts       [2]ternary.Part
	first       *Difference
	done, total int64
	progress    func(done, total int64)
}

func (d *differ) run() error {
	a, b := d.src[0].Model(), d.src[1].Model()
	d.geometry(&a.Config, &b.Config)
	if d.first != nil {
		return nil
	}
	for t := range a.Tensors() {
		d.total += weights(t)
	}
	// The same geometry has the same tensors.
	var other []ternary.Tensor
	for t := range b.Tensors() {
		other = append(other, t)
	}
	i := 0
	for t := range a.Tensors() {
		if err := d.tensor(t, other[i]); err != nil || d.first != nil {
			return err
		}
		i++
	}
	return nil
}

// weights is how many values of a tensor are compared.
func weights(t ternary.Tensor) int64 { return int64(t.Shape().Rows) * int64(t.Shape().Cols) }

func (d *differ) geometry(a, b *ternary.Config) {
	note := func(part string, x, y any) {
		if x != y && d.first == nil {
			d.first = &Difference{Part: part, Row: -1, Column: -1, A: fmt.Sprint(x), B: fmt.Sprint(y)}
		}
	}
	note("arch", a.Arch, b.Arch)
	fields := b.Fields()
	for i, f := range a.Fields() {
		note(f.Name, f.Value, fields[i].Value)
	}
	note("rms_norm_eps", a.RMSEps, b.RMSEps)
	note("rope_theta", a.RopeTheta, b.RopeTheta)
	note("tied", a.Tied, b.Tied)
}

func (d *differ) tensor(t, u ternary.Tensor) error {
	if t.Vector != nil {
		d.floats(t.Name, "the value", t.Vector, u.Vector)
		d.done += int64(len(t.Vector))
		return nil
	}
	for r0, r1 := range t.Chunks() {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		var part [2]ternary.Tensor
		for i, x := range [2]ternary.Tensor{t, u} {
			var err error
			if part[i], err = d.src[i].Model().ReadRows(&d.parts[i], x, r0, r1); err != nil {
				return d.src[i].Place(err)
			}
		}
		if t.Ternary != nil {
			d.matrix(t.Name, part[0].Ternary, part[1].Ternary, r0)
		} else {
			d.table(t.Name, part[0].Int8, part[1].Int8, r0)
		}
		d.done += int64(r1-r0) * int64(t.Shape().Cols)
		for i := range part {
			d.src[i].Model().ReleaseTensor(part[i])
		}
		if d.first != nil {
			return nil
		}
		d.progress(d.done, d.total)
	}
	if t.Ternary != nil {
		d.bias(t.Name, t.Ternary.Bias, u.Ternary.Bias)
	}
	return nil
}

// matrix compares rows of two matrices; the first is row r0 of the tensor.
func (d *differ) matrix(name string, a, b *ternary.Matrix, r0 int) {
	width := (a.Cols + 7) / 8
	for r := range a.Rows {
		i, j := r*a.Stride, r*b.Stride
		same := bytes.Equal(a.BP[i:i+width], b.BP[j:j+width]) && bytes.Equal(a.BN[i:i+width], b.BN[j:j+width]) && bytes.Equal(a.BR[i:i+width], b.BR[j:j+width])
		if same && bits(a.SLo[r]) == bits(b.SLo[r]) && bits(a.SHi[r]) == bits(b.SHi[r]) {
			continue
		}
		for c := range a.Cols {
			if x, y := a.Weight(r, c), b.Weight(r, c); bits(x) != bits(y) {
				d.note(name, "the weight", r0+r, c, x, y)
				return
			}
		}
		// The weights are equal: a scale that none of them uses differs, or a
		// bit that has no meaning.
		switch {
		case bits(a.SLo[r]) != bits(b.SLo[r]):
			d.note(name, "s_lo, which no weight uses,", r0+r, -1, a.SLo[r], b.SLo[r])
		case bits(a.SHi[r]) != bits(b.SHi[r]):
			d.note(name, "s_hi, which no weight uses,", r0+r, -1, a.SHi[r], b.SHi[r])
		default:
			d.first = &Difference{Tensor: name, Part: "the bits of weights, whose values are equal,", Row: r0 + r, Column: -1, A: "one way", B: "another"}
		}
		return
	}
}

func (d *differ) table(name string, a, b *ternary.Int8Matrix, r0 int) {
	for r := range a.Rows {
		if slices.Equal(a.Row(r), b.Row(r)) && bits(a.Scale[r]) == bits(b.Scale[r]) {
			continue
		}
		x, y := a.Row(r), b.Row(r)
		for c := range x {
			if v, w := float32(x[c])*a.Scale[r], float32(y[c])*b.Scale[r]; bits(v) != bits(w) {
				d.note(name, "the weight", r0+r, c, v, w)
				return
			}
		}
		d.note(name, "the scale, which changes no weight,", r0+r, -1, a.Scale[r], b.Scale[r])
		return
	}
}

func (d *differ) bias(name string, a, b []float32) {
	if (a == nil) != (b == nil) {
		d.first = &Difference{Tensor: name, Part: "bias", Row: -1, Column: -1, A: there(a), B: there(b)}
		return
	}
	d.floats(name, "the bias", a, b)
}

func there(v []float32) string {
	if v == nil {
		return "not there"
	}
	return "there"
}

// floats compares values that count as rows.
func (d *differ) floats(name, part string, a, b []float32) {
	for r := range a {
		if bits(a[r]) != bits(b[r]) {
			d.note(name, part, r, -1, a[r], b[r])
			return
		}
	}
}

func (d *differ) note(name, part string, row, col int, a, b float32) {
	d.first = &Difference{Tensor: name, Part: part, Row: row, Column: col, A: fmt.Sprint(a), B: fmt.Sprint(b)}
}

func bits(f float32) uint32 { return math.Float32bits(f) }
