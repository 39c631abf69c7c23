package ternary

import (
	"math/rand/v2"
	"testing"
)

// The kernels equal the generic code: lengths around their block, starts that
// are not aligned, random and extreme contents.
func TestKernels(t *testing.T) {
	var none [5]uint64
	probe := make([]byte, 64)
	if countPlanesFast(probe, probe, probe, &none) == 0 {
		t.Skip("this build or CPU has no kernel: AVX2 on amd64 without the tag noasm is the only one")
	}
	random := rand.New(rand.NewPCG(3, 1))
	fills := map[string]func() byte{
		"random": func() byte { return byte(random.Uint32()) },
		"zeros":  func() byte { return 0 },
		"ones":   func() byte { return 0xff },
		"low":    func() byte { return 0x80 }, // the smallest int8
		"high":   func() byte { return 0x7f },
	}
	for name, fill := range fills {
		buf := make([]byte, 4*5000)
		for i := range buf {
			buf[i] = fill()
		}
		for _, words := range []int{0, 1, 3, 4, 5, 7, 8, 9, 16, 64, 65, 600} {
			for start := range 3 {
				n := 8 * words
				plane := func(i int) []byte { return buf[i*5000+start : i*5000+start+n : i*5000+start+n] }
				var want, got [5]uint64
				countPlanesGeneric(plane(0), plane(1), plane(2), &want)
				done := countPlanesFast(plane(0), plane(1), plane(2), &got)
				if done%32 != 0 || done > n || n-done >= 32 {
					t.Fatalf("%s: %d of %d bytes done", name, done, n)
				}
				got = countPlanes(plane(0), plane(1), plane(2))
				// Which rule breaks the bits of the last word is left open.
				want[badBits], got[badBits] = min(want[badBits], 1), min(got[badBits], 1)
				if got != want {
					t.Errorf("%s, %d bytes from %d: %v, want %v", name, n, start, got, want)
				}
			}
		}
		for _, n := range []int{0, 1, 31, 32, 33, 63, 64, 65, 4096, 4999} {
			q := make([]int8, n)
			for i := range q {
				q[i] = int8(buf[i+1])
			}
			var want int64
			for _, v := range q {
				want += int64(v)
			}
			if got, generic := sumInt8(q), sumInt8Generic(q); got != want || generic != want {
				t.Errorf("%s, %d values: %d, generic %d, want %d", name, n, got, generic, want)
			}
		}
	}
}

// One bad bit anywhere in a plane is seen, and only where it is one.
func TestKernelSeesEveryBadBit(t *testing.T) {
	const n = 72
	for bit := range 8 * n {
		bp, bn, br := make([]byte, n), make([]byte, n), make([]byte, n)
		at, m := bit/8, byte(1)<<(bit%8)
		for _, tc := range []struct {
			p, n, r byte
			bad     bool
		}{{0, 0, 0, false}, {m, 0, 0, false}, {0, m, m, false}, {m, 0, m, false}, {m, m, 0, true}, {0, 0, m, true}} {
			bp[at], bn[at], br[at] = tc.p, tc.n, tc.r
			if sums := countPlanes(bp, bn, br); (sums[badBits] != 0) != tc.bad {
				t.Fatalf("bit %d, %v: bad is %#x", bit, tc, sums[badBits])
			}
		}
	}
}
