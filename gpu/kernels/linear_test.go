package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"npack/gpu"
	"npack/gpu/kernels"
	"npack/runtime/reference"
	"npack/ternary"
)

// randomMatrix returns a matrix whose weights are as the share of zeros says.
func randomMatrix(r *rand.Rand, rows, cols int, kind string) *ternary.Matrix {
	m := &ternary.Matrix{Rows: rows, Cols: cols, ColsPad: cols, Stride: (cols + 7) / 8}
	m.BP, m.BN, m.BR = make([]byte, rows*m.Stride), make([]byte, rows*m.Stride), make([]byte, rows*m.Stride)
	for i := range rows {
		m.SLo, m.SHi = append(m.SLo, float32(r.NormFloat64())), append(m.SHi, float32(r.NormFloat64()))
		m.Bias = append(m.Bias, float32(r.NormFloat64()))
		for c := range cols {
			at, bit := i*m.Stride+c/8, byte(1)<<(c%8)
			v := r.IntN(5)
			switch kind {
			case "plus":
				v = 1 + 2*(i%2)
			case "minus":
				v = 2 + 2*(i%2)
			}
			switch v {
			case 1, 3:
				m.BP[at] |= bit
			case 2, 4:
				m.BN[at] |= bit
			}
			if v > 2 {
				m.BR[at] |= bit
			}
		}
	}
	return m
}

// randomColumns returns n columns of fixed-point activations, some of them extreme.
func randomColumns(r *rand.Rand, n, cols, planes int) [][]int32 {
	q := make([][]int32, n)
	l := limit(planes)
	for i := range q {
		q[i] = make([]int32, cols)
		for c := range q[i] {
			switch i % 4 {
			case 1:
				q[i][c] = l
			case 2:
				q[i][c] = -l
			default:
				q[i][c] = r.Int32N(2*l+1) - l
			}
		}
	}
	return q
}

// sums are the exact sums of row r with the activations.
func sums(m *ternary.Matrix, r int, q []int32) (lo, hi int64) {
	for c, v := range q {
		at, bit := r*m.Stride+c/8, byte(1)<<(c%8)
		var w int64
		if m.BP[at]&bit != 0 {
			w = int64(v)
		} else if m.BN[at]&bit != 0 {
			w = -int64(v)
		}
		if m.BR[at]&bit != 0 {
			hi += w
		} else {
			lo += w
		}
	}
	return lo, hi
}

// result is NUMERICS.md, 4, for row r.
func result(m *ternary.Matrix, r int, q []int32, xs float32, flags int) float32 {
	lo, hi := sums(m, r, q)
	var y float32
	if flags&kernels.LinearBitNet != 0 {
		y = mul(add(mul(float32(lo), m.SLo[r]), mul(float32(hi), m.SHi[r])), xs)
	} else {
		y = add(mul(float32(lo), mul(m.SLo[r], xs)), mul(float32(hi), mul(m.SHi[r], xs)))
	}
	if flags&kernels.LinearBias != 0 {
		y = add(y, reference.Keep(m.Bias[r], 50))
	}
	return y
}

// linear is one way to run a ternary linear.
type linear struct {
	kernel string
	grid   func(strips, n, planes int) (x, y int)
}

func linears(capability int) []linear {
	per := func(slots, rows int) func(strips, n, planes int) (int, int) {
		return func(strips, n, planes int) (int, int) {
			return (strips + rows - 1) / rows, (n*planes + slots - 1) / slots
		}
	}
	column := func(strips, n, _ int) (int, int) { return strips, n }
	list := []linear{{"tern_dot", column}}
	if kernels.HasMMA(capability) {
		list = append(list, linear{"tern_bits", column}, linear{"tern_mma", per(24, 1)}, linear{"tern_many", per(72, 8)})
	}
	return list
}

// upload packs matrices of equal width behind each other as one.
func (c *card) matrix(parts []*ternary.Matrix, places []kernels.Place, strips int) (w, s, bias gpu.Arg) {
	tiles := kernels.Tiles(parts[0].Cols)
	planes := make([]byte, kernels.PlaneBytes(strips, tiles))
	scales, biases := make([]float32, 32*strips), make([]float32, 16*strips)
	for i, m := range parts {
		if err := kernels.PackPlanes(planes, m, 0, places[i]); err != nil {
			c.t.Fatal(err)
		}
		kernels.PackScales(scales, m, 0, places[i])
		kernels.PackBias(biases, m, 0, places[i])
	}
	return c.bytes(planes), upload(c, scales), upload(c, biases)
}

// shape is a linear to compute: rows and cols of its matrix, n columns of activations.
type shape struct {
	rows, cols, n, planes int
	kind                  string // of weights
}

// linearShapes are edge shapes, and sums as large as they get.
func linearShapes() (shapes []shape) {
	for _, cols := range []int{1, 31, 33, 255, 256, 257, 2049} {
		shapes = append(shapes, shape{17, cols, 1, 3, "random"})
	}
	for _, rows := range []int{1, 8, 9, 16, 129} {
		shapes = append(shapes, shape{rows, 70, 2, 2, "random"})
	}
	for planes := 1; planes <= 3; planes++ {
		for _, n := range []int{1, 3, 24/planes - 1, 24 / planes, 24/planes + 1, 72/planes + 1} {
			shapes = append(shapes, shape{20, 100, n, planes, "random"})
		}
		shapes = append(shapes, shape{4, 2304, 4, planes, "plus"}, shape{4, 2304, 4, planes, "minus"})
	}
	return shapes
}

// TestLinears compares all ternary linears with sums in int64, for edge shapes and
// extreme values.
func TestLinears(t *testing.T) { texts(t, checkLinears) }

func checkLinears(t testing.TB, c *card, capability int) {
	for i, s := range linearShapes() {
		r := random(uint64(i))
		m := randomMatrix(r, s.rows, s.cols, s.kind)
		q := randomColumns(r, s.n, s.cols, s.planes)
		strips, tiles := kernels.Strips(s.rows), kernels.Tiles(s.cols)
		w, scales, bias := c.matrix([]*ternary.Matrix{m}, []kernels.Place{kernels.Whole}, strips)
		xs := make([]float32, s.n)
		for j := range xs {
			xs[j] = float32(math.Ldexp(1, -j))
		}
		flags := []int{0, kernels.LinearBias, kernels.LinearAdd, kernels.LinearBitNet | kernels.LinearAdd}[i%4]
		stride := s.rows + 3
		before := make([]float32, s.n*stride)
		for j := range before {
			before[j] = float32(r.NormFloat64())
		}
		want := append([]float32(nil), before...)
		for j := range q {
			for row := range s.rows {
				y := result(m, row, q[j], xs[j], flags)
				if flags&kernels.LinearAdd != 0 {
					y = add(want[j*stride+row], y)
				}
				want[j*stride+row] = y
			}
		}
		digits, planes, scale := upload(c, packDigits(q, s.planes, tiles)), upload(c, packBits(q, s.planes, tiles)), upload(c, xs)
		for _, l := range linears(capability) {
			if !c.wants(l.kernel) {
				continue
			}
			x := digits
			if l.kernel == "tern_bits" {
				x = planes
			}
			gx, gy := l.grid(strips, s.n, s.planes)
			y, amax := upload(c, before), c.room(s.n)
			c.launch(l.kernel, gx, gy, 1, w, scales, bias, x, scale, y, amax,
				num(tiles), num(strips), num(s.rows), num(s.n), num(stride), num(s.planes), num(flags))
			equal(t, fmt.Sprintf("%s %+v", l.kernel, s), c.floats(y), want)
			c.free(y, amax)
		}
		c.free(w, scales, bias, digits, planes, scale)
	}
}

// TestMiddle compares the linears that end with what stands between gate and up and
// the next linear.
func TestMiddle(t *testing.T) { texts(t, checkMiddle) }

func checkMiddle(t testing.TB, c *card, capability int) {
	for i, flags := range []int{kernels.LinearSiLU, kernels.LinearSquareReLU | kernels.LinearBitNet} {
		for _, rows := range []int{5, 8, 65} {
			const cols, n, planes = 130, 9, 2
			r := random(uint64(100*i + rows))
			gate, up := randomMatrix(r, rows, cols, ""), randomMatrix(r, rows, cols, "")
			q := randomColumns(r, n, cols, planes)
			strips, tiles := (rows+7)/8, kernels.Tiles(cols)
			w, scales, bias := c.matrix([]*ternary.Matrix{gate, up}, []kernels.Place{kernels.Gate, kernels.Up}, strips)
			xs, before := make([]float32, n), make([]uint32, n)
			for j := range xs {
				xs[j] = float32(math.Ldexp(1, -2*j-15))
			}
			before[3] = math.Float32bits(1e9) // larger than any
			want, most := make([]float32, n*rows), append([]uint32(nil), before...)
			for j := range q {
				for row := range rows {
					g, u := result(gate, row, q[j], xs[j], flags), reference.Keep(result(up, row, q[j], xs[j], flags), 50)
					var v float32
					if flags&kernels.LinearSquareReLU != 0 {
						g = reference.Keep(max(g, 0), 50)
						v = mul(mul(g, g), u)
					} else {
						v = mul(reference.Keep(reference.SiLU(g), 50), u)
					}
					want[j*rows+row] = v
					most[j] = max(most[j], math.Float32bits(v)&^(1<<31))
				}
			}
			digits, bitPlanes, scale := upload(c, packDigits(q, planes, tiles)), upload(c, packBits(q, planes, tiles)), upload(c, xs)
			for _, l := range linears(capability) {
				if !c.wants(l.kernel) {
					continue
				}
				x := digits
				if l.kernel == "tern_bits" {
					x = bitPlanes
				}
				gx, gy := l.grid(strips, n, planes)
				y, amax := c.room(n*rows), upload(c, before)
				c.launch(l.kernel, gx, gy, 1, w, scales, bias, x, scale, y, amax,
					num(tiles), num(strips), num(rows), num(n), num(rows), num(planes), num(flags))
				equal(t, fmt.Sprintf("%s, flags %d, %d rows", l.kernel, flags, rows), c.floats(y), want)
				equal(t, fmt.Sprintf("%s, flags %d, %d rows: amax", l.kernel, flags, rows), c.words(amax), most)
			}
		}
	}
}
