package cpu

import (
	"testing"

	"npack/runtime/backend/backendtest"
)

func TestConformance(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) { backendtest.Run(t, Backend{Kernel: k.name}) })
}
