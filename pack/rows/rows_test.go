package rows_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"npack/internal/hexdoc"
	"npack/pack"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
	"npack/testdata/tv4z"
)

var sum = strings.Repeat("0123456789abcdef", 4)

func model(t testing.TB, name string) *ternary.Model {
	t.Helper()
	b, err := tv4z.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := native.OpenBytes(name, b)
	if err != nil {
		t.Fatal(err)
	}
	return f.Model()
}

func write(t testing.TB, m *ternary.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := rows.Write(t.Context(), &b, m, sum, 77); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(t testing.TB, b []byte) (*rows.File, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, rows.Name), b, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := rows.Open(dir)
	if err == nil {
		t.Cleanup(func() { f.Close() })
	}
	return f, err
}

// strange gives a model all that a container may have and others may not.
func strange(m *ternary.Model) {
	l := &m.Layers[0]
	w := &l.Q
	w.SHi[3] = w.SLo[3] // the planes say which, the values do not
	w.RSLo[0], w.RSHi[1] = 99, -99
	l.K.BiasFlag = 7
	h := &m.Head
	pad := h.Stride + 3
	q := make([]int8, h.Rows*pad)
	for r := range h.Rows {
		copy(q[r*pad:], h.Q[r*h.Stride:(r+1)*h.Stride])
		q[(r+1)*pad-1] = int8(r)
	}
	h.ColsPad, h.Stride, h.Q = pad, pad, q
	h.WSum[5] = 1 << 30
}

// What is written comes back in parts, for all arches and for a model with all
// that is unusual.
func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"a1-bias-untied.bin", "a2-untied-2l.bin", "a3-tied.bin", "worked.bin", "strange"} {
		t.Run(name, func(t *testing.T) {
			var m *ternary.Model
			if name == "strange" {
				m = model(t, "a1-bias-tied.bin")
				strange(m)
			} else {
				m = model(t, name)
			}
			f, err := open(t, write(t, m))
			if err != nil {
				t.Fatal(err)
			}
			if s, n := f.Container(); s != sum || n != 77 {
				t.Errorf("container %s of %d bytes", s, n)
			}
			for x := range m.Tensors() {
				if x.Vector == nil {
					check(t, f, x)
				}
			}
		})
	}
}

func check(t *testing.T, f *rows.File, x ternary.Tensor) {
	t.Helper()
	got := ternary.Tensor{Name: x.Name}
	var p ternary.Part
	if w := x.Ternary; w != nil {
		got.Ternary = &ternary.Matrix{Rows: w.Rows, Cols: w.Cols, Bias: w.Bias}
	} else {
		got.Int8 = &ternary.Int8Matrix{Rows: x.Int8.Rows, Cols: x.Int8.Cols}
	}
	if err := f.Layout(got); err != nil {
		t.Fatal(err)
	}
	r0 := 1
	if w := x.Ternary; w != nil {
		n := w.Rows - r0
		if g := got.Ternary; g.Stride != w.Stride || g.ColsPad != w.ColsPad || w.Bias != nil && g.BiasFlag != w.BiasFlag {
			t.Fatalf("%s: layout %d, %d, flag %d", x.Name, g.ColsPad, g.Stride, g.BiasFlag)
		}
		p.Size(got, n)
		if err := f.Scales(got, &p, r0); err != nil {
			t.Fatal(err)
		}
		if q := &p.Ternary; !slices.Equal(q.SLo, w.SLo[r0:]) || !slices.Equal(q.SHi, w.SHi[r0:]) || !slices.Equal(q.RSLo, w.RSLo[r0:]) || !slices.Equal(q.RSHi, w.RSHi[r0:]) {
			t.Errorf("%s: other scales or sums", x.Name)
		}
		br, err := f.BR(got, r0, n)
		if want := w.BR[r0*w.Stride:]; err != nil || br != nil && !bytes.Equal(br, want) {
			t.Errorf("%s: another br: %v", x.Name, err)
		}
		for r := r0; br == nil && r < w.Rows; r++ {
			if w.SLo[r] == w.SHi[r] && !bytes.Equal(w.BR[r*w.Stride:(r+1)*w.Stride], make([]byte, w.Stride)) {
				t.Errorf("%s: br is not there", x.Name)
			}
		}
		return
	}
	w := x.Int8
	n := w.Rows - r0
	p.Size(got, n)
	if err := f.Scales(got, &p, r0); err != nil {
		t.Fatal(err)
	}
	if q := &p.Int8; got.Int8.Stride != w.Stride || !slices.Equal(q.Scale, w.Scale[r0:]) || !slices.Equal(q.WSum, w.WSum[r0:]) {
		t.Errorf("%s: other scales or sums", x.Name)
	}
	pad, err := f.Padding(got, r0, n)
	if err != nil {
		t.Fatal(err)
	}
	for r := range n {
		for c := w.Cols; c < w.Stride; c++ {
			var v int8
			if pad != nil {
				v = int8(pad[r*(w.Stride-w.Cols)+c-w.Cols])
			}
			if v != w.Q[(r0+r)*w.Stride+c] {
				t.Fatalf("%s: padding %d of row %d is %d", x.Name, c, r0+r, v)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	if _, err := rows.Open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	m := model(t, "a1-bias-tied.bin")
	strange(m)
	good := write(t, m)
	for name, edit := range map[string][2]string{
		"sha256": {sum, strings.Repeat("x", 64)},
		"bytes":  {`"77"`, `"-7"`},
	} {
		if _, err := open(t, bytes.Replace(good, []byte(edit[0]), []byte(edit[1]), 1)); !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A layout that asks for memory, a column of another model, a flag of 0.
	x, err := safetensors.New("x", bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string, b ...byte) []byte {
		c := slices.Clone(good)
		copy(c[x.Tensor(name).FileAt():], b)
		return c
	}
	head := ternary.Tensor{Name: "token_embd", Int8: &ternary.Int8Matrix{Rows: 40, Cols: 72}}
	k := func() ternary.Tensor {
		return ternary.Tensor{Name: "blk.0.attn_k", Ternary: &ternary.Matrix{Rows: 32, Cols: 72, Bias: make([]float32, 32)}}
	}
	tests := []struct {
		name string
		b    []byte
		do   func(*rows.File) error
	}{
		{"wide", at("token_embd.layout", 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 64), func(f *rows.File) error { return f.Layout(head) }},
		{"narrow", at("token_embd.layout", 71, 0, 0, 0, 0, 0, 0, 0, 71), func(f *rows.File) error { return f.Layout(head) }},
		{"flag", at("blk.0.attn_k.bias_flag", 0, 0, 0, 0), func(f *rows.File) error { return f.Layout(k()) }},
		{"rows", good, func(f *rows.File) error {
			w, p := k(), ternary.Part{}
			w.Ternary.Rows = 31
			p.Size(w, 31)
			return f.Scales(w, &p, 0)
		}},
		{"missing", good, func(f *rows.File) error {
			w, p := k(), ternary.Part{}
			w.Name = "blk.1.attn_k"
			p.Size(w, 1)
			return f.Scales(w, &p, 0)
		}},
		{"br", good, func(f *rows.File) error {
			w := ternary.Tensor{Name: "blk.0.attn_q", Ternary: &ternary.Matrix{Rows: 64, Cols: 72, Stride: 65}}
			_, err := f.BR(w, 0, 64)
			return err
		}},
	}
	for _, tt := range tests {
		f, err := open(t, tt.b)
		if err != nil {
			t.Fatal(err)
		}
		var e *pack.Error
		if err := tt.do(f); !errors.As(err, &e) || e.Kind != pack.ErrCorrupt || e.Hint == "" {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// The example of FORMAT.md is what the reader finds.
func TestFormatExample(t *testing.T) {
	text, _, b, err := hexdoc.Example("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if s, n := f.Container(); s != sum || n != 77 {
		t.Errorf("container %s of %d bytes", s, n)
	}
	for name, colsPad := range map[string]int{"token_embd": 96, "output": 64} {
		x := ternary.Tensor{Name: name, Int8: &ternary.Int8Matrix{Rows: 2, Cols: 64}}
		if err := f.Layout(x); err != nil || x.Int8.ColsPad != colsPad || x.Int8.Stride != colsPad {
			t.Errorf("%s: rows of %d bytes, %v", name, x.Int8.Stride, err)
		}
		var p ternary.Part
		p.Size(x, 2)
		if err := f.Scales(x, &p, 0); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{fmt.Sprintf("scale = %g %g\n", p.Int8.Scale[0], p.Int8.Scale[1]), fmt.Sprintf("wsum = %d %d\n", p.Int8.WSum[0], p.Int8.WSum[1])} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the example does not say %q (%d)", name, want, i)
			}
		}
	}
}
