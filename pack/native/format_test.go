package native_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"npack/internal/hexdoc"
	"npack/pack/native"
	"npack/ternary"
	"npack/testdata/tv4z"
)

// The worked example of FORMAT.md is the file, and its comments are what the
// reader finds there.
func TestFormatExample(t *testing.T) {
	_, lines, got, err := hexdoc.Example("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := tv4z.Files.ReadFile("worked.bin")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("the example is not worked.bin")
	}
	f, err := native.OpenBytes("worked.bin", want)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if note := comment(f, l.Offset); note != "" && note != l.Comment {
			t.Errorf("%q: the reader finds %q", l.Text, note)
		}
	}
}

// comment words what the reader has at the start of a row of a plane or at the
// first field of a record; "" elsewhere.
func comment(f *native.File, off int64) string {
	i := -1
	for t := range f.Model().Tensors() {
		i++
		r := f.Records()[i+1]
		if r.Name != t.Name || off < r.Offset || off >= r.Offset+r.Size || r.Kind == native.KindVector {
			continue
		}
		if off == r.Offset {
			return fmt.Sprintf("%s: rows = %d", r.Name, r.Rows)
		}
		if t.Ternary == nil {
			continue
		}
		for _, p := range []struct {
			name  string
			plane []byte
		}{{ternary.PartBP, t.Ternary.BP}, {ternary.PartBN, t.Ternary.BN}, {ternary.PartBR, t.Ternary.BR}} {
			start, _ := r.PartOffset(p.name)
			row := int(off-start) / r.Stride
			if off < start || row >= r.Rows || int(off-start)%r.Stride != 0 {
				continue
			}
			var columns []string
			for c := range r.Cols {
				if p.plane[row*r.Stride+c/8]>>(c%8)&1 == 1 {
					columns = append(columns, strconv.Itoa(c))
				}
			}
			if columns == nil {
				return fmt.Sprintf("%s row %d: no bit set", p.name, row)
			}
			return fmt.Sprintf("%s row %d: columns %s", p.name, row, strings.Join(columns, " "))
		}
	}
	return ""
}
