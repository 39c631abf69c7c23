package gguf_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"npack/gguf"
	"npack/internal/hexdoc"
	"npack/testdata/cases"
)

// The worked example of FORMAT.md is the file, and its comments are what the
// reader finds there.
func TestFormatExample(t *testing.T) {
	_, lines, got, err := hexdoc.Example("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := cases.Files.ReadFile("a02_fv5_ok.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("the example is not a02_fv5_ok.gguf")
	}
	f, err := gguf.OpenBytes("example", want)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[int64]string{}
	for _, l := range lines {
		comments[l.Offset] = l.Comment
	}
	find := func(off int64, comment string) {
		t.Helper()
		if comments[off] != comment {
			t.Errorf("byte %04x: the example says %q, the reader finds %q", off, comments[off], comment)
		}
	}
	find(8, fmt.Sprintf("%d tensors", len(f.Tensors)))
	find(16, fmt.Sprintf("%d keys", len(f.Metadata)))
	find(f.DataStart()-16, "padding")
	for i := range f.Tensors {
		x := &f.Tensors[i]
		v := make([]float32, x.Rows()*x.Cols())
		if err := x.Type.Dequantize(v, x.Data); err != nil {
			t.Fatal(err)
		}
		switch x.Type {
		case gguf.FV5:
			for r := range int64(x.Rows()) {
				at := r * gguf.FV5Bytes
				lo, hi, _, _, _ := gguf.SplitFV5(x.Data[at:])
				find(x.FileAt+at, fmt.Sprintf("%s row %d: s_lo = %g", x.Name, r, lo))
				find(x.FileAt+at+4, fmt.Sprintf("s_hi = %g", hi))
				find(x.FileAt+at+72, "br, columns 0 to 127")
			}
		case gguf.FV5B:
			find(x.FileAt, fmt.Sprintf("%s: s = %g", x.Name, 0.125))
			for c := 0; c < 256; c += 16 {
				find(x.FileAt+4+int64(c), fmt.Sprintf("q = %g to %g", v[c]/0.125, v[c+15]/0.125))
			}
		default:
			find(x.FileAt, fmt.Sprintf("%s = %s", x.Name, strings.Trim(fmt.Sprint(v), "[]")))
		}
	}
}
