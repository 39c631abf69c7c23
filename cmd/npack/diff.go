package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
	"npack/pack/formats"
	"npack/ternary"
)

func diffCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "diff",
		Usage:     "compare the weights of two models of any formats",
		UsageText: "npack diff [flags] A B",
		Description: "Says \"same weights\", or names the first difference in the container's order: tensor, row, column\n" +
			"and both values. Geometry, weights, scales, norms and biases count; how a format stores them does\n" +
			"not: padding, row sums, tokenizers.\n\n" +
			"Exit status: 0 same weights, 3 different.\n\n" +
			cli.Examples("npack diff model.bin model.gguf", "npack diff --json pack/ other-pack/"),
		Flags:  []urfave.Flag{jsonFlag(), quietFlag("print nothing unless they differ")},
		Action: diff,
	}
}

// comparison is the object that diff --json prints.
type comparison struct {
	A          string      `json:"a"`
	B          string      `json:"b"`
	FormatA    string      `json:"format_a"`
	FormatB    string      `json:"format_b"`
	Same       bool        `json:"same"`
	Weights    int64       `json:"weights"` // compared
	Difference *difference `json:"difference,omitempty"`
}

// difference is the first place where two models differ.
type difference struct {
	Tensor string `json:"tensor,omitempty"` // empty for the geometry
	Part   string `json:"part"`             // "weight", a scale, a field of the geometry
	Row    int    `json:"row"`              // -1 where it does not apply
	Column int    `json:"column"`
	A      string `json:"value_a"`
	B      string `json:"value_b"`
}

func (d *difference) String() string {
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

func diff(c *urfave.Context) error {
	args, err := cli.Positionals(c, 2, 2)
	if err != nil {
		return err
	}
	var src [2]formats.Source
	for i, arg := range args {
		if src[i], err = formats.Open(arg); err != nil {
			return err
		}
		defer src[i].Close()
	}
	x := &comparison{A: src[0].Name(), B: src[1].Name(), FormatA: formatOf(src[0]), FormatB: formatOf(src[1])}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	d := differ{ctx: c.Context, src: src, progress: func(done, total int64) { p.Show("comparing", done, total) }}
	if err := ternary.Guard(d.run); err != nil {
		return err
	}
	p.Done()
	x.Difference, x.Weights, x.Same = d.first, countWeights(src[0].Model()).Total, d.first == nil
	if c.Bool("json") {
		if err := cli.JSON(c.App.Writer, x); err != nil {
			return err
		}
	} else if x.Same && !c.Bool("quiet") {
		fmt.Fprintf(c.App.Writer, "same weights: %s in %q (%s) and %q (%s)\n", cli.Group(x.Weights), x.A, x.FormatA, x.B, x.FormatB)
	}
	if !x.Same {
		return &pack.Error{Kind: pack.ErrNotEqual, Offset: -1, Found: fmt.Sprintf("%q and %q have different weights: %s", x.A, x.B, x.Difference)}
	}
	return nil
}

// differ looks for the first difference of two models.
type differ struct {
	ctx         context.Context
	src         [2]formats.Source
	parts       [2]ternary.Part
	first       *difference
	done, total int64
	progress    func(done, total int64)
}

func (d *differ) run() error {
	a, b := d.src[0].Model(), d.src[1].Model()
	d.geometry(&a.Config, &b.Config)
	if d.first != nil {
		return nil
	}
	d.total = countWeights(a).Total
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

func (d *differ) geometry(a, b *ternary.Config) {
	note := func(part string, x, y any) {
		if x != y && d.first == nil {
			d.first = &difference{Part: part, Row: -1, Column: -1, A: fmt.Sprint(x), B: fmt.Sprint(y)}
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
			d.done += int64(r1-r0) * int64(t.Ternary.Cols)
		} else {
			d.table(t.Name, part[0].Int8, part[1].Int8, r0)
			d.done += int64(r1-r0) * int64(t.Int8.Cols)
		}
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
			d.first = &difference{Tensor: name, Part: "the bits of weights, whose values are equal,", Row: r0 + r, Column: -1, A: "one way", B: "another"}
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
		d.first = &difference{Tensor: name, Part: "bias", Row: -1, Column: -1, A: there(a), B: there(b)}
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
	d.first = &difference{Tensor: name, Part: part, Row: row, Column: col, A: fmt.Sprint(a), B: fmt.Sprint(b)}
}

func bits(f float32) uint32 { return math.Float32bits(f) }
