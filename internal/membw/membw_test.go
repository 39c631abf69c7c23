package membw

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	for _, threads := range []int{1, 3} {
		r := Read(threads, 5<<20, time.Millisecond)
		if r.Threads != threads || r.Bytes != 8<<20 || r.BytesPerSecond <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestOr: every byte is read, no other is.
func TestOr(t *testing.T) {
	for _, size := range []int{0, 256, 512, 4096 + 256} {
		around := bytes.Repeat([]byte{0xff}, size+64)
		b := around[32 : 32+size]
		clear(b)
		for _, f := range []func([]byte) uint64{or, orGeneric} {
			if r := f(b); r != 0 {
				t.Fatalf("%d bytes of 0: %x", size, r)
			}
			for i := range b {
				b[i] = 1 << (i % 7)
				if r, want := f(b), uint64(b[i])<<(i%8*8); r != want {
					t.Fatalf("byte %d of %d: %x, want %x", i, size, r, want)
				}
				b[i] = 0
			}
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 3<<20+5), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		size int64
		want int
	}{{1 << 20, 1 << 20}, {1 << 40, 3<<20 + 4}} {
		r, err := ReadFile(path, 2, c.size)
		if err != nil || r.Bytes != c.want || r.BytesPerSecond <= 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if _, err := ReadFile(path+"x", 1, 1); err == nil {
		t.Error("a file that is not there is read")
	}
}
