package cpu

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The map of a file may end where its last plane does: nothing behind it is read.
func TestInPlaceAtEnd(t *testing.T) {
	atEnd := func(n int) []byte { // the end of a file, whose map goes on for a page that is not there
		fd, err := unix.MemfdCreate("plane", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		page := unix.Getpagesize()
		size := roundUp(n, page)
		if err := unix.Ftruncate(fd, int64(size)); err != nil {
			t.Fatal(err)
		}
		b, err := unix.Mmap(fd, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
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
