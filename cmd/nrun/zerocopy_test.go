package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"npack/cpu"
	"npack/pack"
	"npack/pack/native"
	"npack/runtime/backend"
	"npack/ternary"
	"npack/testdata/story"
)

// Kernels and formats that cannot work in place are refused in one line, by every
// command, before a model is loaded.
func TestZeroCopyRefused(t *testing.T) {
	refused := func(want string, args ...string) {
		t.Helper()
		code, stdout, stderr := nrun("", args...)
		if code != 6 || stdout != "" || !strings.HasPrefix(stderr, "nrun: error: "+want) || !strings.Contains(stderr, "\nnrun: hint: leave out --zero-copy") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	for _, k := range cpu.KernelSets() {
		if !k.Present || k.ZeroCopy {
			continue
		}
		for _, command := range [][]string{{"generate", "-p", "x"}, {"chat"}, {"verify"}, {"plan"}, {"bench"}, {"info"}} {
			refused(`backend "cpu": zero-copy is not possible: kernels "`+k.Name+`" need arranged weights`, append(command, "--zero-copy", "--cpu-kernel", k.Name)...)
		}
		refused(`--run "a": backend "cpu": zero-copy is not possible`, "race", "--run", "a: zero-copy=yes kernel="+k.Name, "--run", "b:")
	}
	file := storyGGUF(t)
	for _, command := range [][]string{{"generate", "-q", "-p", "x"}, {"plan"}, {"bench", "-q"}} {
		refused(`"`+file+`": zero-copy is not possible: this format holds no bit planes`, append(command, "--zero-copy", "--cpu-kernel", "generic", file)...)
	}
}

// A run's errors about the file that it reads say which file that is, and exit as opening it would.
func TestMapped(t *testing.T) {
	src, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ err, kind error }{{ternary.ErrFault, pack.ErrTruncated}, {cpu.ErrInvalid, pack.ErrCorrupt}, {context.Canceled, context.Canceled}} {
		m := &mapped{failing{err: tt.err}, &packOf{src: src}}
		err := deviceError(m.Forward(t.Context(), nil))
		if !errors.Is(err, tt.kind) || strings.Contains(err.Error(), `"story.bin": `) != (tt.err != context.Canceled) {
			t.Errorf("%v becomes %v", tt.err, err)
		}
	}
}

type failing struct {
	backend.Instance
	err error
}

func (f failing) Forward(context.Context, []backend.Run) error { return f.err }

// Planes that contradict each other are found before a token is printed.
func TestZeroCopyCorrupt(t *testing.T) {
	b := slices.Clone(story.Container)
	f, err := native.OpenBytes("story.bin", b)
	if err != nil {
		t.Fatal(err)
	}
	up := &f.Model().Layers[5].Up // a view of b
	up.BP[7], up.BN[7] = 1, 1
	file := filepath.Join(t.TempDir(), "story.bin")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := nrun("", "generate", "-q", "--ids", "1,2,3", "-n", "1", "--zero-copy", "--cpu-kernel", "generic", file)
	if code != 4 || stdout != "" || !strings.HasPrefix(stderr, `nrun: error: "`+file+`": blk.5.ffn_up: rows 0 to 7: planes of weights contradict each other`) || !strings.Contains(stderr, "hint: npack verify") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}
