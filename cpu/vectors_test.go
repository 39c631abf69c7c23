package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"npack/runtime/reference"
)

// floats fills n values that a forward pass may meet: of all sizes, with zeros
// of both signs and values around the bounds of keep and of the functions.
func floats(seed uint64, n int, spread int) []float32 {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	edges := []float32{0, float32(math.Copysign(0, -1)), 0x1p-50, -0x1p-50, 0x1.fffffep-51, 0x1p-40, -0x1.fffffep-41, 1, -1,
		-30, -0x1.e00002p+4, -40, -0x1.400002p+5, 40, 88, 0x1p-30, -0x1p-30, 0x1.fffffep-31, 0x1p-149, -0x1p-126, 1e20, -1e20, 0.5, 1.5, -2.5}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Ldexp(rng.Float64()-0.5, rng.IntN(2*spread+1)-spread))
		if rng.IntN(8) == 0 {
			x[i] = edges[rng.IntN(len(edges))]
		}
	}
	return x
}

var vectorLengths = []int{32, 64, 96, 128, 160, 224, 256, 288, 512, 544, 1024, 1056}

// compare runs a function of both sets into guarded memory for many inputs and
// compares what they write.
func compareVectors(t *testing.T, step int, f func(v *vectors, out []float32, n int, seed uint64)) {
	eachSet(t, func(t *testing.T, k *kernels) {
		lengths := vectorLengths
		if step < blockCols {
			lengths = append([]int{step, 3 * step, 5 * step, 7 * step}, lengths...)
		}
		for _, n := range lengths {
			for seed := range uint64(6) {
				got, lives := guarded[float32](n, -7)
				want := make([]float32, n)
				f(k.vec, got, n, seed)
				f(generic.vec, want, n, seed)
				equalBits(t, fmt.Sprintf("%d elements, seed %d", n, seed), got, want)
				if !lives() {
					t.Fatalf("%d elements: canary died", n)
				}
			}
		}
	})
}

func TestSquares(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for _, n := range append([]int{16, 48, 80}, vectorLengths...) {
			x := floats(1, n, 30)
			var got, want [256]float32
			for i := range got {
				got[i] = -7 // must be cleared
			}
			k.vec.squares(&got, x)
			squaresGeneric(&want, x)
			equalBits(t, fmt.Sprintf("%d elements", n), got[:], want[:])
		}
	})
}

func TestNormScale(t *testing.T) {
	compareVectors(t, 16, func(v *vectors, out []float32, n int, seed uint64) {
		v.normScale(out, floats(seed, n, 40), floats(seed+9, n, 8), float32(math.Ldexp(1.37, int(seed)*7-20)))
	})
}

func TestNormScaleInPlace(t *testing.T) {
	compareVectors(t, 16, func(v *vectors, out []float32, n int, seed uint64) {
		copy(out, floats(seed, n, 40))
		v.normScale(out, out, floats(seed+9, n, 8), 0.3)
	})
}

func TestAbsMax(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for _, n := range append([]int{16, 48}, vectorLengths...) {
			x := floats(2, n, 20)
			for at := 0; at < n; at += 7 {
				for _, v := range []float32{1e30, -1e30, float32(math.Inf(-1)), float32(math.NaN())} {
					old := x[at]
					x[at] = v
					if got, want := k.vec.absMax(x), absMaxGeneric(x); got != want {
						t.Fatalf("%d elements, %g at %d: 0x%08x, want 0x%08x", n, v, at, got, want)
					}
					x[at] = old
				}
			}
			clear(x)
			if got := k.vec.absMax(x); got != 0 {
				t.Fatalf("zeros: 0x%08x", got)
			}
		}
	})
}

func TestQuantize(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for _, n := range vectorLengths {
			for planes := 1; planes <= 3; planes++ {
				limit := []float64{0, 127, 32639, 8355711}[planes]
				for seed := range uint64(5) {
					rng := rand.New(rand.NewPCG(seed, 5))
					x := make([]float32, n)
					up := float32(math.Ldexp(1, int(seed)*9-10))
					for i := range x {
						// Halves are ties; the ends of the range are digits' ends.
						v := math.Round(2*(2*rng.Float64()-1)*limit) / 2
						switch rng.IntN(10) {
						case 0:
							v = []float64{limit, -limit, 127, 128, -128, -129, 32767, 32768, 0.5, -0.5, 1.5}[rng.IntN(11)]
						case 1:
							v = math.Ldexp(rng.Float64(), -140)
						}
						x[i] = float32(max(-limit, min(limit, v)) / float64(up))
					}
					got, lives := guarded[int8](n*planes, 99)
					want := make([]int8, n*planes)
					sum, wantSum := k.vec.quantize[planes](got, x, up), generic.vec.quantize[planes](want, x, up)
					if !slices.Equal(got, want) || sum != wantSum || !lives() {
						t.Fatalf("%d elements, %d planes, seed %d: sum %d, want %d; digits equal: %t; canaries live: %t", n, planes, seed, sum, wantSum, slices.Equal(got, want), lives())
					}
				}
			}
		}
	})
}

func TestSiluMul(t *testing.T) {
	compareVectors(t, 32, func(v *vectors, out []float32, n int, seed uint64) {
		g := floats(seed, n, 6)
		if seed == 1 { // what is not finite stays so
			g[3], g[5], g[6] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
		}
		v.siluMul(out, g, floats(seed+20, n, 55))
	})
}

func TestSiluMulInPlace(t *testing.T) {
	for over := range 2 { // the result lies over g, then over u
		compareVectors(t, 32, func(v *vectors, out []float32, n int, seed uint64) {
			in := [2][]float32{floats(seed, n, 6), floats(seed+20, n, 55)}
			copy(out, in[over])
			in[over] = out
			v.siluMul(out, in[0], in[1])
		})
	}
}

func TestAdd(t *testing.T) {
	compareVectors(t, 8, func(v *vectors, out []float32, n int, seed uint64) {
		copy(out, floats(seed, n, 5))
		v.add(out, floats(seed+1, n, 5))
	})
}

func TestHalf(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		all := make([]uint16, 1<<16)
		for i := range all {
			all[i] = uint16(i)
		}
		got, want := make([]float32, len(all)), make([]float32, len(all))
		k.vec.fromHalf(got, all)
		fromHalfGeneric(want, all)
		equalBits(t, "from half", got, want)
		for _, n := range []int{16, 32, 48, 128, 4096} {
			x := floats(uint64(n), n, 24)
			for i := range x {
				if i%5 == 0 { // halfway between two halves
					h := reference.F16toF32(uint16(i * 37 % 0x7bff))
					x[i] = (h + reference.F16toF32(uint16(i*37%0x7bff)+1)) / 2
				}
				x[i] = max(-65000, min(65000, x[i]))
			}
			got, lives := guarded[uint16](n, 0xa5a5)
			want := make([]uint16, n)
			k.vec.toHalf(got, x)
			toHalfGeneric(want, x)
			if !slices.Equal(got, want) || !lives() {
				t.Fatalf("to half, %d elements: %v, want %v", n, got, want)
			}
		}
	})
}

func TestFromInt8(t *testing.T) {
	compareVectors(t, 16, func(v *vectors, out []float32, n int, seed uint64) {
		q := make([]int8, n)
		for i := range q {
			q[i] = int8(i*31 + int(seed))
		}
		v.fromInt8(out, q, 0.0371*float32(seed+1))
	})
}

func TestRotate(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for n := range 70 {
			cos, sin := floats(3, n, 1), floats(4, n, 1)
			a, aLives := guarded[float32](n, -7)
			b, bLives := guarded[float32](n, -7)
			copy(a, floats(5, n, 3))
			copy(b, floats(6, n, 3))
			wantA, wantB := slices.Clone(a), slices.Clone(b)
			k.vec.rotate(a, b, cos, sin)
			rotateGeneric(wantA, wantB, cos, sin)
			equalBits(t, "a", a, wantA)
			equalBits(t, "b", b, wantB)
			if !aLives() || !bLives() {
				t.Fatalf("%d pairs: canary died", n)
			}
		}
	})
}

func TestScores(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for _, dim := range []int{16, 32, 48, 64, 80, 96, 112, 128, 256} {
			for n := 1; n <= 64; n++ {
				q, keys := floats(uint64(n), dim, 3), floats(uint64(dim), n*dim, 3)
				got, lives := guarded[float32](n, -7)
				want := make([]float32, n)
				k.vec.scores(got, q, keys, 0.088)
				scoresGeneric(want, q, keys, 0.088)
				equalBits(t, fmt.Sprintf("%d keys of %d", n, dim), got, want)
				if !lives() {
					t.Fatal("canary died")
				}
			}
		}
	})
}

func TestMix(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for _, dim := range []int{16, 32, 48, 64, 80, 128, 144, 256} {
			for n := 1; n <= 64; n += 1 + n/20 {
				p, v := floats(uint64(n), n, 2), floats(uint64(dim), n*dim, 20)
				got, lives := guarded[float32](dim, -7)
				want := make([]float32, dim)
				k.vec.mix(got, p, v)
				mixGeneric(want, p, v)
				equalBits(t, fmt.Sprintf("%d values of %d", n, dim), got, want)
				if !lives() {
					t.Fatal("canary died")
				}
			}
		}
	})
}

func TestAddScaled(t *testing.T) {
	compareVectors(t, 16, func(v *vectors, out []float32, n int, seed uint64) {
		copy(out, floats(seed, n, 5))
		v.addScaled(out, floats(seed+1, n, 5), 0.77)
		v.scale(out, 1.3)
	})
}

func TestSoftmax(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		for n := 1; n <= 64; n++ {
			for seed := range uint64(6) {
				buf, lives := guarded[float32](64, -7)
				copy(buf, floats(seed, 64, 6))
				if seed%3 == 0 { // far apart: exponentials of less than 2^-30, and 0
					for i := range buf {
						buf[i] *= 5
					}
				}
				for i := n; i < 64; i++ { // what lies behind does not count
					buf[i] = []float32{1e30, float32(math.NaN()), float32(math.Inf(1))}[i%3]
				}
				if seed == 5 {
					for i := range n {
						buf[i] = -1e20 - float32(i)*1e19
					}
				}
				got, want := (*[64]float32)(buf), [64]float32(buf)
				m, l, finite := k.vec.softmax(got, n)
				wantM, wantL, _ := softmaxGeneric(&want, n)
				equalBits(t, fmt.Sprintf("%d scores, seed %d", n, seed), got[:], want[:])
				if m != wantM || math.Float32bits(l) != math.Float32bits(wantL) || !finite || !lives() {
					t.Fatalf("%d scores, seed %d: largest %g, sum %g, finite %t, want %g, %g (canaries live: %t)", n, seed, m, l, finite, wantM, wantL, lives())
				}
				for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					copy(buf, floats(seed, 64, 6))
					buf[int(seed*13)%n] = float32(bad)
					if _, _, finite := k.vec.softmax(got, n); finite {
						t.Fatalf("%d scores: %g taken for finite", n, bad)
					}
				}
			}
		}
	})
}

func TestAttentionOnHalves(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels) {
		if k.vec.scoresHalf == nil {
			t.Skip("has no attention on halves")
		}
		for _, dim := range []int{16, 32, 48, 64, 80, 96, 128, 144, 256} {
			for heads := 1; heads <= 9; heads++ {
				for n := 1; n <= 64; n += 1 + n/20*(1+dim/64) {
					kv, _ := guarded[uint16](n*dim, 0x7e00)
					toHalfGeneric(kv, floats(uint64(heads), n*dim, 3))
					kv32 := make([]float32, n*dim)
					fromHalfGeneric(kv32, kv)
					q, p := floats(uint64(n), heads*dim, 3), floats(uint64(n), heads*64, 2)
					if n%2 == 1 {
						for i := range p {
							p[i] *= 0x1p-39 // sums around the bound of keep_40
						}
					}
					s, sLives := guarded[float32](heads*64, -7)
					o, oLives := guarded[float32](heads*dim, -7)
					k.vec.scoresHalf(s, q, kv, kv, dim, 0.088)
					k.vec.mixHalf(o, p, kv, kv, dim)
					wantS, wantO := make([]float32, n), make([]float32, dim)
					for h := range heads {
						what := fmt.Sprintf("%d keys of %d, head %d of %d", n, dim, h, heads)
						scoresGeneric(wantS, q[h*dim:][:dim], kv32, 0.088)
						mixGeneric(wantO, p[h*64:][:n], kv32)
						equalBits(t, what+": scores", s[h*64:][:n], wantS)
						equalBits(t, what+": mix", o[h*dim:][:dim], wantO)
					}
					if !sLives() || !oLives() {
						t.Fatalf("%d keys of %d, %d heads: canary died (scores: %t)", n, dim, heads, !sLives())
					}
				}
			}
		}
	})
}
