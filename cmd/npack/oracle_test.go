package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/gguf"
	"npack/pack/stock"
)

// listing is what the programs in internal/_oracle print of a file.
type listing struct {
	Keys    []string        `json:"keys"`
	Tensors []listingTensor `json:"tensors"`
}

type listingTensor struct {
	Name string   `json:"name"`
	Dims []uint64 `json:"dims"`
	Type uint32   `json:"type"`
	At   uint64   `json:"at"`
	Size uint64   `json:"size"`
}

// TestOracles lets gguf-py and gguf-parser-go read every kind of GGUF file that
// npack writes: they must find the same keys, shapes, places and sizes. FV5 is
// for those that know the two types: gguf-py and gguf-parser-go do not, so of
// the FV5 file only our own reading is there.
func TestOracles(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: -short: builds a program of another module")
	}
	dir := t.TempDir()
	var files []string
	var want []listing
	for _, ty := range stock.Names() {
		out := filepath.Join(dir, ty+".gguf")
		var stderr bytes.Buffer
		if code := run([]string{"npack", "to-gguf", "--stock", ty, "--quick", "-q", "../../testdata/storydraft", out}, nil, io.Discard, &stderr); code != 0 {
			t.Fatalf("exit %d: %s", code, &stderr)
		}
		files = append(files, out)
		want = append(want, listFile(t, out))
	}
	t.Run("gguf-parser-go", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "."}, files...)...)
		cmd.Dir = "../../internal/_oracle"
		out, err := cmd.Output()
		if err != nil {
			if e, ok := err.(*exec.ExitError); ok && bytes.Contains(e.Stderr, []byte("dial tcp")) {
				t.Skipf("SKIP: its module cannot be fetched: %s", e.Stderr)
			}
			t.Fatalf("%v: %s", err, stderrOf(err))
		}
		compareListings(t, out, want)
	})
	t.Run("gguf-py", func(t *testing.T) {
		python := os.Getenv("NPACK_PYTHON")
		if python == "" {
			python = "python3"
		}
		if err := exec.CommandContext(t.Context(), python, "-c", "import gguf").Run(); err != nil {
			t.Skipf("SKIP: %s cannot import gguf (pip install gguf): %v", python, err)
		}
		out, err := exec.CommandContext(t.Context(), python, append([]string{"../../internal/_oracle/oracle.py"}, files...)...).Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderrOf(err))
		}
		compareListings(t, out, want)
	})
}

func stderrOf(err error) []byte {
	if e, ok := err.(*exec.ExitError); ok {
		return e.Stderr
	}
	return nil
}

// listFile is our own listing of a file.
func listFile(t *testing.T, path string) (l listing) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, kv := range f.Metadata {
		l.Keys = append(l.Keys, kv.Key)
	}
	for _, x := range f.Tensors {
		l.Tensors = append(l.Tensors, listingTensor{x.Name, append([]uint64{}, x.Dims...), uint32(x.Type), uint64(x.FileAt), uint64(x.Size)})
	}
	return l
}

func compareListings(t *testing.T, out []byte, want []listing) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(out))
	for i := range want {
		var got listing
		if err := d.Decode(&got); err != nil {
			t.Fatalf("file %d: %v", i, err)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("file %d (-ours +theirs):\n%s", i, diff)
		}
	}
}
