package fv5

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/internal/hexdoc"
)

// The worked example of FORMAT.md is what its text says.
func TestFormatExample(t *testing.T) {
	_, _, b, err := hexdoc.Example("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	x, err := decodeExtra(b)
	if err != nil {
		t.Fatal(err)
	}
	want := extra{4: {rsLo: differences{{17, 2}, {20, -1}}, biasFlag: 7}}
	if d := cmp.Diff(want, x, cmp.AllowUnexported(deviations{}, difference{})); d != "" {
		t.Error(d)
	}
	if got := want.encode(); !bytes.Equal(got, b) {
		t.Errorf("% x", got)
	}
}
