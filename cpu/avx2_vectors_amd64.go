//go:build !noasm

package cpu

// avx2Vectors never uses fused operations: NUMERICS.md rounds each product.
var avx2Vectors = genericVectors
