package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"npack/ternary"
)

// SelfTest runs every function of the kernels of that name ("" being the best
// for this processor) on a few small inputs and compares each result, bit for
// bit, with the definition. No input is symmetric, so that planes, digits, rows
// or lanes in the wrong place show. It takes a few milliseconds; the error names
// the functions that differ.
//
// It is for the machine at hand: an emulator, a hypervisor or a processor that
// computes differently. The tests of this package are for the kernels.
func SelfTest(kernel string) error {
	k, err := choose(kernel)
	if err != nil {
		return err
	}
	return k.selfTest()
}

func (k *kernels) selfTest() error {
	var differ []string
	for _, part := range selfTests {
		if !part.equal(k, k.vec, &generic, generic.vec) {
			differ = append(differ, part.name)
		}
	}
	if differ != nil {
		return fmt.Errorf("kernels %q do not compute what they should on this processor: %s", k.name, strings.Join(differ, ", "))
	}
	return nil
}

// selfTests compare functions of k and v with those of the definition d and e.
var selfTests = []struct {
	name  string
	equal func(k *kernels, v *vectors, d *kernels, e *vectors) bool
}{
	{"expand", compareLinears(func(l *linear) bool {
		if l.expand == nil {
			return true
		}
		m, w := selfTile(l)
		codes, got, want := make([]byte, len(w)), make([]byte, selfBlocks*64*l.rows), make([]byte, selfBlocks*64*l.rows)
		l.expand(got, w, selfBlocks)
		arrangeCodes(codes, m, 0, l.rows, selfBlocks)
		expandGeneric(want, codes, selfBlocks)
		return slices.Equal(got, want)
	})},
	{"dot", compareLinears(func(l *linear) bool {
		if l.dot == nil {
			return true
		}
		m, w := selfTile(l)
		x := selfDigits(l.planes)
		got := make([]int32, 2*l.planes*l.rows)
		formed, more := l.formOf(x)
		l.dot(got, w, formed, selfBlocks)
		return slices.Equal(l.values(got, more), selfSums(m, l, x))
	})},
	{"many", compareLinears(func(l *linear) bool {
		m, w := selfTile(l)
		for _, columns := range []int{7, 19} {
			// Column c begins c blocks later: all differ.
			x, stride := selfDigits(l.planes), l.planes*blockCols
			x = append(x, x[:columns*stride]...)
			var all []int8
			more := make([]int64, columns)
			for c := range columns {
				var formed []int8
				formed, more[c] = l.formOf(x[c*stride:][:selfBlocks*stride])
				all = append(all, formed...)
			}
			size := 2 * l.planes * l.rows
			got := make([]int32, columns*size)
			l.many(got, w, all, selfBlocks, columns, selfBlocks*l.formBytes, make([]byte, l.scratch(columns)))
			for c := range columns {
				if !slices.Equal(l.values(got[c*size:][:size], more[c]), selfSums(m, l, x[c*stride:][:selfBlocks*stride])) {
					return false
				}
			}
		}
		return true
	})},
	{"inPlace", compareLinears(func(l *linear) bool {
		if l.inPlace == nil || !l.inPlace.present() {
			return true
		}
		m, _ := selfTile(l)
		x := selfDigits(l.planes)
		formed, got := make([]int8, inPlaceBytes(l.planes, selfBlocks)), make([]int32, 2*l.planes*l.rows)
		l.inPlace.form(formed, x, l.planes, selfBlocks)
		l.inPlace.dot(got, m, 0, formed)
		return slices.Equal(l.values(got, 0), selfSums(m, l, x))
	})},
	{"finish", compareLinears(func(l *linear) bool {
		rng := selfRandom(l.planes)
		sums := make([]int32, 2*l.planes*l.rows)
		for i := range sums {
			sums[i] = int32(rng.Uint32()) >> 4 &^ 1 // the definition wants even T+Q
		}
		lo, hi := selfFloats(20, l.rows, 8), selfFloats(21, l.rows, 8)
		got, want := make([]float32, l.rows), make([]float32, l.rows)
		l.finish(got, sums, lo, hi, l.planes, -123457, 0x1p-9, 0.75)
		finishGeneric(want, sums, lo, hi, l.planes, -123457, 0x1p-9, 0.75)
		return equalFloats(got, want)
	})},
	{"int8Dot", func(k *kernels, _ *vectors, d *kernels, _ *vectors) bool {
		return eachPlanes(func(planes int) bool {
			const rows, stride = 5, selfBlocks*blockCols + 3
			rng, x := selfRandom(planes), selfDigits(planes)
			w := make([]int8, rows*stride)
			for i := range w {
				w[i] = int8(rng.Uint32())
			}
			sums := func(k *kernels) []int64 {
				packed := make([]byte, selfBlocks*k.int8Bytes(planes))
				k.int8Pack(packed, x, planes, selfBlocks)
				s := make([]int64, rows)
				k.int8Dot(s, w, stride, packed, planes, selfBlocks)
				return s
			}
			return slices.Equal(sums(k), sums(d))
		})
	}},
	{"squares", func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		return eachLength(func(n int) bool {
			var got, want [256]float32
			v.squares(&got, selfFloats(1, n, 30))
			e.squares(&want, selfFloats(1, n, 30))
			return equalFloats(got[:], want[:])
		})
	}},
	{"normScale", compareFloats(func(v *vectors, y []float32) {
		v.normScale(y, selfFloats(1, len(y), 40), selfFloats(2, len(y), 8), 0.37)
	})},
	{"absMax", func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		return eachLength(func(n int) bool { x := selfFloats(3, n, 20); return v.absMax(x) == e.absMax(x) })
	}},
	{"quantize", func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		return eachPlanes(func(planes int) bool {
			const n = selfBlocks * blockCols
			rng, x := selfRandom(planes), make([]float32, n)
			for i := range x { // half steps are ties
				x[i] = float32(rng.IntN(4*selfLimit[planes])-2*selfLimit[planes]) / 2 * 0x1p-10
			}
			got, want := make([]int8, n*planes), make([]int8, n*planes)
			return v.quantize[planes](got, x, 0x1p10) == e.quantize[planes](want, x, 0x1p10) && slices.Equal(got, want)
		})
	}},
	{"siluMul", compareFloats(func(v *vectors, y []float32) { v.siluMul(y, selfFloats(4, len(y), 6), selfFloats(5, len(y), 50)) })},
	{"add", compareFloats(func(v *vectors, y []float32) { copy(y, selfFloats(6, len(y), 5)); v.add(y, selfFloats(7, len(y), 5)) })},
	{"toHalf", func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		return eachLength(func(n int) bool {
			got, want := make([]uint16, n), make([]uint16, n)
			v.toHalf(got, selfFloats(8, n, 15))
			e.toHalf(want, selfFloats(8, n, 15))
			return slices.Equal(got, want)
		})
	}},
	{"fromHalf", compareFloats(func(v *vectors, y []float32) { v.fromHalf(y, selfHalves(len(y))) })},
	{"fromInt8", compareFloats(func(v *vectors, y []float32) {
		q := make([]int8, len(y))
		for i := range q {
			q[i] = int8(i*31 + i/7)
		}
		v.fromInt8(y, q, 0.0371)
	})},
	{"rotate", func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		return eachLength(func(n int) bool {
			n -= 3 // any length is right
			cos, sin := selfFloats(9, n, 1), selfFloats(10, n, 1)
			got, want := selfFloats(11, 2*n, 3), selfFloats(11, 2*n, 3)
			v.rotate(got[:n], got[n:], cos, sin)
			e.rotate(want[:n], want[n:], cos, sin)
			return equalFloats(got, want)
		})
	}},
	{"scores", compareKeys(func(v *vectors, q, keys []float32, n int) []float32 {
		s := make([]float32, n)
		v.scores(s, q, keys, 0.088)
		return s
	})},
	{"softmax", compareChunks(func(v *vectors, p *[64]float32) {
		m, l, finite := v.softmax(p, 51)
		p[60], p[61], p[62] = m, l, map[bool]float32{true: 1}[finite] // where zeros are
	})},
	{"mix", compareKeys(func(v *vectors, q, keys []float32, n int) []float32 {
		o := make([]float32, len(q))
		v.mix(o, selfFloats(12, n, 3), keys)
		return o
	})},
	{"addScaled", compareFloats(func(v *vectors, y []float32) {
		copy(y, selfFloats(13, len(y), 5))
		v.addScaled(y, selfFloats(14, len(y), 5), 0.77)
	})},
	{"scale", compareFloats(func(v *vectors, y []float32) { copy(y, selfFloats(15, len(y), 5)); v.scale(y, 1.3) })},
	{"scoresHalf", compareHalves(func(v *vectors, q []float32, kv []uint16, heads, n int) []float32 {
		s := make([]float32, heads*64)
		v.scoresHalf(s, q, kv, kv, len(q)/heads, 0.088)
		var used []float32
		for h := range heads {
			used = append(used, s[h*64:][:n]...)
		}
		return used
	}, func(e *vectors, q, kv []float32, n, _ int) []float32 {
		s := make([]float32, n)
		e.scores(s, q, kv, 0.088)
		return s
	})},
	{"mixHalf", compareHalves(func(v *vectors, q []float32, kv []uint16, heads, n int) []float32 {
		o := make([]float32, len(q))
		v.mixHalf(o, selfFloats(16, heads*64, 3), kv, kv, len(q)/heads)
		return o
	}, func(e *vectors, q, kv []float32, n, head int) []float32 {
		o := make([]float32, len(q))
		e.mix(o, selfFloats(16, (head+1)*64, 3)[head*64:][:n], kv)
		return o
	})},
}

// compareLinears holds the linears of a set, for each P, to a definition.
func compareLinears(equal func(l *linear) bool) func(*kernels, *vectors, *kernels, *vectors) bool {
	return func(k *kernels, _ *vectors, _ *kernels, _ *vectors) bool {
		return eachPlanes(func(planes int) bool {
			l := k.linear[planes]
			return equal(l) && (l.wide == nil || equal(l.wide))
		})
	}
}

// compareFloats compares what both sets write into y, for some lengths.
func compareFloats(f func(v *vectors, y []float32)) func(*kernels, *vectors, *kernels, *vectors) bool {
	return func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		return eachLength(func(n int) bool {
			got, want := make([]float32, n), make([]float32, n)
			f(v, got)
			f(e, want)
			return equalFloats(got, want)
		})
	}
}

// compareChunks compares what both sets make of a chunk of scores.
func compareChunks(f func(v *vectors, p *[64]float32)) func(*kernels, *vectors, *kernels, *vectors) bool {
	return func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		got, want := [64]float32(selfFloats(17, 64, 4)), [64]float32(selfFloats(17, 64, 4))
		f(v, &got)
		f(e, &want)
		return equalFloats(got[:], want[:])
	}
}

// compareKeys compares what both sets make of a vector and n others.
func compareKeys(f func(v *vectors, q, keys []float32, n int) []float32) func(*kernels, *vectors, *kernels, *vectors) bool {
	return func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		for _, dim := range []int{16, 80, 128} {
			for _, n := range []int{1, 7, 64} {
				q, keys := selfFloats(18, dim, 3), selfFloats(19, n*dim, 3)
				if !equalFloats(f(v, q, keys, n), f(e, q, keys, n)) {
					return false
				}
			}
		}
		return true
	}
}

// compareHalves compares what v makes of halves, for several heads at once,
// with what e makes of their values, for one. A set may lack these functions.
func compareHalves(f func(v *vectors, q []float32, kv []uint16, heads, n int) []float32, want func(e *vectors, q, kv []float32, n, head int) []float32) func(*kernels, *vectors, *kernels, *vectors) bool {
	return func(_ *kernels, v *vectors, _ *kernels, e *vectors) bool {
		if v.scoresHalf == nil {
			return true
		}
		for _, dim := range []int{16, 80, 128} {
			for _, n := range []int{1, 7, 64} {
				const heads = 3
				q, kv, kv32 := selfFloats(18, heads*dim, 3), selfHalves(n*dim), make([]float32, n*dim)
				e.fromHalf(kv32, kv)
				got := f(v, q, kv, heads, n)
				for h := range heads {
					w := want(e, q[h*dim:][:dim], kv32, n, h)
					if !equalFloats(got[h*len(w):][:len(w)], w) {
						return false
					}
				}
			}
		}
		return true
	}
}

// selfBlocks is a row of odd length, behind the loops that take several blocks.
const selfBlocks = 33

// selfLimit is the largest activation of P digits.
var selfLimit = [4]int{1: 127, 2: 32639, 3: 8355711}

func eachPlanes(f func(planes int) bool) bool { return f(1) && f(2) && f(3) }

// eachLength takes lengths around those of vectors and lanes.
func eachLength(f func(n int) bool) bool { return f(32) && f(96) && f(288) && f(544) }

func selfRandom(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) }

// selfFloats returns n floats up to 2^spread and down to 2^-spread, some below
// the bounds of keep.
func selfFloats(seed, n, spread int) []float32 {
	rng := selfRandom(seed)
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Ldexp(float64(rng.Float64())-0.4, rng.IntN(2*spread+1)-spread))
		if rng.IntN(9) == 0 {
			x[i] *= 0x1p-52
		}
	}
	return x
}

// selfHalves returns n halves that are finite.
func selfHalves(n int) []uint16 {
	rng := selfRandom(n)
	h := make([]uint16, n)
	for i := range h {
		h[i] = uint16(rng.Uint32())
		if h[i]>>10&31 >= 20 { // too large for sums
			h[i] &^= 1 << 14
		}
	}
	return h
}

// selfDigits returns activations of P digits, [blocks][P][32].
func selfDigits(planes int) []int8 {
	rng := selfRandom(planes)
	x := make([]int8, selfBlocks*planes*blockCols)
	for i := range x {
		x[i] = int8(rng.Uint32())
	}
	copy(x, []int8{-128, 127, -128, -128, 127, 1, 0, -1})
	for i, d := range x {
		if top := i/blockCols%planes == planes-1; top {
			x[i] = max(d, -127)
		}
	}
	return x
}

// formOf returns the activations x [blocks][P][32] as dot wants them, and by how
// much that makes its sums too large.
func (l *linear) formOf(x []int8) (formed []int8, more int64) {
	if l.form == nil {
		return x, 0
	}
	blocks := len(x) / l.planes / blockCols
	formed = make([]int8, blocks*l.formBytes)
	return formed, l.form(formed, x, blocks)
}

// values returns what sums [2][P][R] stand for, [2][R], less what they are too
// large by.
func (l *linear) values(sums []int32, more int64) []int64 {
	v := make([]int64, 2*l.rows)
	for i := range v {
		for p, at := 0, i/l.rows*l.planes*l.rows+i%l.rows; p < l.planes; p++ {
			v[i] += int64(sums[at+p*l.rows]) << (8 * p)
		}
		v[i] -= more
	}
	return v
}

// selfTile returns a matrix of R rows and its tile.
func selfTile(l *linear) (*ternary.Matrix, []byte) {
	const cols = selfBlocks * blockCols
	rng := selfRandom(l.rows)
	plane := func() []byte { return make([]byte, l.rows*cols/8) }
	m := &ternary.Matrix{Rows: l.rows, Cols: cols, ColsPad: cols, Stride: cols / 8, BP: plane(), BN: plane(), BR: plane()}
	for i := range m.BP {
		r := rng.Uint32()
		m.BP[i] = byte(r & (r >> 8))
		m.BN[i] = byte(r&^(r>>8)) & byte(rng.Uint32())
		m.BR[i] = (m.BP[i] | m.BN[i]) & byte(r>>16)
	}
	w := make([]byte, selfBlocks*12*l.rows)
	l.arrange(w, m, 0, l.rows, selfBlocks)
	return m, w
}

// selfSums are the values of a tile's sums by definition, from the weights
// themselves.
func selfSums(m *ternary.Matrix, l *linear, x []int8) []int64 {
	sums := make([]int64, 2*l.rows)
	for r := range l.rows {
		for c := range m.Cols {
			at, bit := r*m.Stride+c/8, c%8
			t := int64(m.BP[at]>>bit&1) - int64(m.BN[at]>>bit&1)
			q := t * (1 - 2*int64(m.BR[at]>>bit&1))
			x := int64(activation(x, l.planes, c/blockCols, c%blockCols))
			sums[r] += (t + 1) * x
			sums[l.rows+r] += (q + 1) * x
		}
	}
	return sums
}

func equalFloats(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}
