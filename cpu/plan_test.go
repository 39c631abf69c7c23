package cpu

import (
	"context"
	"testing"
	"unsafe"

	"npack/runtime/backend"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// TestPlan: what is planned is what an instance holds after a pass over all
// columns.
func TestPlan(t *testing.T) {
	for _, b := range []Backend{{}, inPlaceBackend} {
		testPlan(t, b)
	}
}

func testPlan(t *testing.T, b Backend) {
	for _, n := range ternarytest.All() {
		for _, o := range []backend.Options{
			{Threads: 1}, {Threads: 3, Activations: backend.Int8, KV: backend.KVF32}, {Threads: 2, Activations: backend.Int16, KV: backend.KVInt8},
		} {
			m := ternarytest.Model(n.Spec)
			const columns = 80 // more than meet a tile together
			length := min(300, m.MaxPosition) / columns * columns
			mem := b.Plan(m, o, length, columns)
			inst, err := b.Load(context.Background(), m, o)
			if err != nil {
				t.Fatal(err)
			}
			in := inst.(*instance)
			seq, err := in.NewSequence(length)
			if err != nil {
				t.Fatal(err)
			}
			logits := make([]float32, m.Vocab)
			for range length / columns {
				run := backend.Run{Seq: seq, Tokens: make([]int32, columns), Want: []int{columns - 1}, Logits: logits}
				if err := in.Forward(context.Background(), []backend.Run{run}); err != nil {
					t.Fatal(err)
				}
			}

			var cache int64
			for _, s := range seq.(*sequence).steps {
				cache += int64(len(s.raw))
			}
			if mem.Cache != cache {
				t.Errorf("%s %+v: cache of %d bytes, planned %d", n.Name, o, cache, mem.Cache)
			}
			p := &in.pass
			buffers := size(p.x) + size(p.q) + size(p.k) + size(p.v) + size(p.heads) + size(p.mix) + size(p.gate) + size(p.up) +
				size(p.fixed) + size(p.formed) + size(p.inPlace) + size(p.scales) + size(p.packed) + size(p.partial) + size(p.partials) + int64(8*len(in.rope.Cos))
			for _, w := range in.pool.workers {
				buffers += size(w.vec) + size(w.head) + size(w.keys) + size(w.vals) + size(w.sums) + size(w.many) + size(w.tiles) + int64(unsafe.Sizeof(w.scratch))
			}
			if off := float64(mem.Buffers)/float64(buffers) - 1; off < -0.01 || off > 0.05 {
				t.Errorf("%s %+v: buffers of %d bytes, planned %d", n.Name, o, buffers, mem.Buffers)
			}
			weights := int64(len(in.raw)+len(in.head.raw)) + size(in.finalNorm)
			for i := range in.layers {
				l := &in.layers[i]
				for _, norm := range [][]float32{l.attnNorm, l.ffnNorm, l.qNorm, l.kNorm, l.attnSubNorm, l.ffnSubNorm} {
					weights += size(norm)
				}
				for j, d := range l.linears() {
					weights += size(d.bias)
					w := m.Layers[i].Linears()[j] // the model lies in memory
					weights += size(w.BP) + size(w.BN) + size(w.BR) + size(w.SLo) + size(w.SHi) + size(w.RSLo) + size(w.RSHi)
				}
			}
			for _, table := range []*ternary.Int8Matrix{m.Embed, &m.Head} {
				if table != nil {
					weights += size(table.Q) + size(table.Scale)
				}
			}
			if mem.Weights != weights {
				t.Errorf("%s %+v: weights of %d bytes, planned %d", n.Name, o, weights, mem.Weights)
			}
			if mem.Token <= 0 || mem.Token > mem.Weights {
				t.Errorf("%s %+v: %d bytes a token of %d", n.Name, o, mem.Token, mem.Weights)
			}
			if err := in.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func size[E any](s []E) int64 {
	var e E
	return int64(len(s)) * int64(unsafe.Sizeof(e))
}
