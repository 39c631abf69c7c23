package cpu

import (
	"fmt"
	"testing"

	"npack/runtime/reference"
)

// Sizes of the 8B model.
const (
	benchHidden, benchFFN       = 4096, 12288
	benchHeads, benchKV, benchD = 32, 8, 128
	benchGroup                  = benchHeads / benchKV
	benchLayers                 = 36
	benchChunk                  = 64
)

// BenchmarkVectors measures each function of each set alone, in cache.
func BenchmarkVectors(b *testing.B) {
	const h, f, d, c = benchHidden, benchFFN, benchD, benchChunk
	x, y, g := benchFloats(1, f), benchFloats(2, f), benchFloats(3, f)
	keys := benchFloats(4, c*d)
	digits, half := make([]int8, 3*f), make([]uint16, c*d)
	toHalfGeneric(half, keys)
	quants := make([]int8, c*d)
	s := benchFloats(5, c)
	p := make([]float32, c)
	o := make([]float32, d)
	var lanes [256]float32

	// elements is what a call works on, bytes what it reads and writes.
	for _, bench := range []struct {
		name            string
		elements, bytes int
		f               func(v *vectors)
	}{
		{"squares", h, 4 * h, func(v *vectors) { v.squares(&lanes, x[:h]) }},
		{"squares-head", d, 4 * d, func(v *vectors) { v.squares(&lanes, x[:d]) }},
		{"normScale", h, 12 * h, func(v *vectors) { v.normScale(y[:h], x[:h], g[:h], 0.7) }},
		{"absMax", f, 4 * f, func(v *vectors) { v.absMax(x) }},
		{"quantize1", f, 5 * f, func(v *vectors) { v.quantize[1](digits[:f], x, 100) }},
		{"quantize2", f, 6 * f, func(v *vectors) { v.quantize[2](digits[:2*f], x, 1<<14) }},
		{"quantize3", f, 7 * f, func(v *vectors) { v.quantize[3](digits, x, 1<<22) }},
		{"siluMul", f, 12 * f, func(v *vectors) { v.siluMul(y, x, g) }},
		{"add", h, 12 * h, func(v *vectors) { v.add(y[:h], x[:h]) }},
		{"toHalf", d, 6 * d, func(v *vectors) { v.toHalf(half[:d], x[:d]) }},
		{"fromHalf", c * d, 6 * c * d, func(v *vectors) { v.fromHalf(keys, half) }},
		{"fromInt8", d, 5 * d, func(v *vectors) { v.fromInt8(o, quants[:d], 0.1) }},
		{"rotate", d, 12 * d, func(v *vectors) { v.rotate(x[:d/2], x[d/2:d], y[:d/2], y[d/2:d]) }},
		{"scores", c * d, 4 * c * d, func(v *vectors) { v.scores(p, x[:d], keys, 0.088) }},
		{"mix", c * d, 4 * c * d, func(v *vectors) { v.mix(o, s, keys) }},
		{"softmax", c, 8 * c, func(v *vectors) { copy(p, s); v.softmax((*[64]float32)(p), c) }},
		{"addScaled", d, 12 * d, func(v *vectors) { v.addScaled(o, x[:d], 0.5) }},
		{"scale", d, 8 * d, func(v *vectors) { v.scale(o, 1) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			benchSets(b, func(b *testing.B, k *kernels) {
				b.SetBytes(int64(bench.bytes))
				b.ReportAllocs()
				for b.Loop() {
					bench.f(k.vec)
				}
				b.ReportMetric(float64(b.N)*float64(bench.elements)/float64(b.Elapsed().Nanoseconds()), "elements/ns")
			})
		})
	}
}

// BenchmarkTokenFloats measures all float work of one layer of the 8B model for
// one new token on one thread, with an f16 cache of that many tokens.
func BenchmarkTokenFloats(b *testing.B) {
	for _, depth := range []int{0, 8192} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			l := newBenchLayer(depth + 1)
			benchSets(b, func(b *testing.B, k *kernels) {
				b.SetBytes(int64(2 * 2 * len(l.k))) // keys and values
				b.ReportAllocs()
				for b.Loop() {
					l.run(k.vec)
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N)*benchLayers, "ms/token")
			})
		})
	}
}

// benchLayer holds the float work of a layer, in the order of NUMERICS.md.
type benchLayer struct {
	n                        int
	x, y, norm, gate, up, qk []float32
	cos                      []float32
	digits                   []int8
	k, v                     []uint16 // [benchKV][n][benchD]
	kv                       []float32
	lanes                    [256]float32
	s                        [benchGroup * benchChunk]float32
	o                        []float32             // [benchKV][chunks][benchGroup][benchD]
	m                        [benchHeads][]float32 // [chunks]
}

func newBenchLayer(n int) *benchLayer {
	l := &benchLayer{
		n: n, x: benchFloats(1, benchHidden), y: benchFloats(2, benchHidden), norm: benchFloats(3, benchHidden),
		gate: benchFloats(4, benchFFN), up: benchFloats(5, benchFFN), qk: benchFloats(6, (benchHeads+benchKV)*benchD),
		cos: benchFloats(7, benchD), digits: make([]int8, 3*benchFFN), kv: make([]float32, benchChunk*benchD),
	}
	l.k, l.v = make([]uint16, benchKV*n*benchD), make([]uint16, benchKV*n*benchD)
	for i := range l.k {
		l.k[i], l.v[i] = uint16(0x3000+i%1021), uint16(0x3000+i%509)
	}
	chunks := roundUp(n, benchChunk) / benchChunk
	l.o = make([]float32, benchHeads*chunks*benchD)
	for h := range l.m {
		l.m[h] = make([]float32, chunks)
	}
	return l
}

func (l *benchLayer) run(v *vectors) {
	normed := func(y, x []float32) {
		v.squares(&l.lanes, x)
		r := reference.RSqrt(reference.Fold(l.lanes[:])*(1/float32(len(x))) + 1e-6)
		v.normScale(y, x, l.norm[:len(x)], r)
	}
	quantized := func(x []float32) {
		v.absMax(x)
		v.quantize[3](l.digits[:3*len(x)], x, 1<<18)
	}
	normed(l.y, l.x)
	quantized(l.y)
	for h := range benchHeads + benchKV {
		x := l.qk[h*benchD:][:benchD]
		normed(x, x)
		v.rotate(x[:benchD/2], x[benchD/2:], l.cos[:benchD/2], l.cos[benchD/2:])
	}
	for h := range benchKV {
		at := (h*l.n + l.n - 1) * benchD
		v.toHalf(l.k[at:at+benchD], l.qk[(benchHeads+h)*benchD:][:benchD])
		v.toHalf(l.v[at:at+benchD], l.x[h*benchD:][:benchD])
		l.attend(v, h)
	}
	quantized(l.y)
	v.add(l.x, l.y)
	normed(l.y, l.x)
	quantized(l.y)
	v.siluMul(l.gate, l.gate, l.up)
	quantized(l.gate)
	v.add(l.x, l.y)
}

// attend mixes the values of a key/value head for its query heads into y.
func (l *benchLayer) attend(v *vectors, kvHead int) {
	const group = benchGroup
	first := kvHead * group
	chunks := len(l.m[first])
	for chunk := range chunks {
		n := min(benchChunk, l.n-chunk*benchChunk)
		at := (kvHead*l.n + chunk*benchChunk) * benchD
		k, values := l.k[at:at+n*benchD], l.v[at:at+n*benchD]
		if v.scoresHalf != nil {
			v.scoresHalf(l.s[:], l.qk[first*benchD:][:group*benchD], k, values, benchD, 0.088)
		} else {
			v.fromHalf(l.kv[:n*benchD], k)
			for i := range group {
				v.scores(l.s[i*benchChunk:][:n], l.qk[(first+i)*benchD:][:benchD], l.kv[:n*benchD], 0.088)
			}
		}
		for i := range group {
			l.m[first+i][chunk], _, _ = v.softmax((*[64]float32)(l.s[i*benchChunk:]), n)
		}
		out := l.o[(kvHead*chunks+chunk)*group*benchD:][:group*benchD]
		if v.mixHalf != nil {
			v.mixHalf(out, l.s[:], values, l.k[min(at+n*benchD, len(l.k)-n*benchD):], benchD)
		} else {
			v.fromHalf(l.kv[:n*benchD], values)
			for i := range group {
				v.mix(out[i*benchD:][:benchD], l.s[i*benchChunk:][:n], l.kv[:n*benchD])
			}
		}
	}
	for i := range group {
		y := l.y[(first+i)*benchD:][:benchD]
		clear(y)
		for chunk, m := range l.m[first+i] {
			o := l.o[((kvHead*chunks+chunk)*group+i)*benchD:]
			v.addScaled(y, o[:benchD], reference.Exp(m-l.m[first+i][0]))
		}
		v.scale(y, 0.01)
	}
}

// benchFloats are n values between -1 and 1 that no function treats specially.
func benchFloats(seed, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32((i*7919+seed*104729)%2003-1001) / 1024
	}
	return x
}
