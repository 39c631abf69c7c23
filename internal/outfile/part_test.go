package outfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"npack/pack"
)

type testState struct{ Done int64 }

// A part survives being closed, with its state, and becomes the target once.
func TestPart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a b.bin")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	p, err := OpenPart(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.LoadState(new(testState)) {
		t.Error("a new part has a state")
	}
	if _, err := p.WriteAt([]byte("12"), 0); err != nil {
		t.Fatal(err)
	}
	if err := p.SaveState(testState{2}); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	if p, err = OpenPart(path); err != nil {
		t.Fatal(err)
	}
	var s testState
	if n, err := p.Size(); n != 2 || err != nil || !p.LoadState(&s) || s.Done != 2 {
		t.Errorf("opened again: %d bytes, state %+v, %v", n, s, err)
	}
	if _, err := p.WriteAt([]byte("345"), 2); err != nil {
		t.Fatal(err)
	}
	if err := p.Truncate(4); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("before Commit the target holds %q", b)
	}
	if err := p.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), p.Remove()); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "1234" {
		t.Errorf("after Commit the target holds %q", b)
	}
	if n := names(t, dir); !slices.Equal(n, []string{"a b.bin"}) {
		t.Errorf("left behind: %q", n)
	}
}

func TestPartLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	p, err := OpenPart(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil { // empty
		t.Error(err)
	}
	if p, err = OpenPart(filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.WriteAt([]byte("12"), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.SaveState(testState{2}), p.Remove()); err != nil {
		t.Error(err)
	}
	if n := names(t, dir); len(n) != 0 {
		t.Errorf("left behind: %q", n)
	}
}

func TestPartRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenPart(dir); err == nil {
		t.Error("a directory as target was accepted")
	}
	path := filepath.Join(dir, "x")
	p, err := OpenPart(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if q, err := OpenPart(path); err == nil {
		q.Close()
		t.Error("two writers of one part")
	}
	if _, ok := freeBytes(dir); ok {
		if err := p.Room(1 << 60); !errors.Is(err, pack.ErrNoSpace) {
			t.Errorf("2^60 bytes: %v, want ErrNoSpace", err)
		}
	}
	for _, damaged := range [][]byte{nil, []byte("{"), []byte(`{"Done":"x"}`), bytes.Repeat([]byte(" "), maxState+1)} {
		if err := os.WriteFile(p.stateName(), damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		if p.LoadState(new(testState)) {
			t.Errorf("a state of %d bytes was believed", len(damaged))
		}
	}
}
