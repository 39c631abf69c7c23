package membw

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	for _, threads := range []int{1, 3} {
		r := Read(threads, 1<<20, time.Millisecond)
		if r.Threads != threads || r.Bytes > 1<<20 || r.Bytes < 1<<20-threads || r.BytesPerSecond <= 0 {
			t.Errorf("%+v", r)
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
