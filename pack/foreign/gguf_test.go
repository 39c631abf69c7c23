package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"npack/gguf"
	"npack/pack"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// ternaryModel is a model whose weights fit all ternary types: one magnitude a
// matrix, rows of whole blocks.
func ternaryModel(a ternary.Arch, tied bool) *ternary.Model {
	m := ternarytest.Model(ternarytest.Spec{Seed: 9, Bias: a == ternary.Qwen2, Config: ternary.Config{Arch: a, Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64,
		RotaryDims: 64, Intermediate: 512, Vocab: 64, MaxPosition: 512, RMSEps: 1e-5, RopeTheta: 10000, Tied: tied}})
	oneMagnitude(m)
	return m
}

// oneMagnitude gives each matrix one magnitude, which f16 holds.
func oneMagnitude(m *ternary.Model) {
	for t := range m.Tensors() {
		if w := t.Ternary; w != nil {
			s := gguf.Float16(gguf.ToFloat16(w.SLo[0]))
			for r := range w.Rows {
				w.SLo[r], w.SHi[r] = s, s
			}
		}
	}
}

// ggufOf returns a file of m with linears of the type, under that name. change,
// if not nil, changes a linear's values first.
func ggufOf(t testing.TB, m *ternary.Model, arch string, typ gguf.Type, change func(name string, v []float32), keys ...gguf.KV) []byte {
	t.Helper()
	n := func(v int) gguf.Value { return gguf.Uint32(uint32(v)) }
	h := &gguf.Header{Metadata: append([]gguf.KV{
		{Key: "general.architecture", Value: gguf.String(arch)}, {Key: arch + ".block_count", Value: n(m.Config.Layers)}, {Key: arch + ".context_length", Value: n(m.MaxPosition)},
		{Key: arch + ".embedding_length", Value: n(m.Hidden)}, {Key: arch + ".feed_forward_length", Value: n(m.Intermediate)},
		{Key: arch + ".attention.head_count", Value: n(m.Heads)}, {Key: arch + ".attention.head_count_kv", Value: n(m.KVHeads)},
		{Key: arch + ".rope.dimension_count", Value: n(m.RotaryDims)}, {Key: arch + ".attention.layer_norm_rms_epsilon", Value: gguf.Float32(m.RMSEps)},
		{Key: arch + ".rope.freq_base", Value: gguf.Float32(m.RopeTheta)},
	}, keys...)}
	var data [][]byte
	add := func(name string, typ gguf.Type, v []float32, dims ...uint64) {
		size, err := typ.Size(dims)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size)
		if err := typ.Quantize(b, v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h.Tensors = append(h.Tensors, gguf.Tensor{Name: name, Type: typ, Dims: dims})
		data = append(data, b)
	}
	for x := range m.Tensors() {
		switch {
		case x.Ternary != nil:
			w := x.Ternary
			v := make([]float32, 0, w.Rows*w.Cols)
			for r := range w.Rows {
				for c := range w.Cols {
					v = append(v, w.Weight(interleaved(arch, x.Name, m.HeadDim, r), c))
				}
			}
			if change != nil {
				change(x.Name, v)
			}
			add(x.Name+".weight", typ, v, uint64(w.Cols), uint64(w.Rows))
			if w.Bias != nil {
				b := make([]float32, w.Rows)
				for r := range b {
					b[r] = w.Bias[interleaved(arch, x.Name, m.HeadDim, r)]
				}
				add(x.Name+".bias", gguf.F32, b, uint64(w.Rows))
			}
		case x.Int8 != nil:
			v := []float32{}
			for r := range x.Int8.Rows {
				for _, q := range x.Int8.Row(r) {
					v = append(v, float32(q)*x.Int8.Scale[r])
				}
			}
			add(x.Name+".weight", gguf.F32, v, uint64(m.Hidden), uint64(m.Vocab))
		default:
			add(x.Name+".weight", gguf.F32, x.Vector, uint64(len(x.Vector)))
		}
	}
	var b bytes.Buffer
	w, err := gguf.NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range data {
		if _, err := w.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// interleaved is the row of the model that llama.cpp's converter puts into row r
// of a llama file: it reshapes a head's rows [2][half] and swaps the two.
func interleaved(arch, name string, dim, r int) int {
	if arch != "llama" || !strings.HasSuffix(name, "attn_q") && !strings.HasSuffix(name, "attn_k") {
		return r
	}
	return r/dim*dim + r%2*(dim/2) + r%dim/2
}

// openBytes opens a GGUF file that is in memory.
func openBytes(b []byte) (*File, error) {
	g, err := gguf.OpenBytes("x.gguf", b)
	if err != nil {
		return nil, err
	}
	f := &File{name: "x.gguf"}
	return f, f.readGGUF(g)
}

// TestGGUF brings in every topology with every type, from files as converters
// write them.
func TestGGUF(t *testing.T) {
	for _, tt := range []struct {
		arch  ternary.Arch
		name  string
		tied  bool
		types []gguf.Type
	}{
		{ternary.Qwen3, "qwen3", true, []gguf.Type{gguf.TQ1_0, gguf.TQ2_0, gguf.I2_S, gguf.Q2_0, gguf.Q2_0G128, gguf.F16, gguf.F32}},
		{ternary.Qwen2, "qwen2", false, []gguf.Type{gguf.TQ2_0}},
		{ternary.Qwen2, "llama", false, []gguf.Type{gguf.TQ1_0, gguf.TQ2_0}},
		{ternary.BitNet, "bitnet-b1.58", true, []gguf.Type{gguf.I2_S}},
		{ternary.BitNet, "bitnet-25", false, []gguf.Type{gguf.I2_S}},
	} {
		m := ternaryModel(tt.arch, tt.tied)
		for _, typ := range tt.types {
			t.Run(tt.name+"/"+typ.Name(), func(t *testing.T) {
				f, err := openBytes(ggufOf(t, m, tt.name, typ, nil))
				if err != nil {
					t.Fatal(err)
				}
				sameWeights(t, f.Model(), m)
				if !strings.Contains(f.Form(), typ.Name()) {
					t.Errorf("the form is %q", f.Form())
				}
			})
		}
	}
}

// TestGroups has rows with a scale for each group: two of them fit, three do not,
// and the error says what was found and what would be needed.
func TestGroups(t *testing.T) {
	m := ternaryModel(ternary.Qwen3, true)
	for _, tt := range []struct {
		typ   gguf.Type
		group int
	}{{gguf.TQ1_0, 256}, {gguf.TQ2_0, 256}, {gguf.Q2_0, 64}, {gguf.Q2_0G128, 128}} {
		for scales := 1; scales <= 3; scales++ {
			t.Run(fmt.Sprintf("%s/%d", tt.typ.Name(), scales), func(t *testing.T) {
				const where = "blk.1.ffn_down" // of 512 columns
				var want []float32
				b := ggufOf(t, m, "qwen3", tt.typ, func(name string, v []float32) {
					if name != where {
						return
					}
					for i := range v[:512] {
						v[i] = float32(i%3-1) * []float32{0.5, 0.25, 2}[i/tt.group%scales]
					}
					want = v[:512]
				})
				f, err := openBytes(b)
				if err != nil {
					t.Fatal(err)
				}
				var p ternary.Part
				down := ternary.Tensor{Name: where, Ternary: &f.Model().Layers[1].Down}
				err = f.Model().Rows(&p, down, 0, 4)
				if min(scales, 512/tt.group) < 3 {
					if err != nil {
						t.Fatal(err)
					}
					for c, w := range want {
						if got := p.Ternary.Weight(0, c); got != w {
							t.Fatalf("column %d is %v, want %v", c, got, w)
						}
					}
					return
				}
				e := new(pack.Error)
				if !errors.As(err, &e) || !errors.Is(err, pack.ErrUnsupported) {
					t.Fatalf("%v", err)
				}
				groups := 512 / tt.group
				for _, s := range []string{`tensor "blk.1.ffn_down.weight": row 0`, "3 different magnitudes", fmt.Sprintf("%d groups of %d values", groups, tt.group)} {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("%q does not say %q", err, s)
					}
				}
				if s := fmt.Sprintf("one scale for each group of %d beside the planes, %d bytes more", tt.group, 2*groups*256); !strings.Contains(e.Hint, s) {
					t.Errorf("the hint %q does not say %q", e.Hint, s)
				}
			})
		}
	}
}

// TestGGUFRefused has files whose forward pass is none of ours, or that lack
// something.
func TestGGUFRefused(t *testing.T) {
	m := ternaryModel(ternary.Qwen3, true)
	whole := func(arch string, keys ...gguf.KV) []byte { return ggufOf(t, m, arch, gguf.TQ2_0, nil, keys...) }
	for name, tt := range map[string]struct {
		b       []byte
		mention string
	}{
		"bitnet":   {whole("bitnet"), "the architecture is \"bitnet\""},
		"gemma":    {whole("gemma"), "the architecture is \"gemma\""},
		"qwen2":    {whole("qwen2"), "the model has no such part"}, // norms of q and k
		"scaling":  {whole("qwen3", gguf.KV{Key: "qwen3.rope.scaling.type", Value: gguf.String("yarn")}), "rope.scaling.type"},
		"window":   {whole("qwen3", gguf.KV{Key: "qwen3.attention.sliding_window", Value: gguf.Uint32(100)}), "sliding_window"},
		"values":   {whole("qwen3", gguf.KV{Key: "qwen3.attention.value_length", Value: gguf.Uint32(32)}), "values of 32"},
		"head":     {whole("qwen3", gguf.KV{Key: "qwen3.attention.key_length", Value: gguf.Uint32(32)}, gguf.KV{Key: "qwen3.attention.value_length", Value: gguf.Uint32(32)}), "rotary_dims is 64"},
		"nothing":  {whole("bitnet-25"), `tensor "blk.0.attn_sub_norm.weight" is not there`},
		"unscaled": {whole("qwen3", gguf.KV{Key: "qwen3.rope.scaling.type", Value: gguf.String("linear")}, gguf.KV{Key: "qwen3.rope.scaling.factor", Value: gguf.Float32(2)}), "rope.scaling.type"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openBytes(tt.b)
			if err == nil || !strings.Contains(err.Error(), tt.mention) || !errors.Is(err, pack.ErrUnsupported) {
				t.Errorf("%v, want %q", err, tt.mention)
			}
		})
	}
}

func FuzzGGUF(f *testing.F) {
	m := ternarytest.Model(ternarytest.Spec{Seed: 4, Bias: true, Config: ternary.Config{Arch: ternary.Qwen2, Layers: 1, Hidden: 32, Heads: 2, KVHeads: 1, HeadDim: 16,
		RotaryDims: 16, Intermediate: 64, Vocab: 12, MaxPosition: 64, RMSEps: 1e-5, RopeTheta: 10000, Tied: true}})
	for _, arch := range []string{"qwen2", "llama"} {
		f.Add(ggufOf(f, m, arch, gguf.F32, nil))
	}
	oneMagnitude(m)
	f.Add(ggufOf(f, m, "llama", gguf.F16, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := openBytes(b)
		if err != nil {
			return
		}
		readAll(t, x.Model())
	})
}

// readAll reads all rows, in pieces, and checks the rules of what comes.
func readAll(t *testing.T, m *ternary.Model) {
	var p ternary.Part
	for x := range m.Tensors() {
		if x.Vector != nil {
			continue
		}
		for r0, r1 := range x.Chunks() {
			part, err := m.ReadRows(&p, x, r0, r1)
			if err != nil {
				break
			}
			if w := part.Ternary; w != nil {
				if err := new(ternary.Survey).AddMatrix(x.Name, 0, 0, w); err != nil {
					t.Errorf("%s: %v", x.Name, err)
				}
			}
		}
	}
}

// TestPieces reads rows in pieces of all sizes: they are the same as all at once.
func TestPieces(t *testing.T) {
	m := ternaryModel(ternary.Qwen2, true)
	f, err := openBytes(ggufOf(t, m, "llama", gguf.TQ2_0, nil))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var p ternary.Part
	for i := range 50 {
		w := &f.Model().Layers[i%2].Q
		r0 := rng.IntN(w.Rows)
		r1 := r0 + 1 + rng.IntN(w.Rows-r0)
		if err := f.Model().Rows(&p, ternary.Tensor{Name: ternary.LayerName(i%2, "attn_q"), Ternary: w}, r0, r1); err != nil {
			t.Fatal(err)
		}
		for r := range r1 - r0 {
			for c := range w.Cols {
				if p.Ternary.Weight(r, c) != m.Layers[i%2].Q.Weight(r0+r, c) {
					t.Fatalf("rows %d to %d: row %d, column %d", r0, r1, r, c)
				}
			}
		}
	}
}
