package gpu_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"npack/gpu"
	"npack/gpu/gputest"
	"npack/runtime/backend"
	"npack/runtime/backend/backendtest"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// TestLoadStreamed: a model whose rows are still in their file, its biases aside,
// gives the same logits, and all of its pages are released.
func TestLoadStreamed(t *testing.T) {
	for _, n := range ternarytest.All() {
		m, whole := ternarytest.Model(n.Spec), ternarytest.Model(n.Spec)
		m.Rows = func(p *ternary.Part, t ternary.Tensor, r0, r1 int) error {
			p.Size(t, r1-r0)
			for from := range whole.Tensors() {
				if from.Name != t.Name {
					continue
				}
				var q ternary.Part
				part, err := whole.ReadRows(&q, from, r0, r1)
				if err != nil {
					return err
				}
				if d, s := &p.Ternary, part.Ternary; s != nil {
					copy(d.BP, s.BP)
					copy(d.BN, s.BN)
					copy(d.BR, s.BR)
					copy(d.SLo, s.SLo)
					copy(d.SHi, s.SHi)
				} else {
					copy(p.Int8.Q, part.Int8.Q)
					copy(p.Int8.Scale, part.Int8.Scale)
				}
			}
			return nil
		}
		for w := range m.Tensors() {
			if q := w.Ternary; q != nil {
				q.BP, q.BN, q.BR, q.SLo, q.SHi, q.RSLo, q.RSHi = nil, nil, nil, nil, nil, nil, nil
			} else if w.Int8 != nil {
				w.Int8.Q, w.Int8.Scale, w.Int8.WSum = nil, nil, nil
			}
		}
		d := gputest.New(89)
		in, err := unproven(t, d, 0).Load(context.Background(), m, backend.Options{})
		if err != nil {
			t.Fatal(n.Name, err)
		}
		ids := backendtest.Text(&m.Config, 1)[:3]
		seq, err := in.NewSequence(3)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, m.Vocab)
		if err := in.Forward(context.Background(), []backend.Run{{Seq: seq, Tokens: ids, Want: []int{2}, Logits: got}}); err != nil {
			t.Fatal(err)
		}
		want := backendtest.Reference(t, whole, backend.Options{}, ids)[2*m.Vocab:]
		for i, v := range got {
			if math.Float32bits(v) != math.Float32bits(want[i]) {
				t.Fatalf("%s: logit %d is %g, want %g", n.Name, i, v, want[i])
			}
		}
	}
}

// TestLoadRefuses: planes that contradict each other, biases out of range, shapes
// that the kernels do not take.
func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(m *ternary.Model)
		kind error // or nil
		text string
	}{
		{"both signs", func(m *ternary.Model) {
			w := &m.Layers[1].Up
			w.BP[3*w.Stride] |= 1
			w.BN[3*w.Stride] |= 1
		}, gpu.ErrInvalid, "blk.1.ffn_up: rows 0 to 132"},
		{"magnitude of 0", func(m *ternary.Model) {
			w := &m.Layers[0].V
			w.BP[0] &^= 2
			w.BN[0] &^= 2
			w.BR[0] |= 2
		}, gpu.ErrInvalid, "blk.0.attn_v: rows 0 to 19"},
		{"behind the columns", func(m *ternary.Model) {
			w := &m.Layers[1].Down
			w.BP[w.Rows*w.Stride-w.Stride+w.Cols/8] |= 1 << (w.Cols % 8)
		}, gpu.ErrInvalid, "blk.1.ffn_down: rows 0 to 99"},
		{"bias", func(m *ternary.Model) { m.Layers[1].K.Bias = make([]float32, 20); m.Layers[1].K.Bias[4] = 1e13 }, backend.ErrRefused, `"blk.1.attn_k": bias[4]`},
		{"columns", func(m *ternary.Model) { m.Intermediate = 1<<16 + 1 }, nil, "65537 columns; these kernels take up to 65536"},
		{"head", func(m *ternary.Model) { m.HeadDim = 513 }, nil, "513 dimensions; these kernels take up to 512"},
		{"groups", func(m *ternary.Model) { m.Heads, m.KVHeads, m.HeadDim = 1<<16, 1<<16, 1 }, nil, "65536 groups of heads"},
	} {
		m := ternarytest.Model(ternarytest.All()[1].Spec)
		c.harm(m)
		d := gputest.New(89)
		_, err := unproven(t, d, 0).Load(context.Background(), m, backend.Options{})
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || d.Buffers() != 0 {
			t.Errorf("%s: %v; %d buffers left", c.name, err, d.Buffers())
		}
	}
}
