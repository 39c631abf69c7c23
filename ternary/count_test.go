package ternary

import (
	"math/rand/v2"
	"testing"
)

// naiveRow is countRow and findBad, column by column.
func naiveRow(bp, bn, br []byte, cols int) (c rowCount, bad int) {
	bad = -1
	for i := range len(bp) * 8 {
		bit := func(p []byte) bool { return p[i/8]>>(i%8)&1 == 1 }
		p, n, r := bit(bp), bit(bn), bit(br)
		if (p && n || r && !p && !n || i >= cols && (p || n || r)) && bad < 0 {
			bad = i
		}
		switch {
		case p && r:
			c.plusHi++
		case p:
			c.plusLo++
		case n && r:
			c.minusHi++
		case n:
			c.minusLo++
		}
	}
	return c, bad
}

func TestCountRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, cols := range []int{1, 7, 8, 9, 63, 64, 65, 71, 72, 127, 128, 129, 511, 512, 513, 1000, 4096} {
		for _, pad := range []int{0, 1, 7, 8, 9, 63, 64} {
			stride := (cols+7)/8 + pad
			// Unaligned rows inside larger arrays: reading past an end fails.
			buf := make([]byte, 3*stride+1)
			bp, bn, br := buf[1:1+stride:1+stride], buf[1+stride:1+2*stride:1+2*stride], buf[1+2*stride:]
			for c := range cols {
				bit := byte(1) << (c % 8)
				switch rng.IntN(5) {
				case 1:
					bp[c/8] |= bit
				case 2:
					bn[c/8] |= bit
				case 3:
					bp[c/8] |= bit
					br[c/8] |= bit
				case 4:
					bn[c/8] |= bit
					br[c/8] |= bit
				}
			}
			want, bad := naiveRow(bp, bn, br, cols)
			if bad >= 0 {
				t.Fatal("the test makes invalid rows")
			}
			if got, ok := countRow(bp, bn, br, cols); !ok || got != want {
				t.Errorf("cols %d stride %d: %+v %t, want %+v", cols, stride, got, ok, want)
			}
			// Any one flipped bit: refused exactly if the row is now invalid,
			// and blamed on the right column.
			for range 200 {
				plane := [][]byte{bp, bn, br}[rng.IntN(3)]
				i := rng.IntN(stride * 8)
				plane[i/8] ^= 1 << (i % 8)
				want, bad := naiveRow(bp, bn, br, cols)
				got, ok := countRow(bp, bn, br, cols)
				if ok != (bad < 0) || ok && got != want {
					t.Fatalf("cols %d stride %d bit %d: %+v %t, want %+v, bad column %d", cols, stride, i, got, ok, want, bad)
				}
				if col, _, _, _ := findBad(bp, bn, br, cols); col != bad {
					t.Fatalf("cols %d stride %d: findBad says column %d, want %d", cols, stride, col, bad)
				}
				plane[i/8] ^= 1 << (i % 8)
			}
		}
	}
}

func TestSumInt8(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	for _, fill := range []func() int8{
		func() int8 { return int8(rng.Uint32()) },
		func() int8 { return 127 },
		func() int8 { return -128 },
	} {
		for _, n := range []int{0, 1, 7, 8, 9, 1023, 1024, 1025, 2048, 2071, 10000} {
			q := make([]int8, n+1)[1:] // unaligned
			want := int64(0)
			for i := range q {
				q[i] = fill()
				want += int64(q[i])
			}
			if got := sumInt8(q); got != want {
				t.Errorf("%d values: %d, want %d", n, got, want)
			}
		}
	}
}
