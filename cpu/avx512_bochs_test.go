//go:build bochs

package cpu

import "github.com/klauspost/cpuid/v2"

// Under _bochs/emulate.py the kernels of avx512vnni run where the processor
// lacks their instructions.
func init() {
	cpuid.CPU.Enable(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI)
}
