//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"testing"

	"npack/gpu"
	"npack/internal/simulation"
	"npack/runtime/backend/backendtest"
)

// backendOf returns the backend on the card there is.
func backendOf(t *testing.T) *gpu.Backend {
	t.Helper()
	d := open(t)
	t.Cleanup(func() { d.Close() })
	b, err := gpu.New("cuda", d, gpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConformance proves the kernels and all that launches them to the
// reference's bits, on the card there is.
func TestConformance(t *testing.T) { backendtest.Run(t, backendOf(t)) }

// TestSimulationBits does with the story models.
func TestSimulationBits(t *testing.T) {
	prompts := 24
	if testing.Short() {
		prompts = 1
	}
	simulation.Run(t, backendOf(t), prompts)
}
