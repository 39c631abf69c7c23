//go:build bochs

package cpu

import (
	"os"

	"github.com/klauspost/cpuid/v2"
)

// Under _bochs/emulate.py the kernels of the set $BOCHS_SET run where the processor
// lacks their instructions.
func init() {
	cpuid.CPU.Enable(map[string][]cpuid.FeatureID{
		"avx512vnni": {cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI},
		"avxvnni":    {cpuid.AVXVNNI},
	}[os.Getenv("BOCHS_SET")]...)
}
