package mlx

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"npack/ternary"
)

func hexOf(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The vectors of FORMAT.md §3, which MLX's own quantisation layout gave.
func TestVectors(t *testing.T) {
	trits := []int8{0, 1, -1, 0, 1, 1, -1, -1, 0, 0, 0, 1, -1, 1, 0, -1}
	p, n, q := make([]byte, 2), make([]byte, 2), make([]byte, 16)
	for i, v := range trits {
		q[i] = byte(v + 1)
		switch v {
		case 1:
			p[i/8] |= 1 << (i % 8)
		case -1:
			n[i/8] |= 1 << (i % 8)
		}
	}
	want, got := hexOf(t, "490a9518"), make([]byte, 4)
	if encodeTrits(got, p, n); !bytes.Equal(got, want) {
		t.Errorf("2 bits: %x, want %x", got, want)
	}
	if packCodes(got, q, 2); !bytes.Equal(got, want) {
		t.Errorf("2 bits as a stream: %x, want %x", got, want)
	}
	want, got = hexOf(t, "88c6fa88c6fa"), make([]byte, 6)
	if packCodes(got, []byte{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}, 3); !bytes.Equal(got, want) {
		t.Errorf("3 bits: %x, want %x", got, want)
	}
	var x exporter
	w := bytesWriter(&x)
	if err := x.table(&ternary.Int8Matrix{Rows: 1, Cols: 8, Stride: 8, Q: []int8{0, 1, -1, 127, -128, 5, -5, 64}}, 0); err != nil {
		t.Fatal(err)
	}
	x.w.Flush()
	if want := hexOf(t, "80817fff00857bc0"); !bytes.Equal(w.Bytes(), want) {
		t.Errorf("8 bits: %x, want %x", w.Bytes(), want)
	}
	// 0, +lo, -lo, +hi, -hi, 0, +lo, +hi, four times
	w = bytesWriter(&x)
	m := &ternary.Matrix{Rows: 1, Cols: 32, Stride: 64, BP: make([]byte, 64), BN: make([]byte, 64), BR: make([]byte, 64)}
	for i := range 4 {
		m.BP[i], m.BN[i], m.BR[i] = 0b11001010, 0b00010100, 0b10011000
	}
	if err := x.twoPlanes(m, 0); err != nil {
		t.Fatal(err)
	}
	x.w.Flush()
	if want := hexOf(t, "49654965"+"49654965"+"95949594"+"95949594"); !bytes.Equal(w.Bytes(), want) {
		t.Errorf("planes: %x, want %x", w.Bytes(), want)
	}
}

// Streams of all widths come back, and the tables for 2 bits say the same.
func TestCodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, bits := range widths {
		q := make([]byte, 96)
		for i := range q {
			q[i] = byte(r.IntN(1 << bits))
		}
		b, got := make([]byte, len(q)*bits/8), make([]byte, len(q))
		packCodes(b, q, bits)
		if unpackCodes(got, b, bits); !bytes.Equal(got, q) {
			t.Errorf("%d bits: %v, want %v", bits, got, q)
		}
	}
	q, b := make([]byte, 16), make([]byte, 4)
	p, n := make([]byte, 2), make([]byte, 2)
	for range 1000 {
		first := -1
		for i := range q {
			if q[i] = byte(r.IntN(31)) % 4; q[i] == 3 && r.IntN(4) > 0 {
				q[i] = 1
			}
			if q[i] == 3 && first < 0 {
				first = i
			}
		}
		packCodes(b, q, 2)
		if bad := decodeTrits(p, n, b); bad != first {
			t.Fatalf("%v: code 3 at %d, want %d", q, bad, first)
		}
		for i, c := range q {
			if c < 3 && int(p[i/8]>>(i%8)&1)-int(n[i/8]>>(i%8)&1) != int(c)-1 {
				t.Fatalf("%v: %b, %b", q, p, n)
			}
		}
	}
}

// An exact grid decodes to the magnitudes; a nearest one is no worse than the
// error that it says.
func TestGrids(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		lo := float32(r.NormFloat64())
		hi := lo * (1 + 3*r.Float32())
		if r.IntN(4) == 0 { // small integers times something short
			step := float32(r.IntN(1<<12)+1) / 1024
			lo, hi = step*float32(r.IntN(31)-15), step*float32(r.IntN(31)-15)
		}
		if lo == 0 || hi == 0 {
			continue
		}
		for _, bits := range widths {
			if g, ok := newGrid(lo, hi, true, true, bits); ok && (float32(g.lo)*g.step != lo || float32(g.hi)*g.step != hi || max(g.lo, -g.lo, g.hi, -g.hi) > most(bits)) {
				t.Fatalf("%v and %v with %d bits: %+v", lo, hi, bits, g)
			}
			if bits < 6 {
				continue
			}
			g := nearestGrid(lo, hi, true, true, bits)
			if max(g.lo, -g.lo, g.hi, -g.hi) > most(bits) || g.err > map[int]float64{6: 0.03, 8: 0.008}[bits] {
				t.Fatalf("%v and %v with %d bits: %+v", lo, hi, bits, g)
			}
		}
	}
	// Ratios of small integers need no more bits than that.
	for _, c := range []struct {
		lo, hi float32
		bits   int
	}{{0.5, 0.5, 2}, {0.5, -0.5, 2}, {0.5, 1, 3}, {1, 3, 3}, {4, 5, 4}, {0.75, 1.75, 4}, {15, 1, 5}, {30, 31, 6}, {64, 65, 8}, {-126, 127, 8}} {
		for _, bits := range widths {
			if _, ok := newGrid(c.lo, c.hi, true, true, bits); ok != (bits >= c.bits) {
				t.Errorf("%v and %v with %d bits: %t", c.lo, c.hi, bits, ok)
			}
		}
	}
}

// bytesWriter lets x write into memory.
func bytesWriter(x *exporter) *bytes.Buffer {
	b := new(bytes.Buffer)
	x.Plan, x.ctx, x.w = &Plan{}, context.Background(), bufio.NewWriter(b)
	return b
}
