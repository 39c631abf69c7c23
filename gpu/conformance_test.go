package gpu_test

import (
	"testing"

	"npack/gpu"
	"npack/gpu/gputest"
	"npack/runtime/backend/backendtest"
)

// TestConformance runs the suite on the card in plain Go, as one of each
// generation: they differ in their kernels.
func TestConformance(t *testing.T) {
	for name, capability := range map[string]int{"sm_70": 70, "sm_80": 80, "sm_100": 100} {
		t.Run(name, func(t *testing.T) {
			d := gputest.New(capability)
			b, err := gpu.New("plain", d, gpu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			backendtest.Run(t, b)
			t.Cleanup(func() {
				if d.Buffers() != 0 {
					t.Errorf("%d buffers, %d bytes, were not freed", d.Buffers(), d.Taken)
				}
			})
		})
	}
}
