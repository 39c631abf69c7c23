package kernels_test

import (
	"bytes"
	"strings"
	"testing"

	"npack/gpu/kernels"
	"npack/ternary"
)

// TestPackPlanes: parts of a matrix, in any order, give what the whole gives; planes
// that are no weights are refused with their place.
func TestPackPlanes(t *testing.T) {
	const rows, cols = 21, 77
	m := randomMatrix(random(1), rows, cols, "")
	strips, tiles := kernels.Strips(rows), kernels.Tiles(cols)
	want := make([]byte, kernels.PlaneBytes(strips, tiles))
	if err := kernels.PackPlanes(want, m, 0, kernels.Whole); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	for _, r := range [][2]int{{16, 21}, {0, 7}, {7, 16}} {
		part := *m
		part.Rows = r[1] - r[0]
		for _, plane := range []*[]byte{&part.BP, &part.BN, &part.BR} {
			*plane = (*plane)[r[0]*m.Stride : r[1]*m.Stride]
		}
		if err := kernels.PackPlanes(got, &part, r[0], kernels.Whole); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("parts give other bytes than the whole")
	}
	for what, spoil := range map[string]func(m *ternary.Matrix){
		"both signs":             func(m *ternary.Matrix) { m.BP[20*m.Stride+4] |= 1; m.BN[20*m.Stride+4] |= 1 },
		"a magnitude of nothing": func(m *ternary.Matrix) { m.BP[20*m.Stride+4], m.BN[20*m.Stride+4], m.BR[20*m.Stride+4] = 0, 0, 8 },
		"behind the last column": func(m *ternary.Matrix) { m.BP[20*m.Stride+9] |= 1 << 7 },
	} {
		m := randomMatrix(random(1), rows, cols, "")
		spoil(m)
		err := kernels.PackPlanes(make([]byte, len(want)), m, 0, kernels.Whole)
		if err == nil || !strings.Contains(err.Error(), "row 20") {
			t.Errorf("%s: error %v, want one that names row 20", what, err)
		}
	}
}

// TestPTX: which cards there are kernels for.
func TestPTX(t *testing.T) {
	for capability, want := range map[int]string{70: "sm_70", 75: "sm_70", 80: "sm_80", 89: "sm_80", 120: "sm_80"} {
		text, err := kernels.PTX(capability)
		if err != nil || !strings.Contains(text, ".target "+want+"\n") {
			t.Errorf("%d: %v, or not the text for %s", capability, err, want)
		}
		list, err := kernels.List(text)
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, k := range list {
			have[k.Name] = true
		}
		for _, n := range []int{1, 2, 8, 64, 512} {
			for _, name := range []string{kernels.Linear(capability, n, 3), kernels.Head(capability, n)} {
				if !have[name] {
					t.Errorf("%d: %s is chosen for %d columns, and not in the text", capability, name, n)
				}
			}
		}
	}
	if _, err := kernels.PTX(61); err == nil {
		t.Error("there are kernels for 6.1")
	}
}
