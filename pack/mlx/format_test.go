package mlx

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"npack/internal/hexdoc"
	"npack/ternary"
)

// The example of FORMAT.md is what is written, and its comments are what is read
// back.
func TestFormatExample(t *testing.T) {
	text, _, want, err := hexdoc.Example("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	m := &ternary.Matrix{Rows: 1, Cols: 32, ColsPad: 512, Stride: 64, BP: make([]byte, 64), BN: make([]byte, 64), BR: make([]byte, 64),
		SLo: []float32{0.0125}, SHi: []float32{0.0875}, RSLo: make([]int32, 1), RSHi: make([]int32, 1)}
	for i := range 4 { // 0 lo -lo hi -hi 0 lo hi
		m.BP[i], m.BN[i], m.BR[i] = 0b11001010, 0b00010100, 0b10011000
	}
	var x exporter
	w := bytesWriter(&x)
	x.Plan = &Plan{Profile: Planes, m: &ternary.Model{}}
	k := &module{t: ternary.Tensor{Name: "blk.0.attn_q", Ternary: m}, bits: 2, group: 32}
	if err := x.module(k); err != nil {
		t.Fatal(err)
	}
	if err := x.w.Flush(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w.Bytes(), want) {
		t.Fatalf("written is %x", w.Bytes())
	}

	s := &source{t: k.t, bits: 2, group: 32, planes: true, rowBytes: 16, groups: 2, scale: 8}
	b := &buffers{weight: want[:16], scales: want[16:24], biases: want[24:]}
	if err := s.checkScales(b, 0, 0); err != nil {
		t.Fatal(err)
	}
	var p ternary.Part
	p.Size(k.t, 1)
	got := &p.Ternary
	if err := new(File).twoPlanes(s, got, b, 0, 0); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.BP, m.BP) || !slices.Equal(got.BN, m.BN) || !slices.Equal(got.BR, m.BR) {
		t.Error("other planes")
	}
	trits := func(high bool) string {
		var v []int
		for c := range 8 {
			bit := func(p []byte) int { return int(p[0] >> c & 1) }
			v = append(v, (bit(got.BP)-bit(got.BN))*map[bool]int{true: 1}[bit(got.BR) == 1 == high])
		}
		return strings.Trim(fmt.Sprint(v), "[]")
	}
	for _, line := range []string{"low plane, t = " + trits(false) + " four times\n", "high plane, t = " + trits(true) + " four times\n", fmt.Sprintf("scales: %g %g\n", got.SLo[0], got.SHi[0])} {
		if !strings.Contains(text, line) {
			t.Errorf("the example does not say %q", line)
		}
	}
}
