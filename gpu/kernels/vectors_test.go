package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"npack/gpu"
	"npack/gpu/kernels"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

const eps = 1e-6

// normed is the norm of NUMERICS.md, 5, in plain Go.
func normed(x, g []float32, inv float32) []float32 {
	var lanes [256]float32
	y := make([]float32, len(x))
	for c, v := range x {
		y[c] = reference.Keep(v, 50)
		lanes[c%256] = add(lanes[c%256], mul(y[c], y[c]))
	}
	r := reference.RSqrt(add(mul(reference.Fold(lanes[:]), inv), eps))
	for c, v := range y {
		y[c] = reference.Keep(mul(mul(v, r), g[c]), 50)
	}
	return y
}

// randomVector has magnitudes of a few sizes, some values of 0 and some below 2^-50.
func randomVector(r *rand.Rand, n int, size float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch r.IntN(16) {
		case 0:
		case 1:
			x[i] = float32(math.Ldexp(r.NormFloat64(), -55))
		case 2: // about where keep_50 begins
			x[i] = []float32{0x1p-50, -0x1p-50, math.Nextafter32(0x1p-50, 0), -math.Nextafter32(0x1p-50, 0), 0x1.01p-50}[r.IntN(5)]
		default:
			x[i] = float32(r.NormFloat64() * size)
		}
	}
	return x
}

// checkFixed compares what a kernel made of columns with the reference's fixed point.
func (c *card) checkFixed(what string, q, xs gpu.Arg, want [][]float32, planes, tiles, flags int) {
	c.t.Helper()
	ints := make([][]int32, len(want))
	scales := make([]float32, len(want))
	for i, x := range want {
		ints[i] = make([]int32, len(x))
		var ok bool
		if flags&kernels.QuantBitNet != 0 {
			scales[i], ok = reference.QuantizeBitNet(ints[i], x)
		} else {
			scales[i], ok = reference.Quantize(ints[i], x, backend.Activations(planes))
		}
		if !ok {
			c.t.Fatal("not finite")
		}
	}
	equal(c.t, what+": scales", c.floats(xs), scales)
	if flags&kernels.QuantBits != 0 {
		equal(c.t, what+": bits", c.words(q), packBits(ints, planes, tiles))
		return
	}
	// Slots that no column has keep what they held.
	got, packed := c.words(q), packDigits(ints, planes, tiles)
	for i := range got {
		if slot := i/(tiles*512)*8 + i/16%8; slot >= len(want)*planes {
			got[i] = 0
		}
	}
	equal(c.t, what+": digits", got, packed)
}

func quantFlags(capability int) []int {
	if kernels.HasMMA(capability) {
		return []int{0, kernels.QuantBits}
	}
	return []int{0}
}

// quantRoom makes a buffer for the digits, or bits, of n columns.
func (c *card) quantRoom(n, planes, tiles, flags int) gpu.Arg {
	if flags&kernels.QuantBits != 0 {
		return c.room(int(kernels.BitsBytes(n, planes, tiles)) / 4)
	}
	return c.room(int(kernels.DigitsBytes(n, planes, tiles)) / 4)
}

func TestNormQuant(t *testing.T) { texts(t, checkNormQuant) }

func checkNormQuant(t testing.TB, c *card, capability int) {
	for i, n := range []int{1, 2, 31, 255, 256, 257, 511, 513, 1100} {
		for planes := 1; planes <= 3; planes++ {
			r := random(uint64(n))
			stride, tiles := n+1, kernels.Tiles(n)
			// The last is too small to be anything.
			sizes := []float64{1, 1e-3, 1e4, 0x1p-60}
			var x []float32
			for _, s := range sizes {
				x = append(append(x, randomVector(r, n, s)...), float32(math.NaN()))
			}
			g := make([]float32, n)
			for j := range g {
				g[j] = float32(1 + 0.3*r.NormFloat64())
			}
			inv := float32(1 / float64(n))
			list := []int32{2, 0, 3, 1}[:1+i%4]
			for _, flags := range quantFlags(capability) {
				flags |= kernels.QuantList
				if planes == 1 && i%2 == 0 {
					flags |= kernels.QuantBitNet
				}
				var want [][]float32
				for _, col := range list {
					want = append(want, normed(x[int(col)*stride:][:n], g, inv))
				}
				xb, gb, lb := upload(c, x), upload(c, g), upload(c, list)
				q, xs := c.quantRoom(len(list), planes, tiles, flags), c.room(len(list))
				amax, fault := upload(c, make([]uint32, len(list))), upload(c, []int32{math.MaxInt32})
				c.launch("norm_quant", len(list), 1, 1, xb, gb, lb, q, xs, amax, fault,
					num(n), num(tiles), num(stride), real32(inv), real32(eps), num(planes), num(flags), num(77))
				what := fmt.Sprintf("%d values, %d planes, flags %d", n, planes, flags)
				c.checkFixed(what, q, xs, want, planes, tiles, flags)
				equal(t, what+": fault", c.words(fault), []uint32{math.MaxInt32})
				equal(t, what+": amax", c.words(amax), make([]uint32, len(list)))
				c.free(xb, gb, lb, q, xs, amax, fault)
			}
		}
	}
}

// TestNormSums compares norms with many vectors: one vector's root hides the last bit of
// its sum, and so a wrong order of addition.
func TestNormSums(t *testing.T) { texts(t, checkNormSums) }

func checkNormSums(t testing.TB, c *card, capability int) {
	const n, columns, planes = 520, 64, 3
	r := random(5)
	tiles := kernels.Tiles(n)
	x, g := make([]float32, n*columns), make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for i := range g {
		g[i] = 1
	}
	inv := float32(1 / float64(n))
	var want [][]float32
	for i := range columns {
		want = append(want, normed(x[i*n:][:n], g, inv))
	}
	q, xs := c.quantRoom(columns, planes, tiles, 0), c.room(columns)
	c.launch("norm_quant", columns, 1, 1, upload(c, x), upload(c, g), gpu.Arg{}, q, xs, c.room(columns), c.room(1),
		num(n), num(tiles), num(n), real32(inv), real32(eps), num(planes), num(0), num(0))
	c.checkFixed("64 columns", q, xs, want, planes, tiles, 0)
}

func TestQuant(t *testing.T) { texts(t, checkQuant) }

func checkQuant(t testing.TB, c *card, capability int) {
	for _, n := range []int{1, 63, 257, 1024, 1025, 2100} {
		for planes := 1; planes <= 3; planes++ {
			r := random(uint64(n))
			stride, tiles := n+2, kernels.Tiles(n)
			// Sizes at which the exponent steps, and at which all is 0.
			tops := []float32{1, math.Nextafter32(1, 0), math.Nextafter32(2, 0), 0x1p-40, math.Nextafter32(0x1p-40, 0), 3e38, 0.3,
				math.Float32frombits(0x3f7fffff), 8355711. / (1 << 23), 8355712. / (1 << 23), 32639. / (1 << 15), 32640. / (1 << 15), 127. / 128, 127.5 / 128}
			var x []float32
			var most []uint32
			var want [][]float32
			for _, top := range tops {
				v := randomVector(r, n, float64(top)/8)
				for j := range v {
					v[j] = max(-top, min(top, v[j]))
				}
				v[r.IntN(n)] = -top
				want = append(want, v)
				most = append(most, math.Float32bits(top))
				x = append(append(x, v...), float32(math.NaN()), 0)
			}
			for _, flags := range quantFlags(capability) {
				xb, mb := upload(c, x), upload(c, most)
				q, xs, fault := c.quantRoom(len(tops), planes, tiles, flags), c.room(len(tops)), upload(c, []int32{math.MaxInt32})
				c.launch("quant", (tiles+3)/4, len(tops), 1, xb, mb, q, xs, fault,
					num(n), num(tiles), num(stride), num(planes), num(flags), num(3))
				what := fmt.Sprintf("%d values, %d planes, flags %d", n, planes, flags)
				c.checkFixed(what, q, xs, want, planes, tiles, flags)
				equal(t, what+": fault", c.words(fault), []uint32{math.MaxInt32})
				c.free(xb, mb, q, xs, fault)
			}
		}
	}
}

// TestFaults gives the quantisations values that are not finite.
func TestFaults(t *testing.T) { texts(t, checkFaults) }

func checkFaults(t testing.TB, c *card, capability int) {
	const n, tiles = 300, 2
	for _, bad := range []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
		x, g := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], g[i] = float32(i)-7, 1
		}
		x[299] = bad
		for _, first := range []int32{math.MaxInt32, 3} {
			fault := upload(c, []int32{first})
			if c.wants("norm_quant") {
				c.launch("norm_quant", 1, 1, 1, upload(c, x), upload(c, g), gpu.Arg{}, c.quantRoom(1, 3, tiles, 0), c.room(1), c.room(1), fault,
					num(n), num(tiles), num(n), real32(1./n), real32(eps), num(3), num(0), num(9))
				equal(t, "norm_quant: fault", c.words(fault), []uint32{uint32(min(first, 9))})
			}
			if c.wants("quant") {
				fault = upload(c, []int32{first})
				c.launch("quant", 1, 1, 1, upload(c, x), upload(c, []uint32{math.Float32bits(bad) &^ (1 << 31)}), c.quantRoom(1, 3, tiles, 0), c.room(1), fault,
					num(n), num(tiles), num(n), num(3), num(0), num(10))
				equal(t, "quant: fault", c.words(fault), []uint32{uint32(min(first, 10))})
			}
		}
	}
}

// randomTable returns int8 rows with scales.
func randomTable(r *rand.Rand, rows, cols int) *ternary.Int8Matrix {
	m := &ternary.Int8Matrix{Rows: rows, Cols: cols, ColsPad: cols, Stride: cols}
	for i := range rows {
		for range cols {
			m.Q = append(m.Q, int8(r.IntN(256)-128))
		}
		if i == 3 {
			for c := range cols {
				m.Q[3*cols+c] = -128
			}
		}
		m.Scale = append(m.Scale, float32(r.NormFloat64()))
	}
	return m
}

// TestTable compares embeddings and the linears of int8 rows.
func TestTable(t *testing.T) { texts(t, checkTable) }

func checkTable(t testing.TB, c *card, capability int) {
	for i, cols := range []int{1, 100, 256, 300, 2050} {
		for planes := 1; planes <= 3; planes++ {
			r := random(uint64(i))
			rows, n := []int{1, 16, 33}[i%3], []int{1, 2, 8, 9, 25}[(i+planes)%5]
			m := randomTable(r, rows, cols)
			strips, tiles := kernels.Strips(rows), kernels.Tiles(cols)
			packed := make([]byte, kernels.TableBytes(strips, tiles))
			kernels.PackTable(packed, m, 0)
			table, scale := c.bytes(packed), upload(c, m.Scale)

			ids := make([]int32, n)
			want, logits := make([]float32, n*cols), make([]float32, n*rows)
			q, xs := randomColumns(r, n, cols, planes), make([]float32, n)
			for j := range ids {
				ids[j] = r.Int32N(int32(rows))
				xs[j] = float32(math.Ldexp(1, -j))
				for k, v := range m.Row(int(ids[j])) {
					want[j*cols+k] = mul(float32(v), m.Scale[ids[j]])
				}
				for row := range rows {
					var s int64
					for k, v := range m.Row(row) {
						s += int64(v) * int64(q[j][k])
					}
					logits[j*rows+row] = mul(float32(s), mul(m.Scale[row], xs[j]))
				}
			}
			if c.wants("embed") {
				x := c.room(n * cols)
				c.launch("embed", (cols+255)/256, n, 1, upload(c, ids), table, scale, x, num(tiles), num(cols), num(cols))
				equal(t, fmt.Sprintf("embedding of %d columns", cols), c.floats(x), want)
			}

			digits, xb := upload(c, packDigits(q, planes, tiles)), upload(c, xs)
			for kernel, gy := range map[string]int{"head_dot": n, "head_mma": (n*planes + 23) / 24} {
				if kernel == "head_mma" && !kernels.HasMMA(capability) || !c.wants(kernel) {
					continue
				}
				y := c.room(n * rows)
				c.launch(kernel, strips, gy, 1, table, scale, digits, xb, y, num(tiles), num(strips), num(rows), num(n), num(rows), num(planes))
				equal(t, fmt.Sprintf("%s of %d rows, %d columns, %d planes, n = %d", kernel, rows, cols, planes, n), c.floats(y), logits)
			}
		}
	}
}
