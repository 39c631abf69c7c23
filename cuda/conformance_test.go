//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"errors"
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
	d, err := cuda.Open(cuda.Any)
	if errors.Is(err, cuda.ErrUnavailable) {
		t.Skipf("%v (make gpu-proof runs this on a driver of its own)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := gpu.New("cuda", d, gpu.Options{})
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
			t.Run(fmt.Sprintf("sm_%d/%s", capability, name), func(t *testing.T) {
				f.Set(t, "capability", capability)
				f.Set(t, "order", order)
				run(t)
			})
			if f.Get("held") != 0 || f.Get("leaked") != 0 {
				t.Errorf("sm_%d/%s left behind: %d held, %d leaked", capability, name, f.Get("held"), f.Get("leaked"))
			}
		}
	}
}

// fakeOf returns the fake driver, or skips the test.
func fakeOf(t *testing.T) *cuda.FakeDriver {
	t.Helper()
	f := cuda.Fake()
	if f == nil {
		t.Skip("this driver is a real one: its errors cannot be ordered")
	}
	return f
}
