//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"testing"

	"npack/gpu"
	"npack/runtime/backend/backendtest"
)

// TestConformance proves the kernels and all that launches them to the
// reference's bits, on the card there is.
func TestConformance(t *testing.T) {
	d := open(t)
	t.Cleanup(func() { d.Close() })
	b, err := gpu.New("cuda", d, gpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, b)
}
