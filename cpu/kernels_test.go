package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"npack/ternary"
)

// eachSet runs f for every set of kernels that this machine can run.
func eachSet(t *testing.T, f func(t *testing.T, k *kernels)) {
	for _, k := range sets() {
		t.Run(k.name, func(t *testing.T) {
			if !k.present() {
				t.Skip("this processor lacks the instructions")
			}
			f(t, k)
		})
	}
}

// eachLinear runs f for the linears of every set that this machine can run.
func eachLinear(t *testing.T, f func(t *testing.T, l *linear)) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for planes := 1; planes <= 3; planes++ {
			l := k.linear[planes]
			t.Run(fmt.Sprintf("P=%d", planes), func(t *testing.T) { f(t, l) })
			if l.wide != nil {
				t.Run(fmt.Sprintf("P=%d/wide", planes), func(t *testing.T) { f(t, l.wide) })
			}
		}
	})
}

// single is dot of any linear.
func (l *linear) single(sums []int32, w []byte, x []int8, blocks int) {
	if l.dot != nil {
		l.dot(sums, w, x, blocks)
		return
	}
	l.many(sums, w, x, blocks, 1, 0, make([]byte, l.scratch(1)))
}

// guarded returns n elements with canaries around them, and a function that
// reports whether the canaries live. The slice starts off, an odd number of
// elements, from where the allocation does.
func guarded[E comparable](n int, canary E) ([]E, func() bool) {
	const pad = 67
	buf := make([]E, n+2*pad)
	for i := range buf {
		buf[i] = canary
	}
	return buf[pad : pad+n : pad+n], func() bool {
		for i := range pad {
			if buf[i] != canary || buf[pad+n+i] != canary {
				return false
			}
		}
		return true
	}
}

// weightKinds are ways to choose a weight: 0, +lo, -lo, +hi, -hi as 0 to 4.
var weightKinds = map[string]func(r *rand.Rand, row, col int) int{
	"random":     func(r *rand.Rand, _, _ int) int { return r.IntN(5) },
	"all +hi":    func(*rand.Rand, int, int) int { return 3 },
	"all -lo":    func(*rand.Rand, int, int) int { return 2 },
	"all 0":      func(*rand.Rand, int, int) int { return 0 },
	"one a row":  func(_ *rand.Rand, row, col int) int { return map[bool]int{true: 1 + row%4}[col == row*7%64] },
	"asymmetric": func(_ *rand.Rand, row, col int) int { return (row*3 + col*col + col/5) % 5 },
}

// digitKinds are ways to choose an activation for P digits.
var digitKinds = map[string]func(r *rand.Rand, planes, col int) int32{
	"random": func(r *rand.Rand, planes, _ int) int32 { return int32(r.IntN(1<<(8*planes-1))) - 1<<(8*planes-2) },
	// NUMERICS.md, section 4: the limit, all digits 127, holds for both signs.
	"lowest":  func(_ *rand.Rand, planes, _ int) int32 { return -[]int32{0, 127, 32639, 8355711}[planes] },
	"highest": func(_ *rand.Rand, planes, _ int) int32 { return []int32{0, 127, 32639, 8355711}[planes] },
	"-128":    func(_ *rand.Rand, planes, _ int) int32 { return -[]int32{0, 127, 32384, 8290432}[planes] }, // all digits but the top one
	"both": func(_ *rand.Rand, planes, col int) int32 {
		return []int32{0, 127, 32639, 8355711}[planes] * int32(1-2*(col/3%2))
	},
	"ramp": func(_ *rand.Rand, planes, col int) int32 {
		return int32(col+1) * []int32{0, 1, 250, 60000}[planes] % 127
	},
	// Sums of four have the largest lower digits (see the tables of avx2).
	"fullest": func(_ *rand.Rand, planes, col int) int32 {
		return []int32{0, 120, 31744, 8257536}[planes] - int32(col%4/3)
	},
}

// testMatrix returns rows x cols weights of a kind, tight in their planes.
func testMatrix(rows, cols int, kind func(r *rand.Rand, row, col int) int) *ternary.Matrix {
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	stride := (cols + 7) / 8
	m := &ternary.Matrix{Rows: rows, Cols: cols, ColsPad: cols, Stride: stride,
		BP: make([]byte, rows*stride), BN: make([]byte, rows*stride), BR: make([]byte, rows*stride)}
	for r := range rows {
		for c := range cols {
			w, at, bit := kind(rng, r, c), r*stride+c/8, byte(1)<<(c%8)
			if w == 1 || w == 3 {
				m.BP[at] |= bit
			}
			if w == 2 || w == 4 {
				m.BN[at] |= bit
			}
			if w > 2 {
				m.BR[at] |= bit
			}
		}
	}
	return m
}

// testDigits returns activations of cols columns and their digits in whole
// blocks, [blocks][P][32].
func testDigits(cols, planes int, kind func(r *rand.Rand, planes, col int) int32) (q []int32, x []int8) {
	rng := rand.New(rand.NewPCG(uint64(cols), uint64(planes)))
	blocks := roundUp(cols, blockCols) / blockCols
	q, x = make([]int32, cols), make([]int8, blocks*planes*blockCols)
	for c := range q {
		q[c] = kind(rng, planes, c)
		v := q[c]
		for p := range planes {
			d := int8(v)
			x[(c/blockCols*planes+p)*blockCols+c%blockCols] = d
			v = (v - int32(d)) >> 8
		}
		if v != 0 {
			panic(fmt.Sprintf("%d has more than %d digits", q[c], planes))
		}
	}
	return q, x
}

// wantSums are the values of a tile's sums by definition, from the weights
// themselves and the activations.
func wantSums(m *ternary.Matrix, l *linear, x []int32) []int64 {
	sums := make([]int64, 2*l.rows)
	for r := range l.rows {
		for c, x := range x {
			t, q := int64(1), int64(1) // the codes of a weight 0
			if r < m.Rows {
				at, bit := r*m.Stride+c/8, byte(1)<<(c%8)
				w := int64(0)
				if m.BP[at]&bit != 0 {
					w = 1
				} else if m.BN[at]&bit != 0 {
					w = -1
				}
				t, q = 1+w, 1+w
				if m.BR[at]&bit != 0 {
					q = 1 - w
				}
			}
			sums[r] += t * int64(x)
			sums[l.rows+r] += q * int64(x)
		}
	}
	return sums
}

// testCols has lengths around blocks, around where 16-bit sums must be put
// into 32 bits, and those of real models.
var testCols = []int{1, 31, 32, 33, 64, 95, 96, 127, 128, 160, 224, 256, 257, 480, 512, 520, 1000, 1024, 1056, 2048, 2080, 3072, 4128}

func TestDot(t *testing.T) {
	eachLinear(t, func(t *testing.T, l *linear) {
		for kind, weight := range weightKinds {
			for digits, digit := range digitKinds {
				for i, cols := range testCols {
					m := testMatrix(l.rows-i%2*(l.rows/3), cols, weight) // some tiles lack rows
					blocks := roundUp(cols, blockCols) / blockCols
					w, wLives := guarded[byte](blocks*12*l.rows, 0xa5)
					if !l.arrange(w, m, 0, l.rows, blocks) {
						t.Fatalf("%s weights, %d columns: not valid", kind, cols)
					}
					q, x := testDigits(cols, l.planes, digit)
					x, more, xLives := testForm(l, x)
					sums, lives := guarded[int32](2*l.planes*l.rows, 0x5a5a5a5a)
					l.single(sums, w, x, blocks)
					if got, want := l.values(sums, more), wantSums(m, l, q); !slices.Equal(got, want) || !lives() || !wLives() || !xLives() {
						t.Fatalf("%s weights, %s digits, %d columns: %v, want %v (canaries live: %t, %t, %t)", kind, digits, cols, got, want, lives(), wLives(), xLives())
					}
				}
			}
		}
	})
}

// testForm is formOf between canaries.
func testForm(l *linear, x []int8) (formed []int8, more int64, lives func() bool) {
	if l.form == nil {
		return x, 0, func() bool { return true }
	}
	blocks := len(x) / l.planes / blockCols
	formed, lives = guarded[int8](blocks*l.formBytes, -77)
	return formed, l.form(formed, x, blocks), lives
}

// A weight of the wrong row or column, of either plane, must show, and what
// contradicts itself be refused wherever it is.
func TestArrange(t *testing.T) {
	eachLinear(t, func(t *testing.T, l *linear) {
		const cols = 75
		blocks := roundUp(cols, blockCols) / blockCols
		w, first := make([]byte, blocks*12*l.rows), make([]byte, blocks*12*l.rows)
		for _, kind := range weightKinds {
			big := testMatrix(3*l.rows-1, cols, kind)
			for tile := range 3 { // of a matrix as by itself
				at := tile * l.rows
				part := *big
				part.Rows = min(l.rows, big.Rows-at)
				part.BP, part.BN, part.BR = big.BP[at*big.Stride:], big.BN[at*big.Stride:], big.BR[at*big.Stride:]
				if !l.arrange(w, big, at, l.rows, blocks) || !l.arrange(first, &part, 0, l.rows, blocks) || !slices.Equal(w, first) {
					t.Fatalf("tile %d differs from its rows", tile)
				}
			}
		}
		for r := range l.rows {
			for c := range blocks * blockCols {
				m := testMatrix(l.rows, cols, weightKinds["all 0"])
				m.Stride = blocks * blockCols / 8
				m.BP, m.BN, m.BR = make([]byte, l.rows*m.Stride), make([]byte, l.rows*m.Stride), make([]byte, l.rows*m.Stride)
				at, bit := r*m.Stride+c/8, byte(1)<<(c%8)
				valid := func() bool { return l.arrange(w, m, 0, l.rows, blocks) }
				m.BR[at] = bit
				if valid() {
					t.Fatalf("a magnitude of weight 0 is taken, row %d, column %d", r, c)
				}
				m.BP[at] = bit
				if valid() != (c < cols) {
					t.Fatalf("row %d, column %d of %d: valid is %t", r, c, cols, c >= cols)
				}
				m.BN[at] = bit
				if valid() {
					t.Fatalf("both signs are taken, row %d, column %d", r, c)
				}
			}
		}
	})
}

func TestExpand(t *testing.T) {
	eachLinear(t, func(t *testing.T, l *linear) {
		if l.expand == nil {
			t.Skip("has no codes")
		}
		for kind, weight := range weightKinds {
			for _, cols := range []int{32, 33, 64, 256, 544} {
				m := testMatrix(l.rows, cols, weight)
				blocks := roundUp(cols, blockCols) / blockCols
				w := make([]byte, blocks*12*l.rows)
				l.arrange(w, m, 0, l.rows, blocks)
				got, lives := guarded[byte](blocks*64*l.rows, 0xa5)
				l.expand(got, w, blocks)
				want := make([]byte, len(got))
				arrangeCodes(w, m, 0, l.rows, blocks)
				expandGeneric(want, w, blocks)
				if !slices.Equal(got, want) || !lives() {
					t.Fatalf("%s weights, %d columns: differs (canaries live: %t)", kind, cols, lives())
				}
			}
		}
	})
}

func TestMany(t *testing.T) {
	eachLinear(t, func(t *testing.T, l *linear) {
		for kind, weight := range weightKinds {
			for _, cols := range []int{32, 33, 64, 256, 512, 544, 2080, 2400} {
				m := testMatrix(l.rows, cols, weight)
				blocks := roundUp(cols, blockCols) / blockCols
				w, wLives := guarded[byte](blocks*12*l.rows, 0xa5)
				l.arrange(w, m, 0, l.rows, blocks)
				counts, few := []int{1, 2, 3, 4, 5, 7, 8, 12, 13, 17}, []int{2, 5}
				if l.dot == nil { // around tiles and pairs of them
					counts, few = []int{1, 2, 7, 16, 17, 32, 33}, []int{5, 19}
				}
				if cols > 1000 {
					counts = few
				}
				for _, columns := range counts {
					stride := blocks*l.formBytes + 96
					x := make([]int8, columns*stride)
					size := 2 * l.planes * l.rows
					sums, lives := guarded[int32](columns*size, 77)
					scratch, scratchLives := guarded[byte](l.scratch(columns), 0x5a)
					qs, more := make([][]int32, columns), make([]int64, columns)
					for c := range columns {
						name := []string{"random", "lowest", "highest", "ramp", "-128"}[c%5]
						q, col := testDigits(cols, l.planes, digitKinds[name])
						col, more[c] = l.formOf(col)
						copy(x[c*stride:], col)
						qs[c] = q
					}
					l.many(sums, w, x, blocks, columns, stride, scratch)
					for c, q := range qs {
						if got, want := l.values(sums[c*size:][:size], more[c]), wantSums(m, l, q); !slices.Equal(got, want) || !lives() || !wLives() || !scratchLives() {
							t.Fatalf("%s weights, %d columns of weights, column %d of %d: %v, want %v (canaries live: %t, %t, %t)", kind, cols, c, columns, got, want, lives(), wLives(), scratchLives())
						}
					}
				}
			}
		}
	})
}

func TestFinish(t *testing.T) {
	eachLinear(t, func(t *testing.T, l *linear) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 700 {
			sums := make([]int32, 2*l.planes*l.rows)
			const half = codeCols * 128
			for r := range sums {
				sums[r] = int32(rng.IntN(half>>(i%31)+1)) * int32(1-2*rng.IntN(2))
				if i%50 == 0 {
					sums[r] = []int32{2 * half / 2, -half, 0, 1, -1}[rng.IntN(5)]
				}
			}
			for r := range l.planes * l.rows { // T' + Q' is even
				sums[l.planes*l.rows+r] += (sums[r] + sums[l.planes*l.rows+r]) & 1
			}
			lo, hi := make([]float32, l.rows), make([]float32, l.rows)
			for r := range lo {
				lo[r], hi[r] = rng.Float32()-0.3, -rng.Float32()*0x1p-20
			}
			before, after := float32(math.Ldexp(1, -i%60)), float32(1)
			if i%4 == 0 {
				before, after = 1, rng.Float32()
			}
			xsum := int64(rng.Uint64()>>(24+i%40)) - 1<<20
			y, lives := guarded[float32](l.rows, -7)
			l.finish(y, sums, lo, hi, l.planes, xsum, before, after)
			want := make([]float32, l.rows)
			finishGeneric(want, sums, lo, hi, l.planes, xsum, before, after)
			equalBits(t, fmt.Sprintf("case %d", i), y, want)
			if !lives() {
				t.Fatal("canary died")
			}
		}
	})
}

func TestInt8Dot(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, blocks := range []int{1, 2, 3, 7, 8, 32, 33, 65, 129} {
			for planes := 1; planes <= 3; planes++ {
				for name, digit := range digitKinds {
					rows := 1 + blocks%12 // 1 to 5, and more
					n := blocks * blockCols
					stride := n + 3
					w := make([]int8, rows*stride)
					for i := range w {
						w[i] = int8(rng.Uint32())
						if i/stride == rows-1 {
							w[i] = -128
						}
					}
					q, x := testDigits(n, planes, digit)
					packed, packedLives := guarded[byte](blocks*k.int8Bytes(planes), 0xa5)
					k.int8Pack(packed, x, planes, blocks)
					sums, lives := guarded[int64](rows, -1)
					k.int8Dot(sums, w, stride, packed, planes, blocks)
					for r := range rows {
						var want int64
						for c, v := range q {
							want += int64(w[r*stride+c]) * int64(v)
						}
						if sums[r] != want || !lives() || !packedLives() {
							t.Fatalf("%d blocks, %d planes, %s, row %d: %d, want %d (canaries live: %t, %t)", blocks, planes, name, r, sums[r], want, lives(), packedLives())
						}
					}
				}
			}
		}
	})
}

// equalBits compares bits, but any NaN equals any other.
func equalBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: element %d is %g (0x%08x), want %g (0x%08x)", what, i, got[i], g, want[i], w)
		}
	}
}
