package reference_test

import (
	"testing"

	"npack/internal/simulation"
	"npack/runtime/reference"
)

func TestSimulationBits(t *testing.T) {
	prompts := 24
	if testing.Short() {
		prompts = 6
	}
	simulation.Run(t, reference.Backend{}, prompts)
}
