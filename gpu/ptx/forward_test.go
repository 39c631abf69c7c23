package ptx_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"npack/gpu"
	"npack/gpu/ptx"
	"npack/internal/simulation"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/testdata/story"
)

// card is a generation of kernels, with subnormal numbers flushed or not: there are
// none.
type card struct {
	capability int
	flush      bool
}

func (c card) run(t *testing.T, test func(t *testing.T, d *ptx.Device)) {
	t.Run(fmt.Sprintf("sm_%d, flush %t", c.capability, c.flush), func(t *testing.T) {
		t.Parallel()
		d, err := ptx.New(c.capability)
		if err != nil {
			t.Fatal(err)
		}
		d.Flush = c.flush
		test(t, d)
		if d.Subnormals != 0 {
			t.Errorf("%d subnormals", d.Subnormals)
		}
	})
}

// TestProof: the start-up probe on the shipped kernels, which are all operations of
// NUMERICS.md and forward passes of a tiny model of each topology.
func TestProof(t *testing.T) {
	for _, c := range []card{{70, false}, {80, false}, {80, true}, {100, false}} {
		c.run(t, func(t *testing.T, d *ptx.Device) {
			if _, err := gpu.New("ptx", d, gpu.Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStory: the story model's logits of a prompt and of tokens after it, one by
// one, are the reference's.
func TestStory(t *testing.T) {
	m := simulation.Open(t, story.Container)
	tr := simulation.Trajectories(t, story.Trajectories)[0]
	ids := append(tr.PromptIDs[:len(tr.PromptIDs):len(tr.PromptIDs)], tr.IDs[:2]...)
	want := logits(t, reference.Backend{}, m, ids, len(tr.PromptIDs))
	for _, c := range []card{{70, false}, {80, true}} {
		c.run(t, func(t *testing.T, d *ptx.Device) {
			b, err := gpu.New("ptx", d, gpu.Options{Unproven: true})
			if err != nil {
				t.Fatal(err)
			}
			got := logits(t, b, m, ids, len(tr.PromptIDs))
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("logit %d of row %d is %g, want %g", i%m.Vocab, i/m.Vocab, got[i], want[i])
				}
			}
		})
	}
}

// logits are those after the prompt and after each token behind it.
func logits(t *testing.T, b backend.Backend, m *ternary.Model, ids []int32, prompt int) []float32 {
	t.Helper()
	in, seq := open(t, b, m, backend.Options{}, len(ids))
	out := make([]float32, (len(ids)-prompt+1)*m.Vocab)
	for i, n := 0, prompt; i*m.Vocab < len(out); i, n = i+1, n+1 {
		r := backend.Run{Seq: seq, Tokens: ids[seq.Len():n], Logits: out[i*m.Vocab : (i+1)*m.Vocab]}
		r.Want = []int{len(r.Tokens) - 1}
		if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
