//go:build unix

package outfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"npack/pack"
)

// A limit on the size of files is the full disk that a test can make.
func TestFull(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := old
	limit.Cur = 100 << 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &old)

	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "x"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	for range 10 {
		if _, err = f.Write(make([]byte, 30<<10)); err != nil {
			break
		}
	}
	var e *pack.Error
	if !errors.As(err, &e) || !errors.Is(err, pack.ErrNoSpace) {
		t.Fatalf("writing past the limit: %v, want ErrNoSpace", err)
	}
	f.Abort()
	if n := names(t, dir); len(n) != 0 {
		t.Errorf("left behind: %q", n)
	}
}

// A link to a disk that is not there is not replaced by a file on this one.
func TestDanglingLink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.Symlink("none/y", path); err != nil {
		t.Fatal(err)
	}
	if f, err := Create(path, 0); err == nil {
		f.Abort()
		t.Error("Create took a link to what is not there")
	}
	if p, err := OpenPart(path); err == nil {
		p.Close()
		t.Error("OpenPart took a link to what is not there")
	}
	if d, err := CreateDir(path, 0); err == nil { // whose last step, after all the work, would fail
		d.Abort()
		t.Error("CreateDir took a link to what is not there")
	}
}
