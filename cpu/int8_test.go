package cpu

import "testing"

// 32-bit sums of the longest rows overflow unless they are put away in time:
// here all products are as large as they can be.
func TestInt8DotLong(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for _, blocks := range []int{1023, 1024, 1025, 2049, 5000, 1<<15 + 1} {
			n := blocks * blockCols
			w := make([]int8, 2*n)
			for c := range n {
				w[c], w[n+c] = -128, 127
			}
			for planes := 1; planes <= 3; planes++ {
				for _, name := range []string{"lowest", "highest"} {
					q, x := testDigits(n, planes, digitKinds[name])
					packed := make([]byte, blocks*k.int8Bytes(planes))
					k.int8Pack(packed, x, planes, blocks)
					sums := make([]int64, 2)
					k.int8Dot(sums, w, n, packed, planes, blocks)
					want := int64(q[0]) * int64(n) // all are the same
					if sums[0] != -128*want || sums[1] != 127*want {
						t.Fatalf("%d blocks, %d planes, %s: %d, want %d and %d", blocks, planes, name, sums, -128*want, 127*want)
					}
				}
			}
		}
	})
}
