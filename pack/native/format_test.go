package native_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"npack/pack/native"
	"npack/ternary"
	"npack/testdata/tv4z"
)

var exampleLine = regexp.MustCompile(`^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)(?:x(\d+))?(?:  (.*))?$`)

// The worked example of FORMAT.md is the file, and its comments are what the
// reader finds there.
func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(doc), "```text\n")
	text, _, ok2 := strings.Cut(text, "```")
	if !ok || !ok2 {
		t.Fatal("no example")
	}
	want, err := tv4z.Files.ReadFile("worked.bin")
	if err != nil {
		t.Fatal(err)
	}
	f, err := native.OpenBytes("worked.bin", want)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for line := range strings.Lines(text) {
		m := exampleLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("cannot read %q", line)
		}
		if at, _ := strconv.ParseInt(m[1], 16, 64); at != int64(len(got)) {
			t.Fatalf("%q should be at %04x", line, len(got))
		}
		if note := comment(f, int64(len(got))); note != "" && note != m[4] {
			t.Errorf("%q: the reader finds %q", line, note)
		}
		var b []byte
		for _, h := range strings.Fields(m[2]) {
			v, _ := strconv.ParseUint(h, 16, 8)
			b = append(b, byte(v))
		}
		if m[3] != "" {
			n, _ := strconv.Atoi(m[3])
			b = bytes.Repeat(b, n)
		}
		got = append(got, b...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the example is not worked.bin")
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
