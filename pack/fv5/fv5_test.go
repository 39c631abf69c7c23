package fv5_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/gguf"
	"npack/pack"
	"npack/pack/fv5"
	"npack/pack/native"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/story"
	"npack/testdata/storydraft"
)

// specs are models whose rows are whole blocks: all topologies, tied and not.
func specs() []ternarytest.Named {
	type c = ternary.Config
	return []ternarytest.Named{
		{Name: "qwen3-tied", Spec: ternarytest.Spec{Seed: 11, Config: c{Arch: ternary.Qwen3, Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, RotaryDims: 64,
			Intermediate: 512, Vocab: 300, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 10000, Tied: true}}},
		{Name: "qwen3-untied-partial-rotary", Spec: ternarytest.Spec{Seed: 12, Config: c{Arch: ternary.Qwen3, Layers: 1, Hidden: 512, Heads: 4, KVHeads: 1, HeadDim: 64, RotaryDims: 32,
			Intermediate: 768, Vocab: 77, MaxPosition: 4096, RMSEps: 1e-5, RopeTheta: 1e6}}},
		{Name: "qwen2-bias-tied", Spec: ternarytest.Spec{Seed: 13, Bias: true, Config: c{Arch: ternary.Qwen2, Layers: 2, Hidden: 256, Heads: 2, KVHeads: 1, HeadDim: 128, RotaryDims: 128,
			Intermediate: 256, Vocab: 80, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 1e6, Tied: true}}},
		{Name: "qwen2-no-bias-untied", Spec: ternarytest.Spec{Seed: 14, Config: c{Arch: ternary.Qwen2, Layers: 1, Hidden: 256, Heads: 8, KVHeads: 8, HeadDim: 32, RotaryDims: 32,
			Intermediate: 512, Vocab: 64, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 1e6}}},
		{Name: "bitnet-untied", Spec: ternarytest.Spec{Seed: 15, Config: c{Arch: ternary.BitNet, Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, RotaryDims: 64,
			Intermediate: 768, Vocab: 90, MaxPosition: 512, RMSEps: 1e-5, RopeTheta: 500000}}},
		{Name: "bitnet-tied", Spec: ternarytest.Spec{Seed: 16, Config: c{Arch: ternary.BitNet, Layers: 1, Hidden: 256, Heads: 2, KVHeads: 2, HeadDim: 128, RotaryDims: 128,
			Intermediate: 256, Vocab: 33, MaxPosition: 512, RMSEps: 1e-5, RopeTheta: 10000, Tied: true}}},
		{Name: "tight", Spec: ternarytest.Spec{Seed: 17, Tight: true, Config: c{Arch: ternary.Qwen3, Layers: 1, Hidden: 256, Heads: 4, KVHeads: 4, HeadDim: 64, RotaryDims: 64,
			Intermediate: 768, Vocab: 50, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 10000, Tied: true}}},
	}
}

func container(t testing.TB, m *ternary.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := native.Write(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// memory is a file in memory that can seek.
type memory struct {
	b  []byte
	at int64
}

func (m *memory) Write(b []byte) (int, error) {
	if n := m.at + int64(len(b)); n > int64(len(m.b)) {
		m.b = append(m.b, make([]byte, n-int64(len(m.b)))...)
	}
	m.at += int64(copy(m.b[m.at:], b))
	return len(b), nil
}

func (m *memory) Seek(off int64, whence int) (int64, error) {
	m.at = off + []int64{io.SeekStart: 0, io.SeekCurrent: m.at, io.SeekEnd: int64(len(m.b))}[whence]
	return m.at, nil
}

// export writes m in both ways, which must give the same bytes.
func export(t testing.TB, m *ternary.Model, o fv5.Options) []byte {
	t.Helper()
	f := &memory{b: []byte("before"), at: 6}
	if err := fv5.Write(f, m, o); err != nil {
		t.Fatal(err)
	}
	if f.at != int64(len(f.b)) {
		t.Errorf("the file is left at byte %d of %d", f.at, len(f.b))
	}
	var s bytes.Buffer
	if err := fv5.Write(&s, m, o); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.b[6:], s.Bytes()) {
		t.Error("a file that can seek has other bytes than a stream")
	}
	return s.Bytes()
}

func open(t testing.TB, b []byte) *fv5.File {
	t.Helper()
	f, err := fv5.OpenBytes("m.gguf", b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// there and back, by the bytes.
func roundTrip(t *testing.T, m *ternary.Model) *fv5.File {
	t.Helper()
	want := container(t, m)
	b := export(t, m, fv5.Options{Name: "x"})
	f := open(t, b)
	if got := container(t, f.Model()); !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf("the container has %d bytes, was %d; first difference at %d", len(got), len(want), at)
	}
	sum, n, ok := f.Container()
	if !ok || sum != fmt.Sprintf("%x", sha256.Sum256(want)) || n != int64(len(want)) || f.Size() != n {
		t.Errorf("container %s of %d bytes, %v", sum, n, ok)
	}
	if err := f.CheckTensors(t.Context()); err != nil {
		t.Error(err)
	}
	ctx := context.Background()
	d1, err1 := m.Digests(ctx, ternary.WalkOptions{})
	d2, err2 := f.Model().Digests(ctx, ternary.WalkOptions{})
	if err1 != nil || err2 != nil || !cmp.Equal(d1, d2) {
		t.Errorf("digests: %v, %v\n%s", err1, err2, cmp.Diff(d1, d2))
	}
	s1, err1 := m.Survey(ctx, ternary.WalkOptions{})
	s2, err2 := f.Model().Survey(ctx, ternary.WalkOptions{})
	if err1 != nil || err2 != nil || !cmp.Equal(s1, s2) {
		t.Errorf("survey: %v, %v", err1, err2)
	}
	// The same model gives the same file, also from the file.
	if again := export(t, f.Model(), fv5.Options{Name: "x"}); !bytes.Equal(again, b) {
		t.Error("written again the file has other bytes")
	}
	return f
}

func TestRoundTrip(t *testing.T) {
	for _, s := range specs() {
		t.Run(s.Name, func(t *testing.T) { roundTrip(t, ternarytest.Model(s.Spec)) })
	}
	for name, b := range map[string][]byte{"story": story.Container, "storydraft": storydraft.Container} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "story" {
				t.Skip("short: the smaller one is enough")
			}
			n, err := native.OpenBytes(name, b)
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, n.Model())
		})
	}
}

// What blocks cannot hold comes back all the same.
func TestRoundTripExtra(t *testing.T) {
	for name, change := range map[string]func(m *ternary.Model){
		"one sum":    func(m *ternary.Model) { m.Layers[1].Up.RSLo[17]++ },
		"last sum":   func(m *ternary.Model) { m.Layers[0].Q.RSHi[len(m.Layers[0].Q.RSHi)-1] = -1 << 31 },
		"first sum":  func(m *ternary.Model) { m.Layers[0].Q.RSHi[0] = 1<<31 - 1 },
		"wsum":       func(m *ternary.Model) { m.Head.WSum[299] = 5 },
		"bias flag":  func(m *ternary.Model) { m.Layers[0].K.BiasFlag = -7 },
		"other bias": func(m *ternary.Model) { m.Layers[1].Down.BiasFlag, m.Layers[1].Down.Bias = 2, make([]float32, 256) },
		"all sums": func(m *ternary.Model) {
			for i := range m.Layers {
				for _, w := range m.Layers[i].Linears() {
					for r := range w.RSLo {
						w.RSLo[r], w.RSHi[r] = int32(r*7919), int32(-r*104729)
					}
				}
			}
		},
		"wide rows": func(m *ternary.Model) {
			w := &m.Layers[0].Gate
			rows := w.Rows
			pad := func(b []byte) []byte {
				var p []byte
				for r := range rows {
					p = append(append(p, b[r*w.Stride:(r+1)*w.Stride]...), make([]byte, 5)...)
				}
				return p
			}
			w.BP, w.BN, w.BR = pad(w.BP), pad(w.BN), pad(w.BR)
			w.Stride += 5
		},
		"cols_pad": func(m *ternary.Model) { m.Layers[0].V.ColsPad = 300 },
		"padded table": func(m *ternary.Model) {
			var q []int8
			for r := range m.Head.Rows {
				q = append(append(q, m.Head.Row(r)...), 0, int8(r), 3)
			}
			m.Head.Q, m.Head.Stride, m.Head.ColsPad = q, 259, 259
		},
		"table padded with zeros": func(m *ternary.Model) {
			var q []int8
			for r := range m.Head.Rows {
				q = append(append(q, m.Head.Row(r)...), 0)
			}
			m.Head.Q, m.Head.Stride, m.Head.ColsPad = q, 257, 257
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := specs()[0].Spec
			s.Arch, s.Bias = ternary.Qwen2, true
			m := ternarytest.Model(s)
			change(m)
			f := roundTrip(t, m)
			if _, ok := f.GGUF().Value("npack.container.extra"); !ok {
				t.Error("no extra record: the case tests nothing")
			}
		})
	}
	f := open(t, export(t, ternarytest.Model(specs()[0].Spec), fv5.Options{}))
	if _, ok := f.GGUF().Value("npack.container.extra"); ok {
		t.Error("an extra record of a usual model")
	}
}

// Every key that the format names, and what llama.cpp is strict about.
func TestMetadata(t *testing.T) {
	tok := &fv5.Tokenizer{Pre: "qwen2", Tokens: []string{"a", "Ġ", "<|im_end|>"}, Types: []int32{1, 1, 3}, Merges: []string{"Ġ a"}, BOS: -1, EOS: 2, Pad: 0,
		Template: "{{ x }}", NFC: true}
	f := open(t, export(t, ternarytest.Model(specs()[1].Spec), fv5.Options{Name: "some model", Version: "v1.2", Tokenizer: tok}))
	var got strings.Builder
	for _, kv := range f.GGUF().Metadata {
		if !strings.HasPrefix(kv.Key, "npack.") {
			fmt.Fprintf(&got, "%s %v %s\n", kv.Key, kv.Value.Kind, kv.Value.Print())
		}
	}
	want := `general.architecture string "qwen3"
general.name string "some model"
qwen3.block_count u32 1
qwen3.context_length u32 4096
qwen3.embedding_length u32 512
qwen3.feed_forward_length u32 768
qwen3.attention.head_count u32 4
qwen3.attention.head_count_kv u32 1
qwen3.attention.key_length u32 64
qwen3.attention.value_length u32 64
qwen3.rope.dimension_count u32 32
qwen3.attention.layer_norm_rms_epsilon f32 1e-05
qwen3.rope.freq_base f32 1e+06
general.file_type u32 42
general.quantization_version u32 2
general.quantization_provenance string "fermion-fv5/npack-v1.2"
tokenizer.ggml.model string "gpt2"
tokenizer.ggml.pre string "qwen2"
tokenizer.ggml.tokens array 3 × string
tokenizer.ggml.token_type array 3 × i32
tokenizer.ggml.merges array 1 × string
tokenizer.ggml.eos_token_id u32 2
tokenizer.ggml.padding_token_id u32 0
tokenizer.ggml.add_bos_token bool false
tokenizer.chat_template string "{{ x }}"
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Error(d)
	}
	back, err := f.Tokenizer()
	if d := cmp.Diff(tok, back); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	var names []string
	for i := range f.GGUF().Tensors {
		x := &f.GGUF().Tensors[i]
		names = append(names, fmt.Sprintf("%s%v%v", x.Name, x.Dims, x.Type))
		if x.Offset%32 != 0 {
			t.Errorf("%s at %d", x.Name, x.Offset)
		}
	}
	if d := cmp.Diff([]string{"token_embd.weight[512 77]FV5B (44)", "blk.0.attn_norm.weight[512]F32 (0)", "blk.0.ffn_norm.weight[512]F32 (0)",
		"blk.0.attn_q_norm.weight[64]F32 (0)", "blk.0.attn_k_norm.weight[64]F32 (0)", "blk.0.attn_q.weight[512 256]FV5 (43)",
		"blk.0.attn_k.weight[512 64]FV5 (43)", "blk.0.attn_v.weight[512 64]FV5 (43)", "blk.0.attn_output.weight[256 512]FV5 (43)",
		"blk.0.ffn_gate.weight[512 768]FV5 (43)", "blk.0.ffn_up.weight[512 768]FV5 (43)", "blk.0.ffn_down.weight[768 512]FV5 (43)",
		"output_norm.weight[512]F32 (0)", "output.weight[512 77]FV5B (44)"}, names); d != "" {
		t.Error(d)
	}
}

// Weights are what package gguf decodes: the two do not share code.
func TestValues(t *testing.T) {
	m := ternarytest.Model(specs()[0].Spec)
	f := open(t, export(t, m, fv5.Options{}))
	x := f.GGUF().Tensor("blk.1.ffn_down.weight")
	v := make([]float32, x.Rows()*x.Cols())
	if err := x.Type.Dequantize(v, x.Data); err != nil {
		t.Fatal(err)
	}
	w := &m.Layers[1].Down
	for r := range w.Rows {
		for c := range w.Cols {
			if got, want := v[r*w.Cols+c], w.Weight(r, c); got != want {
				t.Fatalf("row %d column %d: %v, want %v", r, c, got, want)
			}
		}
	}
	x = f.GGUF().Tensor("token_embd.weight")
	v = make([]float32, x.Rows()*x.Cols())
	if err := x.Type.Dequantize(v, x.Data); err != nil {
		t.Fatal(err)
	}
	for r := range m.Head.Rows {
		for c, q := range m.Head.Row(r) {
			if got, want := v[r*m.Head.Cols+c], float32(q)*m.Head.Scale[r]; got != want {
				t.Fatalf("embedding, row %d column %d: %v, want %v", r, c, got, want)
			}
		}
	}
}

// strip writes the file without some keys, as another program might have.
func strip(t *testing.T, b []byte, keep func(key string) bool) []byte {
	t.Helper()
	f, err := gguf.OpenBytes("x", b)
	if err != nil {
		t.Fatal(err)
	}
	h := gguf.Header{Tensors: f.Tensors}
	for _, kv := range f.Metadata {
		if keep(kv.Key) {
			h.Metadata = append(h.Metadata, kv)
		}
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, &h)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Tensors {
		if _, err := w.Write(x.Data); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// A file of another program, without our keys, is a valid container with row
// sums that are computed: of a usual model the very container.
func TestForeign(t *testing.T) {
	m := ternarytest.Model(specs()[0].Spec)
	f := open(t, strip(t, export(t, m, fv5.Options{}), func(key string) bool { return !strings.HasPrefix(key, "npack.") }))
	if _, _, ok := f.Container(); ok {
		t.Error("a foreign file names a container")
	}
	if !bytes.Equal(container(t, f.Model()), container(t, m)) {
		t.Error("another container")
	}
	if err := f.CheckTensors(t.Context()); err != nil {
		t.Error(err)
	}
	if tok, err := f.Tokenizer(); tok != nil || err != nil {
		t.Error(tok, err)
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, s := range ternarytest.All() { // none of them has rows of whole blocks
		var out bytes.Buffer
		err := fv5.Write(&out, ternarytest.Model(s.Spec), fv5.Options{})
		var e *pack.Error
		if !errors.As(err, &e) || !errors.Is(err, pack.ErrUnsupported) || e.Place == "" || !strings.Contains(err.Error(), fmt.Sprint(s.Spec.Hidden)) || out.Len() > 0 {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	for name, tt := range map[string]struct {
		change  func(m *ternary.Model)
		mention string
	}{
		"both bits": {func(m *ternary.Model) { m.Layers[1].Up.BP[32], m.Layers[1].Up.BN[32] = 255, 255 }, `tensor "blk.1.ffn_up": row 0`},
		"padding":   {func(m *ternary.Model) { m.Layers[0].Q.BP[2*64+40] = 1 }, `tensor "blk.0.attn_q": row 2`},
		"scale":     {func(m *ternary.Model) { m.Layers[0].O.SHi[3] = nan() }, `tensor "blk.0.attn_output": row 3: s_hi is NaN`},
		"table":     {func(m *ternary.Model) { m.Head.Scale[290] = nan() }, `tensor "token_embd": row 290`},
		"norm":      {func(m *ternary.Model) { m.FinalNorm[5] = nan() }, `tensor "output_norm": value 5`},
		"shape":     {func(m *ternary.Model) { m.FinalNorm = nil }, "output_norm"},
		"far rows": {func(m *ternary.Model) {
			w := &m.Layers[0].Q
			w.Stride = 1 << 16
			w.BP = make([]byte, w.Rows*w.Stride)
			w.BN, w.BR = w.BP, w.BP
		}, "this padding"},
	} {
		t.Run(name, func(t *testing.T) {
			m := ternarytest.Model(specs()[0].Spec)
			tt.change(m)
			for _, w := range []io.Writer{new(bytes.Buffer), new(memory)} {
				if err := fv5.Write(w, m, fv5.Options{}); err == nil || !strings.Contains(err.Error(), tt.mention) {
					t.Errorf("%v does not mention %q", err, tt.mention)
				}
			}
		})
	}
	m := ternarytest.Model(specs()[0].Spec)
	if err := fv5.Write(&full{room: 100 << 10}, m, fv5.Options{}); !errors.Is(err, errFull) {
		t.Errorf("a full disk: %v", err)
	}
}

var errFull = errors.New("full")

type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func nan() float32 {
	var zero float32
	return zero / zero
}

func TestOpenFile(t *testing.T) {
	m := ternarytest.Model(specs()[0].Spec)
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, export(t, m, fv5.Options{}), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := fv5.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Name() != path || f.GGUF().Length() == f.Size() {
		t.Errorf("%q, %d", f.Name(), f.Size())
	}
	if err := f.Model().Load(context.Background(), ternary.WalkOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	// Loaded, it outlives the file.
	if !bytes.Equal(container(t, f.Model()), container(t, m)) {
		t.Error("another container")
	}
	for name, want := range map[string]error{"none.gguf": os.ErrNotExist, "page.gguf": pack.ErrNotModel, "": gguf.ErrNotGGUF} {
		p := filepath.Join(filepath.Dir(path), name)
		if name == "page.gguf" {
			if err := os.WriteFile(p, []byte("<html>"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if want == gguf.ErrNotGGUF {
			want = pack.ErrNotModel
		}
		if _, err := fv5.Open(p); !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
