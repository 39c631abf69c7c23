package outfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"npack/internal/outfile"
)

func TestDir(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "pack")
	write := func(text string) *outfile.Dir {
		t.Helper()
		d, err := outfile.CreateDir(path+string(filepath.Separator), 4)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.WriteFile("a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		return d
	}
	entries := func() int {
		t.Helper()
		list, err := os.ReadDir(parent)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	d := write("one")
	if _, err := os.Stat(path); err == nil {
		t.Error("the directory is there before Commit")
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	d.Abort()
	write("two").Abort()
	if b, err := os.ReadFile(filepath.Join(path, "a")); err != nil || string(b) != "one" || entries() != 1 {
		t.Errorf("%q, %v; %d entries", b, err, entries())
	}
	// A new one replaces it whole.
	if err := os.WriteFile(filepath.Join(path, "old"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := write("two").Commit(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(path, "a"))
	if _, left := os.Stat(filepath.Join(path, "old")); err != nil || string(b) != "two" || left == nil || entries() != 1 {
		t.Errorf("%q, %v; %d entries", b, err, entries())
	}
	if _, err := outfile.CreateDir(filepath.Join(path, "a"), 0); err == nil {
		t.Error("a file became a directory")
	}
	if _, err := outfile.CreateDir(path, 1<<62); err == nil {
		t.Error("2^62 bytes fit")
	}
}
