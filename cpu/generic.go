package cpu

import (
	"encoding/binary"
	"math"

	"npack/runtime/reference"
)

// generic is the definition of all kernels, in plain Go.
var generic = kernels{
	name: "generic", about: "plain Go, for any processor",
	present: func() bool { return true },
	linear: placed(codeLinears(genericRows,
		[4]func([]int32, []byte, []int8, int){1: dotGeneric(1), 2: dotGeneric(2), 3: dotGeneric(3)},
		expandGeneric,
		[4]func([]int32, []byte, []int8, int, int, int){1: dotManyGeneric(1), 2: dotManyGeneric(2), 3: dotManyGeneric(3)},
		finishGeneric), func(planes int) inPlace {
		return inPlace{present: func() bool { return true }, form: formInPlaceGeneric, dot: dotInPlaceGeneric(planes), direct: 2}
	}),
	int8Bytes: func(int) int { return 4 * blockCols },
	int8Pack:  int8PackGeneric,
	int8Dot:   int8DotGeneric,
	vec:       &genericVectors,
}

const genericRows = 8

// expandGeneric works for any R, which the length of w tells.
func expandGeneric(u, w []byte, blocks int) {
	n := len(w) / blocks / 3 // 4R
	for b := range blocks {
		tile := w[b*3*n:][:3*n]
		for i := range n {
			z := tile[2*n+i]
			for half := range 2 {
				t := tile[half*n+i]
				q := t ^ z<<half&0xaa
				for s := range 4 {
					slot := u[(b*8+half*4+s)*2*n:]
					slot[i] = t >> (2 * s) & 3
					slot[n+i] = q >> (2 * s) & 3
				}
			}
		}
	}
}

// dotGeneric expands a block at a time.
func dotGeneric(planes int) func([]int32, []byte, []int8, int) {
	many := dotManyGeneric(planes)
	return func(sums []int32, w []byte, x []int8, blocks int) {
		var u [8 * 2 * 4 * genericRows]byte
		clear(sums)
		for b := range blocks {
			expandGeneric(u[:], w[b*12*genericRows:][:12*genericRows], 1)
			many(sums, u[:], x[b*planes*blockCols:], 1, 1, 0)
		}
	}
}

func dotManyGeneric(planes int) func([]int32, []byte, []int8, int, int, int) {
	return func(sums []int32, u []byte, x []int8, blocks, columns, stride int) {
		const n = 4 * genericRows // bytes of the codes of t, or of q, in a slot
		for c := range columns {
			col := sums[c*2*planes*genericRows:][:2*planes*genericRows]
			for i := range blocks * 8 * planes {
				slot, p := i/planes, i%planes
				d := x[c*stride+(slot/8*planes+p)*blockCols+slot%8*4:][:4]
				d0, d1, d2, d3 := int32(d[0]), int32(d[1]), int32(d[2]), int32(d[3])
				t, q := u[slot*2*n:][:n], u[slot*2*n+n:][:n]
				sumT, sumQ := col[p*genericRows:][:genericRows], col[(planes+p)*genericRows:][:genericRows]
				for r := range genericRows {
					a, b := t[4*r:][:4], q[4*r:][:4]
					sumT[r] += int32(a[0])*d0 + int32(a[1])*d1 + int32(a[2])*d2 + int32(a[3])*d3
					sumQ[r] += int32(b[0])*d0 + int32(b[1])*d1 + int32(b[2])*d2 + int32(b[3])*d3
				}
			}
		}
	}
}

func finishGeneric(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32) {
	rows := len(y)
	for r := range y {
		var t, q int64
		for p := planes - 1; p >= 0; p-- {
			t = t<<8 + int64(sums[p*rows+r])
			q = q<<8 + int64(sums[(planes+p)*rows+r])
		}
		l, h := float32((t+q)/2-xsum), float32((t-q)/2)
		y[r] = mul(add(mul(l, mul(lo[r], before)), mul(h, mul(hi[r], before))), after)
	}
}

// int8PackGeneric writes the activations as int32.
func int8PackGeneric(dst []byte, x []int8, planes, blocks int) {
	for b := range blocks {
		for c := range blockCols {
			binary.LittleEndian.PutUint32(dst[4*(b*blockCols+c):], uint32(activation(x, planes, b, c)))
		}
	}
}

// activation puts the digits of column c of block b together.
func activation(x []int8, planes, b, c int) int32 {
	var q int32
	for p := planes - 1; p >= 0; p-- {
		q = q<<8 + int32(x[(b*planes+p)*blockCols+c])
	}
	return q
}

func int8DotGeneric(sums []int64, w []int8, stride int, x []byte, _, blocks int) {
	for r := range sums {
		row := w[r*stride:][:blocks*blockCols]
		var s int64
		for c, v := range row {
			s += int64(v) * int64(int32(binary.LittleEndian.Uint32(x[4*c:])))
		}
		sums[r] = s
	}
}

var genericVectors = vectors{
	squares: squaresGeneric, normScale: normScaleGeneric, absMax: absMaxGeneric,
	quantize: [4]func([]int8, []float32, float32) int64{1: quantizeGeneric(1), 2: quantizeGeneric(2), 3: quantizeGeneric(3)},
	siluMul:  siluMulGeneric, add: addGeneric,
	toHalf: toHalfGeneric, fromHalf: fromHalfGeneric, fromInt8: fromInt8Generic, rotate: rotateGeneric,
	scores: scoresGeneric, mix: mixGeneric, addScaled: addScaledGeneric, scale: scaleGeneric,
	softmax: softmaxGeneric,
}

// The conversions forbid the compiler to fuse a product and a sum (Go
// specification, "Floating-point operators"); a test reads its listing.
func add(x, y float32) float32 { return float32(x + y) }
func sub(x, y float32) float32 { return float32(x - y) }
func mul(x, y float32) float32 { return float32(x * y) }

func squaresGeneric(lanes *[256]float32, x []float32) {
	clear(lanes[:])
	for c, v := range x {
		v = reference.Keep(v, 50)
		lanes[c%256] = add(lanes[c%256], mul(v, v))
	}
}

func normScaleGeneric(y, x, g []float32, r float32) {
	for c, v := range x {
		y[c] = reference.Keep(mul(mul(reference.Keep(v, 50), r), g[c]), 50)
	}
}

func absMaxGeneric(x []float32) (m uint32) {
	for _, v := range x {
		m = max(m, math.Float32bits(v)&^(1<<31))
	}
	return m
}

func quantizeGeneric(planes int) func([]int8, []float32, float32) int64 {
	return func(q []int8, x []float32, up float32) (sum int64) {
		for c, v := range x {
			n := int32(math.RoundToEven(float64(mul(v, up))))
			sum += int64(n)
			at := c/blockCols*planes*blockCols + c%blockCols
			for p := range planes {
				digit := int8(n) // the low 8 bits, sign extended
				q[at+p*blockCols] = digit
				n = (n - int32(digit)) >> 8
			}
		}
		return sum
	}
}

func siluMulGeneric(y, g, u []float32) {
	for i, v := range g {
		y[i] = mul(reference.Keep(reference.SiLU(v), 50), reference.Keep(u[i], 50))
	}
}

func addGeneric(x, y []float32) {
	for i, v := range y {
		x[i] = add(x[i], v)
	}
}

func toHalfGeneric(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = reference.F32toF16(v)
	}
}

func fromHalfGeneric(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = reference.F16toF32(v)
	}
}

func fromInt8Generic(dst []float32, src []int8, scale float32) {
	for i, v := range src {
		dst[i] = mul(float32(v), scale)
	}
}

func rotateGeneric(a, b, cos, sin []float32) {
	for i, x := range a {
		y := b[i]
		a[i] = reference.Keep(sub(mul(x, cos[i]), mul(y, sin[i])), 50)
		b[i] = reference.Keep(add(mul(y, cos[i]), mul(x, sin[i])), 50)
	}
}

func scoresGeneric(s, q, keys []float32, scale float32) {
	for j := range s {
		var lanes [16]float32
		for d, v := range keys[j*len(q):][:len(q)] {
			lanes[d%16] = add(lanes[d%16], mul(q[d], v))
		}
		s[j] = mul(reference.Fold(lanes[:]), scale)
	}
}

func mixGeneric(o, p, v []float32) {
	clear(o)
	for j, w := range p {
		for d, x := range v[j*len(o):][:len(o)] {
			o[d] = add(o[d], mul(w, x))
		}
	}
	for d, x := range o {
		o[d] = reference.Keep(x, 40)
	}
}

func addScaledGeneric(o, x []float32, w float32) {
	for d, v := range x {
		o[d] = add(o[d], mul(v, w))
	}
}

func scaleGeneric(o []float32, w float32) {
	for d, v := range o {
		o[d] = mul(v, w)
	}
}

func softmaxGeneric(s *[64]float32, n int) (m, l float32, finite bool) {
	m = s[0]
	for _, x := range s[:n] {
		if math.Float32bits(x)&infBits == infBits {
			return 0, 0, false
		}
		if x > m {
			m = x
		}
	}
	for j, x := range s[:n] {
		s[j] = reference.Exp(sub(x, m))
	}
	clear(s[n:])
	fold := *s
	return m, reference.Fold(fold[:]), true
}
