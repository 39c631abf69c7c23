//go:build !noasm

package cpu

import (
	"bytes"
	"testing"

	"npack/ternary"
)

// Some sums of dotSDOT are 16 times too large until the end, some of dotAVX512 64
// times until they are full. The largest ones must hold: all codes 2, in as many
// columns as there may be, with the digits that add up to most.
func TestDotMaxCols(t *testing.T) {
	eachLinear(t, func(t *testing.T, l *linear) {
		if l == generic.linear[l.planes] {
			t.Skip("would take long and has no such sums")
		}
		blocks := l.maxCols / blockCols
		n := l.rows * l.maxCols / 8
		m := &ternary.Matrix{Rows: l.rows, Cols: l.maxCols, ColsPad: l.maxCols, Stride: l.maxCols / 8,
			BP: bytes.Repeat([]byte{0xff}, n), BN: make([]byte, n), BR: make([]byte, n)}
		w := make([]byte, blocks*12*l.rows)
		l.arrange(w, m, 0, l.rows, blocks)
		for _, kind := range []string{"lowest", "-128", "highest", "fullest"} {
			q, x := testDigits(l.maxCols, l.planes, digitKinds[kind])
			sums := make([]int32, 2*l.planes*l.rows)
			x, more := l.formOf(x)
			l.single(sums, w, x, blocks)
			want := int64(0)
			for _, v := range q {
				want += 2 * int64(v)
			}
			for i, v := range l.values(sums, more) {
				if v != want {
					t.Fatalf("%s digits: sum %d is %d, want %d", kind, i, v, want)
				}
			}
			if l.inPlace == nil || !l.inPlace.present() {
				continue
			}
			values, _ := l.sumsInPlace(m, 0, x)
			for i, v := range values {
				if v != want {
					t.Fatalf("%s digits: sum %d in place is %d, want %d", kind, i, v, want)
				}
			}
		}
	})
}
