//go:build !noasm

package cpu

import (
	"slices"
	"testing"

	"npack/ternary"
)

func TestArrangeTiles(t *testing.T) {
	if !hasAVX2() {
		t.Skip("this processor lacks the instructions")
	}
	type arrangement = func(dst []byte, part *ternary.Matrix, row, R, blocks int) bool
	for name, a := range map[string]struct{ tiles, definition arrangement }{
		"codes": {arrangeTiles, arrangeCodes}, "bits": {arrangeBitTiles, arrangeBits},
		"groups": {arrangeGroupTiles, arrangeGroups},
	} {
		for kind, weight := range weightKinds {
			for _, cols := range []int{256, 512, 1024, 2304} {
				for _, stride := range []int{cols / 8, cols/8 + 8, cols/8 + 13} {
					m := withStride(testMatrix(35, cols, weight), stride)
					for _, R := range []int{8, 16, 32} {
						for row := 0; row < m.Rows; row += R {
							got, lives := guarded[byte](cols/blockCols*12*R, 0xa5)
							want := make([]byte, len(got))
							valid := a.tiles(got, m, row, R, cols/blockCols)
							a.definition(want, m, row, R, cols/blockCols)
							if !valid || !slices.Equal(got, want) || !lives() {
								t.Fatalf("%s: %s weights, %d columns, tile of %d at row %d: valid %t, equal %t (canaries live: %t)", name, kind, cols, R, row, valid, slices.Equal(got, want), lives())
							}
						}
					}
				}
			}
		}
		// One wrong bit anywhere is seen.
		for _, c := range []int{0, 31, 255, 256, 300, 511} {
			for row := range 16 {
				for wrong := range 2 {
					m := testMatrix(16, 512, weightKinds["all 0"])
					at, bit := row*m.Stride+c/8, byte(1)<<(c%8)
					m.BR[at] |= bit
					if wrong == 1 {
						m.BP[at] |= bit
						m.BN[at] |= bit
					}
					if a.tiles(make([]byte, 16*12*16), m, 0, 16, 16) {
						t.Errorf("%s: row %d, column %d, kind %d: taken for valid", name, row, c, wrong)
					}
				}
			}
		}
	}
}

// withStride returns m with rows stride bytes apart.
func withStride(m *ternary.Matrix, stride int) *ternary.Matrix {
	w := *m
	w.Stride = stride
	for _, p := range []struct {
		from []byte
		to   *[]byte
	}{{m.BP, &w.BP}, {m.BN, &w.BN}, {m.BR, &w.BR}} {
		*p.to = make([]byte, m.Rows*stride)
		for r := range m.Rows {
			copy((*p.to)[r*stride:], p.from[r*m.Stride:][:m.Stride])
		}
	}
	return &w
}

func BenchmarkArrange(b *testing.B) {
	m := testMatrix(8, 4096, weightKinds["random"])
	dst := make([]byte, 128*12*8)
	for _, c := range []struct {
		name string
		f    func(dst []byte, part *ternary.Matrix, row, R, blocks int) bool
	}{{"codes", arrangeCodes}, {"tiles", arrangeTiles}, {"bits", arrangeBits}, {"bit tiles", arrangeBitTiles}, {"groups", arrangeGroups}, {"group tiles", arrangeGroupTiles}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				c.f(dst, m, 0, 8, 128)
			}
		})
	}
}
