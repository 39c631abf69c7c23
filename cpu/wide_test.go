package cpu

import (
	"slices"
	"testing"

	"npack/runtime/backend/backendtest"
)

// Only a few processors have a set with wide linears. These tests give them to the
// best set of any: they take the bytes of blocks of activations backwards and scratch
// of their own.

func TestWide(t *testing.T) {
	backendtest.Run(t, Backend{Kernel: withWide(t)})
}

func TestWidePlan(t *testing.T) {
	withWide(t)
	TestPlan(t)
}

// withWide has a set's linears replaced in passes over 4 columns and more, until
// the test ends, and returns its name.
func withWide(t *testing.T) string {
	k, err := choose("")
	if err != nil {
		t.Fatal(err)
	}
	linears := k.linear
	t.Cleanup(func() { k.linear = linears })
	for p := 1; p <= 3; p++ {
		l, wide := *linears[p], *linears[p]
		wide.dot, wide.direct, wide.near = nil, 0, 1<<20
		wide.form = func(dst, x []int8, blocks int) int64 {
			formed, more := l.formOf(x[:blocks*p*blockCols])
			copy(dst, formed)
			reverseBlocks(dst[:blocks*l.formBytes], l.formBytes)
			return more
		}
		wide.many = func(sums []int32, w []byte, x []int8, blocks, columns, stride int, scratch []byte) {
			n := blocks * l.formBytes
			var plain []int8
			for c := range columns {
				plain = append(plain, x[c*stride:][:n]...)
			}
			reverseBlocks(plain, l.formBytes)
			l.many(sums, w, plain, blocks, columns, n, scratch[1000:])
		}
		wide.scratch = func(columns int) int { return 1000 + l.scratch(columns) }
		l.wide, l.wideFrom = &wide, 4
		k.linear[p] = &l
	}
	return k.name
}

func reverseBlocks(x []int8, size int) {
	for block := range slices.Chunk(x, size) {
		slices.Reverse(block)
	}
}
