//go:build !noasm

package cpu

import "github.com/klauspost/cpuid/v2"

func archSets() []*kernels { return []*kernels{&amx, &avx512vnni, &avxvnni, &avx2} }

func hasAVX2() bool { return cpuid.CPU.Supports(cpuid.AVX2, cpuid.F16C) }
