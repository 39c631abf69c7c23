package gpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

// tinyModel is a model made up for the probe, with how it is run.
type tinyModel struct {
	arch ternary.Arch
	backend.Options
}

// One model of each topology, so that each type of cache and each activation
// width is used once.
var tinyModels = []tinyModel{
	{ternary.Qwen3, backend.Options{Activations: backend.Exact, KV: backend.KVF16}},
	{ternary.Qwen2, backend.Options{Activations: backend.Int16, KV: backend.KVF32}},
	{ternary.BitNet, backend.Options{Activations: backend.Exact, KV: backend.KVInt8}},
}

// tinyRuns are the tokens of the passes over a tiny model, which differ in their
// kernels: many columns, few, one. All together they need two chunks of attention.
var tinyRuns = []int{61, 5, 1}

// make makes the model: one layer of odd widths.
func (t *tinyModel) make() *ternary.Model {
	c := ternary.Config{Arch: t.arch, Layers: 1, Hidden: 76, Heads: 4, KVHeads: 2, HeadDim: 20, RotaryDims: 16, Intermediate: 90, Vocab: 99, MaxPosition: 128,
		RMSEps: 1e-6, RopeTheta: 10000, Tied: true}
	if t.arch == ternary.BitNet {
		c.Hidden = c.QDim()
	}
	rng := rand.New(rand.NewPCG(uint64(t.arch), 0))
	m := &ternary.Model{Config: c, Layers: make([]ternary.Layer, 1), FinalNorm: tinyFloats(rng, c.Hidden, 1)}
	l := &m.Layers[0]
	for _, n := range l.Norms(&c) {
		*n.Data = tinyFloats(rng, n.Len, 1)
	}
	for j, w := range l.Linears() {
		*w = tinyMatrix(rng, c.LinearShapes()[j], t.arch == ternary.Qwen2 && j < 3)
	}
	h := &m.Head
	h.Rows, h.Cols, h.ColsPad, h.Stride = c.Vocab, c.Hidden, c.Hidden, c.Hidden
	h.Scale, h.WSum, h.Q = tinyFloats(rng, h.Rows, 0x1p-6), make([]int32, h.Rows), make([]int8, h.Rows*h.Stride)
	for i := range h.Q {
		h.Q[i] = int8(rng.Uint32())
	}
	return m
}

// tinyFloats returns n numbers between half of x and x.
func tinyFloats(rng *rand.Rand, n int, x float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = x * float32(1<<15+rng.IntN(1<<15)) / (1 << 16)
	}
	return v
}

func tinyMatrix(rng *rand.Rand, s ternary.Shape, bias bool) ternary.Matrix {
	m := ternary.Matrix{Rows: s.Rows, Cols: s.Cols, ColsPad: s.Cols, Stride: (s.Cols + 7) / 8, RSLo: make([]int32, s.Rows), RSHi: make([]int32, s.Rows)}
	m.SLo, m.SHi = tinyFloats(rng, s.Rows, 0x1p-3), tinyFloats(rng, s.Rows, 0x1p-2)
	for _, p := range []*[]byte{&m.BP, &m.BN, &m.BR} {
		*p = make([]byte, s.Rows*m.Stride)
	}
	for r := range s.Rows {
		for c := range s.Cols {
			at, bit, x := r*m.Stride+c/8, byte(1)<<(c%8), rng.Uint32()
			switch x & 3 {
			case 0, 1:
				continue
			case 2:
				m.BP[at] |= bit
			case 3:
				m.BN[at] |= bit
			}
			if x&4 != 0 {
				m.BR[at] |= bit
			}
		}
	}
	if bias {
		m.BiasFlag, m.Bias = 1, tinyFloats(rng, s.Rows, 1)
	}
	return m
}

// tiny runs a tiny model here and by the reference and returns a line about the
// first logit that differs, or "".
func (b *Backend) tiny(t *tinyModel) (line string, err error) {
	m := t.make()
	text := make([]int32, 0, 128)
	for _, n := range tinyRuns {
		for range n {
			text = append(text, int32(len(text)*37%m.Vocab))
		}
	}
	want, _, err := t.run(reference.Backend{}, m, text)
	if err != nil {
		return "", err
	}
	got, best, err := t.run(b, m, text)
	if err != nil {
		return "", err
	}
	for i := range want {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
			return fmt.Sprintf("arch %d, %s, %s cache: logit %d of token %d is %08x, not %08x", int(t.arch), t.Activations, t.KV, i%m.Vocab, i/m.Vocab, g, w), nil
		}
	}
	last, top := want[len(want)-m.Vocab:], 0
	for id, v := range last {
		if v > last[top] {
			top = id
		}
	}
	if choice := (backend.Ranked{ID: int32(top), Logit: last[top]}); best != choice {
		return fmt.Sprintf("arch %d: greedy choice is token %d of logit %g, not %d of %g", int(t.arch), best.ID, best.Logit, choice.ID, choice.Logit), nil
	}
	return "", nil
}

// run returns all logits of text and, of a [backend.Ranker], the greedy choice
// after it.
func (t *tinyModel) run(b backend.Backend, m *ternary.Model, text []int32) (logits []float32, best backend.Ranked, err error) {
	ctx := context.Background()
	in, err := b.Load(ctx, m, t.Options)
	if err != nil {
		return nil, best, err
	}
	defer in.Close()
	seq, err := in.NewSequence(len(text))
	if err != nil {
		return nil, best, err
	}
	defer seq.Close()
	logits = make([]float32, len(text)*m.Vocab)
	at := 0
	for _, n := range tinyRuns {
		r := backend.Run{Seq: seq, Tokens: text[at : at+n], Logits: logits[at*m.Vocab : (at+n)*m.Vocab]}
		for i := range n {
			r.Want = append(r.Want, i)
		}
		if err := in.Forward(ctx, []backend.Run{r}); err != nil {
			return nil, best, err
		}
		at += n
	}
	if ranker, ok := in.(backend.Ranker); ok {
		var one [1]backend.Ranked
		if err := seq.Truncate(at - 1); err != nil {
			return nil, best, err
		}
		r := backend.Run{Seq: seq, Tokens: text[at-1:], Want: []int{0}}
		if err := ranker.ForwardRanked(ctx, []backend.Run{r}, 1, one[:]); err != nil {
			return nil, best, err
		}
		best = one[0]
	}
	return logits, best, nil
}
