//go:build unix

package expand

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"npack/pack"
	"npack/testdata/story"
)

// A disk that becomes full leaves nothing, unless what is there was fetched: it
// then goes on. The limit on file sizes is the full disk that a test can make.
func TestFull(t *testing.T) {
	m := &memory{data: storyTransport(t), key: "k"}
	limited := func(path string, o Options) {
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
		limit := old
		limit.Cur = uint64(len(story.Container)) * 3 / 4
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		defer unix.Setrlimit(unix.RLIMIT_FSIZE, &old)
		_, err := File(t.Context(), path, m.transport(), o)
		var e *pack.Error
		if !errors.Is(err, pack.ErrNoSpace) || !errors.As(err, &e) || e.File != path || !strings.Contains(e.Found, "no room after ") {
			t.Fatalf("writing past the limit: %v, want ErrNoSpace with path and bytes", err)
		}
		if left := strings.Contains(e.Hint, "nothing was left"); left == o.KeepFull {
			t.Errorf("hint %q", e.Hint)
		}
	}

	dir := t.TempDir()
	path := filepath.Join(dir, "m.bin")
	limited(path, Options{})
	if n := names(t, dir); len(n) != 0 {
		t.Fatalf("left behind: %q", n)
	}

	limited(path, Options{KeepFull: true})
	if n := names(t, dir); !slices.Equal(n, []string{"m.bin.part", "m.bin.part.json"}) {
		t.Fatalf("kept: %q", n)
	}
	res, err := File(t.Context(), path, m.transport(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, story.Container) || res.Resumed == 0 {
		t.Errorf("%d bytes, of which %d from the first run", len(got), res.Resumed)
	}
}
