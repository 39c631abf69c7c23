package reference_test

import (
	"testing"

	"npack/internal/simulation"
	"npack/runtime/reference"
)

func TestSimulationBits(t *testing.T) { simulation.Run(t, reference.Backend{}, true) }
