package ptx_test

import (
	"context"
	"fmt"
	"testing"

	"npack/gpu"
	"npack/gpu/ptx"
	"npack/runtime/backend"
	"npack/runtime/backend/backendtest"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// open loads a model and opens a sequence of n tokens, until the test ends.
func open(t *testing.T, b backend.Backend, m *ternary.Model, o backend.Options, n int) (backend.Instance, backend.Sequence) {
	t.Helper()
	in, err := b.Load(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	seq, err := in.NewSequence(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seq.Close() })
	return in, seq
}

// feed appends ids to a new sequence in pieces and returns all their logits.
func feed(t *testing.T, b backend.Backend, m *ternary.Model, o backend.Options, ids []int32, pieces ...int) []float32 {
	t.Helper()
	in, seq := open(t, b, m, o, len(ids))
	var logits []float32
	for i := 0; len(ids) > 0; i++ {
		n := min(pieces[min(i, len(pieces)-1)], len(ids))
		r := backend.Run{Seq: seq, Tokens: ids[:n], Logits: make([]float32, n*m.Vocab)}
		for j := range n {
			r.Want = append(r.Want, j)
		}
		if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
			t.Fatal(err)
		}
		logits, ids = append(logits, r.Logits...), ids[n:]
	}
	return logits
}

// forward runs a text through the whole backend, on the committed kernels, with
// subnormal numbers kept and flushed: the logits are the reference's, and there is
// none.
func forward(t *testing.T, capability int, m *ternary.Model, o backend.Options, flush bool, ids []int32, pieces ...int) {
	t.Helper()
	d, err := ptx.New(capability)
	if err != nil {
		t.Fatal(err)
	}
	d.Flush = flush
	b, err := gpu.New("ptx", d, gpu.Options{Unproven: true})
	if err != nil {
		t.Fatal(err)
	}
	got := feed(t, b, m, o, ids, pieces...)
	want := feed(t, reference.Backend{}, m, o, ids, len(ids))
	for i, v := range want {
		if got[i] != v {
			t.Fatalf("token %d, logit %d is %g, the reference's is %g", i/m.Vocab, i%m.Vocab, got[i], v)
		}
	}
	if d.Subnormals != 0 {
		t.Errorf("%d subnormal numbers", d.Subnormals)
	}
}

// TestTopologies runs each topology, each width of activations and each type of cache
// on each generation of kernels.
func TestTopologies(t *testing.T) {
	models := map[ternary.Arch]ternarytest.Named{}
	for _, n := range ternarytest.All() {
		if _, ok := models[n.Spec.Arch]; !ok {
			models[n.Spec.Arch] = n
		}
	}
	for i, c := range []struct {
		capability int
		pieces     []int // the last counts for the rest
	}{{70, []int{7, 1}}, {80, []int{40, 4, 1}}, {100, []int{37, 1}}} {
		for arch, n := range models {
			o := backend.Options{Activations: backend.Exact, KV: backend.KV((int(arch) + i) % 3)}
			if i == 2 {
				o.Activations = backend.Activations(arch)
			}
			t.Run(fmt.Sprintf("sm_%d/%s/%s/%s", c.capability, n.Name, o.Activations, o.KV), func(t *testing.T) {
				t.Parallel()
				m := ternarytest.Model(n.Spec)
				tokens := 2
				for _, p := range c.pieces {
					tokens += p
				}
				forward(t, c.capability, m, o, i == 1, backendtest.Text(&m.Config, 1)[:tokens], c.pieces...)
			})
		}
	}
}
