package gguf

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"npack/testdata/cases"
)

// FuzzOpen: no bytes panic; what opens has its data in the file and, written
// again, is a file with the same contents, byte for byte the same if tensors lay
// where the writer puts them and zeros lay between.
func FuzzOpen(f *testing.F) {
	for _, c := range cases.All() {
		if b, err := cases.Files.ReadFile(c.File); err == nil && strings.HasSuffix(c.File, ".gguf") {
			f.Add(b)
		}
	}
	f.Add(golden(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := OpenBytes("x", b)
		if err != nil {
			if len(err.Error()) > 300<<10 { // names are quoted; commands cut them
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for _, kv := range x.Metadata {
			kv.Value.Print()
			kv.Value.Strings()
			for range kv.Value.Ints() {
			}
			if kv.Value.Len > len(b) {
				t.Fatalf("%d elements in %d bytes", kv.Value.Len, len(b))
			}
		}
		for i := range x.Tensors {
			w := &x.Tensors[i]
			if int64(len(w.Data)) != w.Size || w.FileAt+w.Size > int64(len(b)) {
				t.Fatalf("tensor %q: %d bytes at %d, %d are views", w.Name, w.Size, w.FileAt, len(w.Data))
			}
			if w.Size > 0 && w.Type.Decodes() {
				if err := w.Type.Dequantize(make([]float32, w.Cols()*w.Rows()), w.Data); err != nil {
					t.Fatal(err)
				}
			}
		}
		again(t, x, b)
	})
}

func again(t *testing.T, x *File, b []byte) {
	h := x.Header
	h.Tensors = slices.Clone(h.Tensors)
	if err := h.LayOut(); err != nil {
		return // looser than what is written: a name of 64 bytes
	}
	out := rewrite(t, x)
	y, err := OpenBytes("y", out)
	if err != nil {
		t.Fatalf("what was written does not open: %v", err)
	}
	canonical := len(out) == len(b)
	for i := range x.Tensors {
		v, w := &x.Tensors[i], &y.Tensors[i]
		if v.Name != w.Name || v.Type != w.Type || !slices.Equal(v.Dims, w.Dims) || !bytes.Equal(v.Data, w.Data) {
			t.Fatalf("tensor %q became %q, or other data", v.Name, w.Name)
		}
		canonical = canonical && v.Offset == h.Tensors[i].Offset
	}
	if !canonical {
		return
	}
	// Padding may hold anything; it becomes zeros.
	masked := slices.Clone(out)
	at := int(h.encodedLen())
	for i := range x.Tensors {
		v := &x.Tensors[i]
		if v.Size > 0 {
			copy(masked[at:], b[at:v.FileAt])
			at = int(v.FileAt + v.Size)
		}
	}
	copy(masked[at:], b[at:])
	if !bytes.Equal(masked, b) {
		t.Fatal("other bytes")
	}
}
