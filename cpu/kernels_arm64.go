//go:build !noasm

package cpu

func archSets() []*kernels { return nil }
