package cpu

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"npack/pack/native"
	"npack/runtime/backend"
	"npack/ternary"
	"npack/testdata/story"
)

// A file that is cut short while its weights are in use ends the pass, not the program.
func TestZeroCopyFault(t *testing.T) {
	if comm, _ := os.ReadFile("/proc/self/comm"); bytes.HasPrefix(comm, []byte("qemu")) {
		t.Skip("SKIP: qemu does not tell the address of a bus error, so Go takes it for a nil pointer")
	}
	for _, threads := range []int{1, 3} {
		path := filepath.Join(t.TempDir(), "story.bin")
		if err := os.WriteFile(path, story.Container, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := native.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in, err := inPlaceBackend.Load(context.Background(), f.Model(), backend.Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		seq, err := in.NewSequence(8)
		if err != nil {
			t.Fatal(err)
		}
		forward := func() error {
			run := backend.Run{Seq: seq, Tokens: []int32{7}, Want: []int{0}, Logits: make([]float32, in.Config().Vocab)}
			return in.Forward(context.Background(), []backend.Run{run})
		}
		if err := forward(); err != nil {
			t.Fatal(err)
		}
		for _, left := range []int64{int64(len(story.Container)) / 2, 0} { // some of the layers, then not even the embedding
			if err := os.Truncate(path, left); err != nil {
				t.Fatal(err)
			}
			if err := forward(); !errors.Is(err, ternary.ErrFault) || seq.Len() != 1 {
				t.Errorf("%d threads, cut to %d bytes: error is %v, %d tokens are in the sequence", threads, left, err, seq.Len())
			}
		}
	}
}
