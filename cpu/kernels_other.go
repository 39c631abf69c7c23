//go:build noasm || !(amd64 || arm64)

package cpu

func archSets() []*kernels { return nil }
