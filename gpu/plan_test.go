package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"npack/gpu"
	"npack/gpu/gputest"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/ternary/ternarytest"
)

func unproven(t testing.TB, d gpu.Device, limit int64) *gpu.Backend {
	t.Helper()
	b, err := gpu.New("plain", d, gpu.Options{MemoryLimit: limit, Unproven: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func total(m backend.Memory) int64 { return m.Weights + m.Cache + m.Buffers }

// TestPlan8B: the 8B model with a context of 4,096 tokens takes at most 4.7 GiB,
// with its draft at most 6 GiB.
func TestPlan8B(t *testing.T) {
	const gib = 1 << 30
	b := unproven(t, gputest.New(89), 0)
	large := b.Plan(ternarytest.Outline(ternarytest.Qwen8B()), backend.Options{}, 4096, engine.ChunkOf(b))
	small := b.Plan(ternarytest.Outline(ternarytest.Qwen06B()), backend.Options{}, 4096, engine.ChunkOf(b))
	if got := total(large); got > 47*gib/10 {
		t.Errorf("8B: %d bytes", got)
	}
	if got := total(large) + total(small); got > 6*gib {
		t.Errorf("8B and 0.6B: %d bytes", got)
	}
	// What a token reads: three bits a weight, the scales, the output embedding.
	if least := int64(6.946e9*3/8 + 151936*4096); large.Token < least || large.Token > least+least/100 {
		t.Errorf("a token reads %d bytes of weights, want %d and less than a hundredth more", large.Token, least)
	}
}

// TestPlan: a plan is what loading and filling a context allocates, in all.
func TestPlan(t *testing.T) {
	for _, n := range ternarytest.All() {
		for _, kv := range []backend.KV{backend.KVF16, backend.KVF32, backend.KVInt8} {
			for _, c := range []struct{ context, columns int }{{1, 1}, {300, 32}, {512, 128}} {
				d := gputest.New(89)
				d.Idle = true
				b := unproven(t, d, 0)
				m := ternarytest.Model(n.Spec)
				o := backend.Options{Activations: backend.Int16, KV: kv}
				plan := b.Plan(m, o, c.context, c.columns)
				in, err := b.Load(context.Background(), m, o)
				if err != nil {
					t.Fatal(err)
				}
				seq, err := in.NewSequence(c.context)
				if err != nil {
					t.Fatal(err)
				}
				for seq.Len() < c.context {
					r := backend.Run{Seq: seq, Tokens: make([]int32, min(c.columns, c.context-seq.Len()))}
					if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
						t.Fatal(err)
					}
				}
				what := fmt.Sprintf("%s, %s, context %d in passes of %d", n.Name, kv, c.context, c.columns)
				layer := plan.Cache / int64(m.Config.Layers+1)
				if want := total(plan) - layer; d.Taken != want {
					t.Errorf("%s: %d bytes are taken, planned %d", what, d.Taken, want)
				}
				if d.Peak > total(plan) {
					t.Errorf("%s: at most %d bytes were taken, planned %d", what, d.Peak, total(plan))
				}
				if err := errors.Join(seq.Close(), in.Close()); err != nil || d.Buffers() != 0 {
					t.Errorf("%s: %v, %d buffers left", what, err, d.Buffers())
				}
			}
		}
	}
}

// TestMemoryLimit: what is too large for the limit, or the card, is refused before
// anything is allocated; a cache that does not fit any more, when it grows.
func TestMemoryLimit(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	d := gputest.New(89)
	need := total(unproven(t, d, 0).Plan(m, backend.Options{}, 1, 1))
	if _, err := unproven(t, d, need-1).Load(context.Background(), m, backend.Options{}); !errors.Is(err, gpu.ErrMemory) || d.Peak != 0 {
		t.Errorf("a byte too little: %v, %d bytes were taken", err, d.Peak)
	}
	small := gputest.New(89)
	small.Memory = need - 1
	if _, err := unproven(t, small, 0).Load(context.Background(), m, backend.Options{}); !errors.Is(err, gpu.ErrMemory) || small.Peak != 0 {
		t.Errorf("a card too small by a byte: %v, %d bytes were taken", err, small.Peak)
	}

	b := unproven(t, d, need)
	in, err := b.Load(context.Background(), m, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := in.NewSequence(512)
	if err != nil {
		t.Fatal(err)
	}
	run := func(n int) error {
		return in.Forward(context.Background(), []backend.Run{{Seq: seq, Tokens: make([]int32, n)}})
	}
	for range 32 {
		if err := run(8); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(1); !errors.Is(err, gpu.ErrMemory) || seq.Len() != 256 {
		t.Errorf("a token beyond the memory: %v; %d tokens", err, seq.Len())
	}
	if f, err := seq.Fork(); !errors.Is(err, gpu.ErrMemory) {
		t.Errorf("a fork beyond the memory: %v, %v", f, err)
	}
	if d.Peak > need {
		t.Errorf("%d bytes were taken of %d", d.Peak, need)
	}
	if err := seq.Truncate(100); err != nil {
		t.Fatal(err)
	}
	if err := run(8); err != nil {
		t.Error("the sequence cannot be used any more:", err)
	}
	if err := errors.Join(seq.Close(), in.Close()); err != nil || d.Buffers() != 0 {
		t.Errorf("%v, %d buffers left", err, d.Buffers())
	}
}
