package pack_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"npack/pack"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o666); err != nil {
		t.Fatal(err)
	}
	if b, err := pack.ReadFile(path, 5); string(b) != "12345" || err != nil {
		t.Errorf("5 of at most 5 bytes: %q, %v", b, err)
	}
	if _, err := pack.ReadFile(path, 4); !errors.Is(err, pack.ErrUnsupported) {
		t.Errorf("5 of at most 4 bytes: %v", err)
	}
	if _, err := pack.ReadFile(path+"x", 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if b, err := pack.ReadOptional(path+"x", 4); b != nil || err != nil {
		t.Errorf("no optional file: %q, %v", b, err)
	}
	if _, err := pack.ReadOptional(path, 4); !errors.Is(err, pack.ErrUnsupported) {
		t.Errorf("an optional file that is too large: %v", err)
	}
}
