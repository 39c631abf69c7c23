package ternary

import "testing"

// BenchmarkCountRow counts rows that stay in the cache: how far the arithmetic
// is from being the limit of a walk.
func BenchmarkCountRow(b *testing.B) {
	bp, bn, br := make([]byte, 512), make([]byte, 512), make([]byte, 512)
	for i := range bp {
		bp[i], bn[i], br[i] = byte(i)&0x55, byte(i)&0xaa, byte(i)&0x0f
	}
	b.SetBytes(3 * 512)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := countRow(bp, bn, br, 4096); !ok {
			b.Fatal("refused")
		}
	}
}

func BenchmarkSumInt8(b *testing.B) {
	q := make([]int8, 4096)
	for i := range q {
		q[i] = int8(i)
	}
	b.SetBytes(4096)
	b.ReportAllocs()
	for b.Loop() {
		sumInt8(q)
	}
}
