//go:build !noasm

package cpu

import "testing"

// Some sums of dotSDOT are 16 times too large until the end, some of dotAVX512 64
// times until they are full. The largest ones must hold: all digits -128 and all
// codes 2, in as many columns as there may be.
func TestDotMaxCols(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		if k == &generic {
			t.Skip("would take long and has no such sums")
		}
		const blocks = maxCols / blockCols
		w, x := make([]byte, blocks*12*k.rows), make([]int8, 3*blocks*blockCols)
		for i := range w {
			if i%(12*k.rows) < 8*k.rows {
				w[i] = 0xaa // the codes; br is 0 in the part behind
			}
		}
		for i := range x {
			x[i] = -128
		}
		for planes := 1; planes <= 3; planes++ {
			sums := make([]int32, 2*planes*k.rows)
			k.dot[planes](sums, w, x, blocks)
			for i, s := range sums {
				if s != -2*128*maxCols {
					t.Fatalf("%d planes: sum %d is %d, want %d", planes, i, s, -2*128*maxCols)
				}
			}
		}
	})
}
