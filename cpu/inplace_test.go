package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"npack/ternary"
)

// eachInPlace runs f for the linears of every set that works in place on this machine.
func eachInPlace(t *testing.T, f func(t *testing.T, l *linear)) {
	eachSet(t, func(t *testing.T, k *kernels) {
		if !k.worksInPlace() {
			t.Skip("has no kernels for planes in place, or this processor lacks GFNI")
		}
		for planes := 1; planes <= 3; planes++ {
			t.Run(fmt.Sprintf("P=%d", planes), func(t *testing.T) { f(t, k.linear[planes]) })
		}
	})
}

// sumsInPlace are the sums of R rows from row on of planes, for activations x [blocks][P][32].
func (l *linear) sumsInPlace(m *ternary.Matrix, row int, x []int8) (values []int64, lives bool) {
	blocks := len(x) / l.planes / blockCols
	formed, formedLives := guarded[int8](inPlaceBytes(l.planes, blocks), -77)
	l.inPlace.form(formed, x, l.planes, blocks)
	sums, sumsLive := guarded[int32](2*l.planes*l.rows, 0x5a5a5a5a)
	l.inPlace.dot(sums, m, row, formed)
	return l.values(sums, 0), formedLives() && sumsLive()
}

// restrided returns m with stride bytes a row, those behind the last column all ones,
// in planes that plane allocates.
func restrided(m *ternary.Matrix, stride int, plane func(n int) []byte) *ternary.Matrix {
	wide := *m
	wide.Stride = stride
	for i, from := range [][]byte{m.BP, m.BN, m.BR} {
		to := plane(m.Rows * stride)
		for r := range m.Rows {
			row := to[r*stride:][:stride]
			for j := copy(row, from[r*m.Stride:][:m.Stride]); j < stride; j++ {
				row[j] = 0xff
			}
		}
		*[]*[]byte{&wide.BP, &wide.BN, &wide.BR}[i] = to
	}
	return &wide
}

func TestInPlace(t *testing.T) {
	eachInPlace(t, func(t *testing.T, l *linear) {
		if l.form != nil {
			t.Error("finish would get the sum of activations that form has made larger")
		}
		for kind, weight := range weightKinds {
			for digits, digit := range digitKinds {
				for i, cols := range []int{1, 31, 32, 33, 511, 512, 513, 1000, 1024, 1088, 4128} {
					m := testMatrix(2*l.rows, cols, weight)
					m = restrided(m, []int{m.Stride, m.Stride + 1, roundUp(m.Stride, 64)}[i%3], func(n int) []byte { return make([]byte, n) })
					row := i % 2 * (l.rows/2 + 1)
					q, x := testDigits(cols, l.planes, digit)
					got, lives := l.sumsInPlace(m, row, x)
					part := *m
					part.BP, part.BN, part.BR = m.BP[row*m.Stride:], m.BN[row*m.Stride:], m.BR[row*m.Stride:]
					if want := wantSums(&part, l, q); !slices.Equal(got, want) || !lives {
						t.Fatalf("%s weights, %s digits, %d columns, rows from %d of stride %d: %v, want %v (canaries live: %t)", kind, digits, cols, row, m.Stride, got, want, lives)
					}
				}
			}
		}
	})
}

// TestFormInPlace: every digit is where it should be, and what is missing of a group is 0.
func TestFormInPlace(t *testing.T) {
	eachInPlace(t, func(t *testing.T, l *linear) {
		for _, blocks := range []int{1, 2, 15, 16, 17, 31, 32, 48, 129} {
			rng := rand.New(rand.NewPCG(uint64(blocks), 7))
			x := make([]int8, blocks*l.planes*blockCols)
			for i := range x {
				x[i] = int8(rng.Uint32())
			}
			got, lives := guarded[int8](inPlaceBytes(l.planes, blocks), -77)
			l.inPlace.form(got, x, l.planes, blocks)
			want := make([]int8, len(got))
			for c := range blocks * blockCols {
				group, j, s := c/groupCols, c%groupCols/8, c%8
				for p := range l.planes {
					want[((group*8+s)*l.planes+p)*64+j] = x[(c/blockCols*l.planes+p)*blockCols+c%blockCols]
				}
			}
			if !slices.Equal(got, want) || !lives() {
				t.Fatalf("%d blocks: differs (canaries live: %t)", blocks, lives())
			}
		}
	})
}
