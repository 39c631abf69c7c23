package cpu

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The map of a file may end where its last plane does: nothing behind it is read.
func TestInPlaceAtEnd(t *testing.T) {
	atEnd := func(n int) []byte { // n bytes with a page behind them that cannot be read
		page := unix.Getpagesize()
		size := roundUp(n, page)
		b, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		if err := unix.Mprotect(b[size:], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		return b[size-n : size : size]
	}
	eachInPlace(t, func(t *testing.T, l *linear) {
		for _, cols := range []int{1, 8, 33, 505, 512, 520, 1024, 1088} {
			m := testMatrix(l.rows, cols, weightKinds["random"])
			m = restrided(m, m.Stride, atEnd)
			q, x := testDigits(cols, l.planes, digitKinds["random"])
			if got, _ := l.sumsInPlace(m, 0, x); !slices.Equal(got, wantSums(m, l, q)) {
				t.Errorf("%d columns: differs", cols)
			}
		}
	})
}
