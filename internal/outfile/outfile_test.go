package outfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"npack/pack"
)

func names(t *testing.T, dir string) (n []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		n = append(n, e.Name())
	}
	return n
}

func TestCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a b.bin")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	if _, err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("before Commit the target holds %q", b)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	f.Abort()
	if b, _ := os.ReadFile(path); string(b) != "new" {
		t.Errorf("after Commit the target holds %q", b)
	}
	if n := names(t, dir); len(n) != 1 {
		t.Errorf("left behind: %q", n)
	}
}

func TestAbort(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "x"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := names(t, dir); len(n) != 1 || n[0][0] != '.' {
		t.Errorf("while writing: %q, want one hidden file", n)
	}
	f.Abort()
	if n := names(t, dir); len(n) != 0 {
		t.Errorf("left behind: %q", n)
	}
}

func TestRefuse(t *testing.T) {
	dir := t.TempDir()
	if _, err := Create(filepath.Join(dir, "none", "x"), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
	if err := Check(dir); err == nil {
		t.Error("a directory as target was accepted")
	}
	if err := Check(filepath.Join(dir, "x")); err != nil {
		t.Error(err)
	}
	if _, ok := freeBytes(dir); ok {
		_, err := Create(filepath.Join(dir, "x"), 1<<60)
		if !errors.Is(err, pack.ErrNoSpace) {
			t.Errorf("2^60 bytes: %v, want ErrNoSpace", err)
		}
	}
	if n := names(t, dir); len(n) != 0 {
		t.Errorf("left behind: %q", n)
	}
}
