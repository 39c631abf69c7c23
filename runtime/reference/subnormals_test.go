//go:build subnormals

package reference_test

import (
	"context"
	"testing"

	"npack/internal/simulation"
	"npack/runtime/backend"
	"npack/runtime/backend/backendtest"
	"npack/runtime/reference"
	"npack/ternary/ternarytest"
	"npack/testdata/story"
)

// No float32 operation of the forward pass gives a subnormal result: Apple GPUs
// would flush it. Run with -tags subnormals, which makes every operation look.
func TestNoSubnormals(t *testing.T) {
	reference.Subnormals.Store(0)
	reference.SiLU(-0x1p-126) // halves it: the counter works
	if n := reference.Subnormals.Swap(0); n == 0 {
		t.Fatal("the counter does not count")
	}
	for _, c := range backendtest.Cases(false) {
		m := ternarytest.Model(c.Spec)
		backendtest.Reference(t, m, c.Options, backendtest.Text(&m.Config, 1))
		if n := reference.Subnormals.Load(); n != 0 {
			t.Fatalf("%s: %d subnormal results", c.Name, n)
		}
	}
	m := simulation.Open(t, story.Container)
	for _, kv := range []backend.KV{backend.KVF16, backend.KVF32, backend.KVInt8} {
		in, err := reference.Backend{}.Load(context.Background(), m, backend.Options{KV: kv})
		if err != nil {
			t.Fatal(err)
		}
		for _, tr := range simulation.Trajectories(t, story.Trajectories)[:3] {
			simulation.Forced(t, in, tr)
		}
		if n := reference.Subnormals.Load(); n != 0 {
			t.Fatalf("story, KV %s: %d subnormal results", kv, n)
		}
	}
}
