package fv5_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"npack/gguf"
	"npack/pack"
	"npack/pack/fv5"
	"npack/pack/native"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/cases"
)

// edit writes a file with another header; data stays with its tensor.
func edit(t testing.TB, b []byte, change func(h *gguf.Header)) []byte {
	t.Helper()
	f, err := gguf.OpenBytes("x", b)
	if err != nil {
		t.Fatal(err)
	}
	h := f.Header
	h.Metadata, h.Tensors = slices.Clone(h.Metadata), slices.Clone(h.Tensors)
	change(&h)
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, &h)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range h.Tensors {
		data := append(slices.Clone(x.Data), make([]byte, max(0, x.Size-int64(len(x.Data))))...)
		if _, err := w.Write(data[:x.Size]); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func set(key string, v gguf.Value) func(h *gguf.Header) {
	return func(h *gguf.Header) {
		for i := range h.Metadata {
			if h.Metadata[i].Key == key {
				h.Metadata[i].Value = v
				return
			}
		}
		h.Metadata = append(h.Metadata, gguf.KV{Key: key, Value: v})
	}
}

func without(key string) func(h *gguf.Header) {
	return func(h *gguf.Header) {
		h.Metadata = slices.DeleteFunc(h.Metadata, func(kv gguf.KV) bool { return kv.Key == key })
	}
}

func tensors(change func(t *gguf.Tensor) bool) func(h *gguf.Header) {
	return func(h *gguf.Header) {
		var kept []gguf.Tensor
		for _, x := range h.Tensors {
			if change(&x) {
				kept = append(kept, x)
			}
		}
		h.Tensors = kept
	}
}

func TestRefuse(t *testing.T) {
	good := export(t, ternarytest.Model(specs()[0].Spec), fv5.Options{})
	on := func(name string, f func(x *gguf.Tensor)) func(h *gguf.Header) {
		return tensors(func(x *gguf.Tensor) bool {
			if x.Name == name {
				f(x)
			}
			return true
		})
	}
	extra := func(b ...byte) func(h *gguf.Header) { return set("npack.container.extra", gguf.Bytes(b)) }
	for name, tt := range map[string]struct {
		change  func(h *gguf.Header)
		kind    error
		mention string
	}{
		"no provenance":      {without("general.quantization_provenance"), pack.ErrUnsupported, `"general.quantization_provenance": the key is not there, and tensor "blk.0.attn_q.weight" is of type FV5 (43)`},
		"foreign provenance": {set("general.quantization_provenance", gguf.String("other")), pack.ErrUnsupported, `the value is "other"`},
		"other kind of it":   {set("general.quantization_provenance", gguf.Uint32(1)), pack.ErrUnsupported, "begins with"},
		"architecture":       {set("general.architecture", gguf.String("llama")), pack.ErrUnsupported, `the architecture is "llama"`},
		"no architecture":    {without("general.architecture"), pack.ErrUnsupported, "the key is not there"},
		"no layers":          {without("qwen3.block_count"), pack.ErrCorrupt, "qwen3.block_count"},
		"many layers":        {set("qwen3.block_count", gguf.Uint32(4000)), pack.ErrCorrupt, "4000 layers"},
		"one layer more":     {set("qwen3.block_count", gguf.Uint32(3)), pack.ErrCorrupt, `"blk.2.attn_norm.weight": the tensor is not there`},
		"one layer less":     {set("qwen3.block_count", gguf.Uint32(1)), pack.ErrUnsupported, `"blk.1.attn_norm.weight": the model has no such part`},
		"negative":           {set("qwen3.embedding_length", gguf.Int32(-1)), pack.ErrCorrupt, "the value is -1"},
		"huge":               {set("qwen3.context_length", gguf.Uint64(1<<40)), pack.ErrCorrupt, "the value is 1099511627776"},
		"width":              {set("qwen3.embedding_length", gguf.Uint32(512)), pack.ErrCorrupt, "dimensions [256], expected [512 1]"},
		"values":             {set("qwen3.attention.value_length", gguf.Uint32(32)), pack.ErrUnsupported, "values of 32"},
		"eps":                {set("qwen3.attention.layer_norm_rms_epsilon", gguf.Uint32(1)), pack.ErrCorrupt, "no float"},
		"eps 0":              {set("qwen3.attention.layer_norm_rms_epsilon", gguf.Float32(0)), pack.ErrCorrupt, "rms_norm_eps is 0"},
		"no embedding":       {tensors(func(x *gguf.Tensor) bool { return x.Name != "token_embd.weight" }), pack.ErrCorrupt, "token_embd.weight"},
		"no norm":            {tensors(func(x *gguf.Tensor) bool { return x.Name != "output_norm.weight" }), pack.ErrCorrupt, "output_norm.weight"},
		"not ternary":        {tensors(func(x *gguf.Tensor) bool { return x.Type == gguf.F32 }), pack.ErrUnsupported, "no tensor is of type FV5"},
		"F16": {on("blk.0.attn_norm.weight", func(x *gguf.Tensor) { x.Type = gguf.F16 }), pack.ErrUnsupported,
			`"blk.0.attn_norm.weight": byte`},
		"ternary table": {on("token_embd.weight", func(x *gguf.Tensor) { x.Type = gguf.FV5 }), pack.ErrUnsupported, "FV5 (43), expected FV5B (44)"},
		"three dims":    {on("blk.0.attn_q.weight", func(x *gguf.Tensor) { x.Dims = []uint64{256, 1, 128} }), pack.ErrCorrupt, "dimensions [256 1 128]"},
		"sha256":        {set("npack.container.sha256", gguf.String("00")), pack.ErrCorrupt, "64 hex digits"},
		"bytes":         {set("npack.container.bytes", gguf.String("00")), pack.ErrCorrupt, "npack.container.bytes"},

		"no bytes": {without("npack.container.bytes"), pack.ErrCorrupt, "the value is not there, expected a u64"}, // found by FuzzOpen

		"extra kind":     {set("npack.container.extra", gguf.String("x")), pack.ErrCorrupt, "an array of u8"},
		"extra version":  {extra(9), pack.ErrCorrupt, "version 9"},
		"extra entry":    {extra(1, 4, 77), pack.ErrCorrupt, "entry 77"},
		"extra short":    {extra(1, 4), pack.ErrCorrupt, "too early"},
		"extra cut":      {extra(1, 4, 1, 200), pack.ErrCorrupt, "too early"},
		"extra order":    {extra(1, 5, 1, 128, 4, 64, 4, 1, 128, 4, 64), pack.ErrCorrupt, "out of order"},
		"extra list":     {extra(1, 4, 2, 255, 255, 255, 15, 0), pack.ErrCorrupt, "a number of the record"},
		"extra long":     {extra(1, 4, 2, 255, 255, 3, 0), pack.ErrCorrupt, "too early"},
		"extra row":      {extra(1, 4, 2, 1, 255, 255, 3, 2), pack.ErrCorrupt, "the word of row 65535 of 256"},
		"extra stride":   {extra(1, 4, 1, 128, 4, 255, 255, 255, 255, 7), pack.ErrCorrupt, "rows of"},
		"extra narrow":   {extra(1, 4, 1, 128, 4, 1), pack.ErrCorrupt, "row_stride is 1"},
		"extra padding":  {extra(1, 23, 6, 1, 0), pack.ErrCorrupt, "1 values of padding"},
		"extra bias":     {extra(1, 4, 5, 2, 0, 0, 0), pack.ErrCorrupt, "a bias flag and no bias"},
		"extra of table": {extra(1, 4, 4, 1, 0, 2), pack.ErrCorrupt, "an entry of a table"},
		"extra of trits": {extra(1, 23, 2, 1, 0, 2), pack.ErrCorrupt, "an entry of a matrix"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fv5.OpenBytes("m.gguf", edit(t, good, tt.change))
			var e *pack.Error
			if !errors.As(err, &e) || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.mention) {
				t.Fatalf("%v, want %v that mentions %q", err, tt.kind, tt.mention)
			}
			if e.File != "m.gguf" || e.Hint == "" && name != "values" {
				t.Errorf("%#v", e)
			}
		})
	}
	// The edits are of a file that opens.
	if f, err := fv5.OpenBytes("m.gguf", edit(t, good, func(*gguf.Header) {})); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

// Weights that break a rule are found, with their place in the file.
func TestPlaces(t *testing.T) {
	good := export(t, ternarytest.Model(specs()[0].Spec), fv5.Options{})
	f := open(t, good)
	q := f.GGUF().Tensor("blk.1.ffn_down.weight") // 512 columns: two blocks a row
	up := f.GGUF().Tensor("blk.1.ffn_up.weight")  // 256: one
	table := f.GGUF().Tensor("token_embd.weight")
	norm := f.GGUF().Tensor("output_norm.weight")
	const nan = 0x7fc00000
	for name, tt := range map[string]struct {
		at      int64
		put     uint32
		mention string
	}{
		"both bits": {q.FileAt + 3*208 + 104 + 40, 0xffffffff, `tensor "blk.1.ffn_down.weight": row 3, column 26`},
		"br alone":  {q.FileAt + 5*208 + 72, 0xffffffff, `tensor "blk.1.ffn_down.weight": row 5, column`},
		"scale":     {q.FileAt + 2*208 + 104, 0x3f800000, `tensor "blk.1.ffn_down.weight": row 2, column 256: byte`},
		"s_hi":      {up.FileAt + 104 + 4, nan, `tensor "blk.1.ffn_up.weight": row 1: byte`},
		"table":     {table.FileAt + 7*260, nan, `tensor "token_embd.weight": row 7: byte`},
		"norm":      {norm.FileAt + 4*9, nan, `tensor "output_norm.weight": value 9`},
	} {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint32(b[tt.at:], tt.put)
		check := func(err error) {
			t.Helper()
			var e *pack.Error
			if !errors.As(err, &e) || !errors.Is(err, pack.ErrCorrupt) || !strings.Contains(err.Error(), tt.mention) || e.Offset&^3 != tt.at&^3 {
				t.Errorf("%s: %v, want one at %d that mentions %q", name, err, tt.at, tt.mention)
			}
		}
		f, err := fv5.OpenBytes("m.gguf", b)
		if name == "norm" {
			check(err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Model().Survey(context.Background(), ternary.WalkOptions{})
		check(f.Place(err))
		check(f.Place(native.Write(io.Discard, f.Model())))
		if err := f.CheckTensors(t.Context()); !errors.Is(err, pack.ErrCorrupt) || !strings.Contains(err.Error(), "sha256") {
			t.Errorf("%s: the digest holds: %v", name, err)
		}
	}
	f = open(t, edit(t, good, set("npack.tensor.sha256", gguf.Strings([]string{"x"}))))
	if err := f.CheckTensors(t.Context()); !errors.Is(err, pack.ErrCorrupt) {
		t.Errorf("one digest: %v", err)
	}
}

// The cases of users' reports as errors of package pack.
func TestCases(t *testing.T) {
	for _, c := range cases.All() {
		if !strings.HasSuffix(c.File, ".gguf") || c.Verdict != "reject" || c.Case == "A-10" {
			continue
		}
		b, err := cases.Files.ReadFile(c.File)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fv5.OpenBytes(c.File, b)
		var e *pack.Error
		if !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %#v", c.File, err)
			continue
		}
		for _, word := range c.MustMention {
			if !strings.Contains(e.Place+e.Found+e.Expected, word) {
				t.Errorf("%s: %v does not mention %q", c.File, err, word)
			}
		}
	}
}

// FuzzOpen: no bytes panic or ask for memory that they do not pay for; a model
// that opens and is valid gives a container that is the file's again.
func FuzzOpen(f *testing.F) {
	s := specs()[0].Spec
	s.Layers, s.Vocab, s.Intermediate, s.HeadDim, s.RotaryDims, s.KVHeads = 1, 2, 256, 64, 64, 1
	m := ternarytest.Model(s)
	f.Add(export(f, m, fv5.Options{}))
	m.Layers[0].Up.RSLo[3], m.Layers[0].K.Stride = 7, 32
	w := &m.Layers[0].K
	w.ColsPad, w.BP, w.BN, w.BR = 256, w.BP[:w.Rows*32], w.BN[:w.Rows*32], w.BR[:w.Rows*32]
	clear(w.BP)
	clear(w.BN)
	clear(w.BR)
	b := export(f, m, fv5.Options{Tokenizer: &fv5.Tokenizer{Pre: "qwen2", Tokens: []string{"a", "b"}, Types: []int32{1, 3}, Merges: []string{"a b"}, BOS: -1, EOS: 1, Pad: -1}})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := fv5.OpenBytes("x", b)
		if err != nil {
			return
		}
		if n := x.Size(); n > 20*int64(len(b))+1<<22 {
			t.Fatalf("a container of %d bytes of a file of %d", n, len(b))
		}
		_, _ = x.Tokenizer()
		_ = x.CheckTensors(t.Context())
		if x.Model().Validate() != nil {
			return
		}
		y := open(t, export(t, x.Model(), fv5.Options{}))
		if !bytes.Equal(container(t, x.Model()), container(t, y.Model())) {
			t.Fatal("another container")
		}
	})
}
