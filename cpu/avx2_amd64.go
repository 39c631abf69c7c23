//go:build !noasm

package cpu

// avx2 works on tiles of 8 rows: a part of a block is one 256-bit vector.
var avx2 = kernels{
	name: "avx2", about: "256-bit integers, x86-64 since 2013", rows: 8,
	present:   hasAVX2,
	dot:       generic.dot,
	expand:    generic.expand,
	dotMany:   generic.dotMany,
	finish:    generic.finish,
	int8Bytes: generic.int8Bytes, int8Pack: generic.int8Pack, int8Dot: generic.int8Dot,
	vec: &avx2Vectors,
}
