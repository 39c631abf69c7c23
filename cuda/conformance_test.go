//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"testing"

	"npack/cuda"
	"npack/gpu"
	"npack/internal/simulation"
	"npack/runtime/backend/backendtest"
)

// backendOn opens a card as a backend, or skips the test. It is closed when the
// test ends.
func backendOn(t testing.TB) *gpu.Backend {
	t.Helper()
	b, err := gpu.New("cuda", cuda.OpenTest(t), gpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConformance runs the suite on the card there is or, on the project's own
// driver, on cards of each generation in each order of threads.
func TestConformance(t *testing.T) {
	each(t, func(t *testing.T) { backendtest.Run(t, backendOn(t)) })
}

// TestSimulationBits runs the story model and its draft through the stored
// prompts.
func TestSimulationBits(t *testing.T) {
	prompts := 24
	if testing.Short() {
		prompts = 1
	}
	each(t, func(t *testing.T) { simulation.Run(t, backendOn(t), prompts) })
}

// each runs a test on the card there is or, on the fake driver, on a card of each
// generation of kernels with threads in each order: in short mode each of them once.
func each(t *testing.T, run func(t *testing.T)) {
	f := cuda.Fake()
	if f == nil {
		run(t)
		return
	}
	for i, capability := range []int{89, 70, 100} {
		for order, name := range []string{"forward", "reverse", "random"} {
			if testing.Short() && order != i {
				continue
			}
			pair := fmt.Sprintf("sm_%d/%s", capability, name)
			t.Run(pair, func(t *testing.T) {
				f.Set(t, "capability", capability)
				f.Set(t, "order", order)
				run(t)
			})
			f.Empty(t, pair)
		}
	}
}
