package gpu_test

import (
	"testing"

	"npack/gpu"
	"npack/gpu/gputest"
	"npack/internal/simulation"
	"npack/runtime/backend/backendtest"
)

// newBackend returns a backend on d that has proven itself. At the end of the test
// nothing may be left on d.
func newBackend(t testing.TB, d gpu.Device, of *gputest.Device) *gpu.Backend {
	t.Helper()
	b, err := gpu.New("plain", d, gpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if of.Buffers() != 0 || of.Taken != 0 {
			t.Errorf("%d buffers, %d bytes, were not freed", of.Buffers(), of.Taken)
		}
	})
	return b
}

// TestConformance runs the suite on the card in plain Go. What other generations do
// otherwise, and a card that records nothing, is in TestProof.
func TestConformance(t *testing.T) {
	d := &gputest.Recorder{Device: gputest.New(89)}
	t.Cleanup(func() {
		if d.Plays < d.Launches["argmax"]/4 || d.Open != 0 {
			t.Errorf("%d recordings played %d times, %d left open", d.Records, d.Plays, d.Open)
		}
	})
	backendtest.Run(t, newBackend(t, d, d.Device))
}

func TestSimulationBits(t *testing.T) {
	d := gputest.New(89)
	simulation.Run(t, newBackend(t, d, d), 1)
}
