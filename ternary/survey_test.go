package ternary_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/ternary"
	"npack/ternary/ternarytest"
)

// slowSurvey counts weight by weight.
func slowSurvey(m *ternary.Model) *ternary.Survey {
	s := &ternary.Survey{Layers: make([][ternary.NumProjections]ternary.Occupancy, len(m.Layers))}
	sum := func(stored int32, sum int64) {
		if int64(stored) != sum {
			s.SumMismatches++
		}
	}
	for t := range m.Tensors() {
		if q := t.Int8; q != nil {
			s.Bytes += int64(len(q.Q)) + 8*int64(q.Rows)
			for r := range q.Rows {
				n := int64(0)
				for _, v := range q.Row(r) {
					n += int64(v)
				}
				sum(q.WSum[r], n)
			}
		}
		s.Bytes += 4 * int64(len(t.Vector))
	}
	for i := range m.Layers {
		for j, w := range m.Layers[i].Linears() {
			o := &s.Layers[i][j]
			s.Bytes += 3*int64(len(w.BP)) + 16*int64(w.Rows) + 4*int64(len(w.Bias))
			for r := range w.Rows {
				lo, hi := int64(0), int64(0)
				for c := range w.Cols {
					at, bit := r*w.Stride+c/8, byte(1)<<(c%8)
					p, n, h := w.BP[at]&bit != 0, w.BN[at]&bit != 0, w.BR[at]&bit != 0
					o.Weights++
					switch {
					case p && h:
						o.PlusHi++
						hi++
					case p:
						o.PlusLo++
						lo++
					case n && h:
						o.MinusHi++
						hi--
					case n:
						o.MinusLo++
						lo--
					}
				}
				sum(w.RSLo[r], lo)
				sum(w.RSHi[r], hi)
			}
			s.Total.Add(*o)
		}
	}
	return s
}

func TestSurvey(t *testing.T) {
	for _, n := range ternarytest.All() {
		t.Run(n.Name, func(t *testing.T) {
			m := ternarytest.Model(n.Spec)
			w := &m.Layers[0].O
			w.RSLo[w.Rows-1]++
			m.Head.WSum[0]--
			want := slowSurvey(m)
			want.FirstMismatch = &ternary.Error{Tensor: "blk.0.attn_output", Part: ternary.PartRSLo, Row: w.Rows - 1, Col: -1}
			for _, threads := range []int{1, 2, 7} {
				got, err := m.Survey(t.Context(), ternary.WalkOptions{Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				if want.SumMismatches != 2 || !strings.Contains(got.FirstMismatch.Error(), "rs_lo is ") {
					t.Errorf("%d mismatches, first %v", want.SumMismatches, got.FirstMismatch)
				}
				got.FirstMismatch.Found, got.FirstMismatch.Expected = "", ""
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%d threads: -want +got\n%s", threads, d)
				}
			}
			if o := want.Total; o.Zeros()+o.Plus()+o.Minus() != o.Weights || o.Lo()+o.Hi() != o.Plus()+o.Minus() {
				t.Errorf("counts do not add up: %+v", o)
			}
		})
	}
}

// Every broken rule must be found, by name, at its row and column, whatever
// the number of threads.
func TestValidateRefuses(t *testing.T) {
	type model = ternary.Model
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	at := func(w *ternary.Matrix, r, c int) (int, byte) { return r*w.Stride + c/8, 1 << (c % 8) }
	tests := []struct {
		name, model string
		breakIt     func(m *model)
		want        ternary.Error // Found is a part of the message
	}{
		{"both", "qwen3-tied", func(m *model) {
			w := &m.Layers[1].Up
			i, bit := at(w, 7, 42)
			w.BP[i] |= bit
			w.BN[i] |= bit
		}, ternary.Error{Tensor: "blk.1.ffn_up", Part: "bn", Row: 7, Col: 42, Found: "bp and bn both set"}},
		{"br alone", "qwen3-untied-odd", func(m *model) {
			w := &m.Layers[2].Down
			i, bit := at(w, 99, 132)
			w.BP[i] &^= bit
			w.BN[i] &^= bit
			w.BR[i] |= bit
		}, ternary.Error{Tensor: "blk.2.ffn_down", Part: "br", Row: 99, Col: 132, Found: "br set on a zero weight"}},
		{"first of two", "qwen3-tied", func(m *model) {
			w := &m.Layers[0].Q
			i, bit := at(w, 3, 9)
			w.BP[i] &^= bit
			w.BN[i] &^= bit
			w.BR[i] |= bit
			w.BP[i] |= 1 << 7
			w.BN[i] |= 1 << 7
		}, ternary.Error{Tensor: "blk.0.attn_q", Part: "br", Row: 3, Col: 9, Found: "br set on"}},
		{"padding in the last byte", "qwen3-untied-odd", func(m *model) {
			w := &m.Layers[0].K
			i, bit := at(w, 0, 100)
			w.BP[i] |= bit
		}, ternary.Error{Tensor: "blk.0.attn_k", Part: "bp", Row: 0, Col: 100, Found: "past the last column"}},
		{"padding in the last bit of the row", "qwen3-tied", func(m *model) {
			w := &m.Layers[0].K
			i, bit := at(w, 31, 511)
			w.BN[i] |= bit
		}, ternary.Error{Tensor: "blk.0.attn_k", Part: "bn", Row: 31, Col: 511, Found: "past the last column"}},
		{"padding of a tight row", "qwen3-tight", func(m *model) {
			w := &m.Layers[1].V
			i, bit := at(w, 53, 71)
			w.BR[i] |= bit
		}, ternary.Error{Tensor: "blk.1.attn_v", Part: "br", Row: 53, Col: 71, Found: "past the last column"}},
		{"s_lo", "qwen3-tied", func(m *model) { m.Layers[1].O.SLo[5] = nan },
			ternary.Error{Tensor: "blk.1.attn_output", Part: "s_lo", Row: 5, Col: -1, Found: "s_lo is NaN"}},
		{"s_hi", "qwen3-tied", func(m *model) { m.Layers[0].Gate.SHi[127] = inf },
			ternary.Error{Tensor: "blk.0.ffn_gate", Part: "s_hi", Row: 127, Col: -1, Found: "s_hi is -Inf"}},
		{"bias", "qwen2-bias-tied", func(m *model) { m.Layers[0].V.Bias[31] = inf },
			ternary.Error{Tensor: "blk.0.attn_v", Part: "bias", Row: 31, Col: -1, Found: "bias is -Inf"}},
		{"scale", "bitnet-untied", func(m *model) { m.Embed.Scale[89] = nan },
			ternary.Error{Tensor: "token_embd", Part: "scale", Row: 89, Col: -1, Found: "scale is NaN"}},
		{"norm", "bitnet-untied", func(m *model) { m.Layers[1].FFNSubNorm[143] = nan },
			ternary.Error{Tensor: "blk.1.ffn_sub_norm", Part: "norm", Row: 143, Col: -1, Found: "norm is NaN"}},
		{"final norm", "qwen3-tied", func(m *model) { m.FinalNorm[0] = inf },
			ternary.Error{Tensor: "output_norm", Part: "norm", Row: 0, Col: -1, Found: "norm is -Inf"}},

		{"rows", "qwen3-tied", func(m *model) { m.Layers[0].Q.Rows = 63 },
			ternary.Error{Tensor: "blk.0.attn_q", Part: "rows", Row: -1, Col: -1, Found: "rows is 63"}},
		{"cols", "qwen3-tied", func(m *model) { m.Head.Cols = 63 },
			ternary.Error{Tensor: "token_embd", Part: "cols", Row: -1, Col: -1, Found: "cols is 63"}},
		{"cols_pad", "qwen3-tied", func(m *model) { m.Layers[0].Q.ColsPad = 63 },
			ternary.Error{Tensor: "blk.0.attn_q", Part: "cols_pad", Row: -1, Col: -1, Found: "cols_pad is 63"}},
		{"row_stride", "qwen3-tied", func(m *model) { m.Layers[0].Q.Stride = 63 },
			ternary.Error{Tensor: "blk.0.attn_q", Part: "row_stride", Row: -1, Col: -1, Found: "row_stride is 63"}},
		{"int8 row_stride", "qwen3-tied", func(m *model) { m.Head.Stride = 65 },
			ternary.Error{Tensor: "token_embd", Part: "row_stride", Row: -1, Col: -1, Found: "row_stride is 65"}},
		{"short plane", "qwen3-tied", func(m *model) { m.Layers[0].Q.BR = m.Layers[0].Q.BR[1:] },
			ternary.Error{Tensor: "blk.0.attn_q", Part: "br", Row: -1, Col: -1, Found: "br holds 4095"}},
		{"bias without its flag", "qwen2-bias-tied", func(m *model) { m.Layers[0].Q.BiasFlag = 0 },
			ternary.Error{Tensor: "blk.0.attn_q", Part: "bias", Row: -1, Col: -1, Found: "bias holds 64"}},
		{"missing norm", "qwen3-tied", func(m *model) { m.Layers[0].KNorm = nil },
			ternary.Error{Tensor: "blk.0.attn_k_norm", Part: "norm", Row: -1, Col: -1, Found: "norm holds 0"}},
		{"missing layer", "qwen3-tied", func(m *model) { m.Layers = m.Layers[:1] },
			ternary.Error{Part: "n_layers", Row: -1, Col: -1, Found: "1 layers are there"}},
		{"missing embedding", "bitnet-untied", func(m *model) { m.Embed = nil },
			ternary.Error{Tensor: "token_embd", Row: -1, Col: -1, Found: "a separate input embedding is there: false"}},
	}
	specs := map[string]ternarytest.Spec{}
	for _, n := range ternarytest.All() {
		specs[n.Name] = n.Spec
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := ternarytest.Model(specs[tt.model])
			tt.breakIt(m)
			err := m.Validate()
			var e *ternary.Error
			if !errors.As(err, &e) || !errors.Is(err, ternary.ErrInvalid) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if !strings.Contains(e.Found, tt.want.Found) {
				t.Errorf("found %q, want %q", e.Found, tt.want.Found)
			}
			got := *e
			got.Found, got.Expected = tt.want.Found, ""
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%v: -want +got\n%s", err, d)
			}
		})
	}
}

// The first error in file order is reported, though a later one may be found
// earlier.
func TestFirstError(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[1].Spec)
	m.Layers[0].AttnNorm[1] = float32(math.NaN())
	m.Layers[0].Gate.SLo[0] = float32(math.NaN())
	m.Head.Scale[0] = float32(math.NaN())
	for range 200 {
		_, err := m.Survey(t.Context(), ternary.WalkOptions{Threads: 4})
		if want := `tensor "blk.0.attn_norm": value 1: norm is NaN, expected a finite number`; err == nil || err.Error() != want {
			t.Fatalf("got %v, want %s", err, want)
		}
	}
}

func TestWalkStops(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := m.Survey(ctx, ternary.WalkOptions{Threads: 1, Progress: func(done, total int64) {
		calls++
		if calls == 3 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || calls != 3 {
		t.Errorf("after %d jobs: %v, want 3 and context.Canceled", calls, err)
	}
	if _, err := m.Digests(ctx, ternary.WalkOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Digests: %v, want context.Canceled", err)
	}
}

func TestWalkProgressAndRelease(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[1].Spec)
	var last, total, released int64
	o := ternary.WalkOptions{Threads: 1, Progress: func(done, all int64) {
		if done < last {
			t.Errorf("progress falls from %d to %d", last, done)
		}
		last, total = done, all
	}}
	m.Release = func(b []byte) { released += int64(len(b)) }
	s, err := m.Survey(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if last != total || total != s.Bytes || released != total {
		t.Errorf("progress ends at %d of %d, survey says %d; %d released", last, total, s.Bytes, released)
	}
	last, released = 0, 0
	if _, err := m.Digests(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if last != total || last == 0 || released != total {
		t.Errorf("Digests: progress ends at %d of %d; %d released", last, total, released)
	}
}

// Chunks must not lose rows: a matrix of more than one chunk.
func TestSurveyChunks(t *testing.T) {
	m := ternarytest.Model(ternarytest.Spec{Seed: 9, Config: ternary.Config{Arch: ternary.Qwen3, Layers: 1, Hidden: 64, Heads: 1, KVHeads: 1, HeadDim: 16,
		RotaryDims: 16, Intermediate: 17000, Vocab: 17001, MaxPosition: 8, RMSEps: 1e-6, RopeTheta: 1e4, Tied: true}})
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		m.Layers[0].Up.RSHi[rng.IntN(17000)] ^= 1 << 20
		m.Head.WSum[rng.IntN(17001)] ^= 1 << 20
	}
	want := slowSurvey(m)
	got, err := m.Survey(t.Context(), ternary.WalkOptions{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	if got.FirstMismatch == nil || got.FirstMismatch.Tensor != "blk.0.ffn_up" {
		t.Errorf("first mismatch %v, want one of blk.0.ffn_up", got.FirstMismatch)
	}
	got.FirstMismatch = nil
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
