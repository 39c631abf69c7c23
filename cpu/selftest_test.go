package cpu

import (
	"strings"
	"testing"

	"npack/ternary"
)

func TestSelfTest(t *testing.T) {
	for _, k := range sets() {
		if !k.present() {
			t.Logf("SKIP %s: this processor lacks the instructions", k.name)
			continue
		}
		if err := SelfTest(k.name); err != nil {
			t.Error(err)
		}
	}
	if err := SelfTest("no such"); err == nil {
		t.Error("kernels that are not there pass")
	}
}

// TestSelfTestFinds: every function that gives something else is named, and no
// other.
func TestSelfTestFinds(t *testing.T) {
	for name, spoil := range map[string]func(k *kernels, v *vectors){
		"expand": func(k *kernels, v *vectors) {
			k.linear[1].expand = func(u, w []byte, blocks int) { expandGeneric(u, w, blocks); u[8], u[12] = u[12], u[8] }
		},
		"dot": func(k *kernels, v *vectors) { k.linear[2].dot = swapped(k.linear[2].dot) },
		"many": func(k *kernels, v *vectors) {
			f := k.linear[3].many
			k.linear[3].many = func(sums []int32, w []byte, x []int8, blocks, columns, stride int, scratch []byte) {
				f(sums, w, x, blocks, columns-1, stride, scratch)
			}
		},
		"inPlace": func(k *kernels, v *vectors) {
			p := *k.linear[2].inPlace
			p.dot = func(sums []int32, m *ternary.Matrix, row int, x []int8) {
				swapped := *m
				swapped.BP, swapped.BN = m.BN, m.BP
				dotInPlaceGeneric(2)(sums, &swapped, row, x)
			}
			k.linear[2].inPlace = &p
		},
		"finish": func(k *kernels, v *vectors) {
			k.linear[1].finish = func(y []float32, sums []int32, lo, hi []float32, planes int, xsum int64, before, after float32) {
				finishGeneric(y, sums, hi, lo, planes, xsum, before, after)
			}
		},
		"int8Dot": func(k *kernels, v *vectors) {
			k.int8Dot = func(sums []int64, w []int8, stride int, x []byte, planes, blocks int) {
				int8DotGeneric(sums, w, stride, x, planes, blocks-1)
			}
		},
		"squares": func(k *kernels, v *vectors) {
			v.squares = func(lanes *[256]float32, x []float32) {
				squaresGeneric(lanes, x)
				lanes[3], lanes[4] = lanes[4], lanes[3]
			}
		},
		"normScale": func(k *kernels, v *vectors) {
			v.normScale = func(y, x, g []float32, r float32) {
				for i := range y { // without keep
					y[i] = mul(mul(x[i], r), g[i])
				}
			}
		},
		"absMax": func(k *kernels, v *vectors) {
			v.absMax = func(x []float32) uint32 { return absMaxGeneric(x[:len(x)/2]) }
		},
		"quantize": func(k *kernels, v *vectors) {
			v.quantize[1] = func(q []int8, x []float32, up float32) int64 { return quantizeGeneric(1)(q, x, up) + 1 }
		},
		"siluMul": func(k *kernels, v *vectors) {
			v.siluMul = func(y, g, u []float32) { siluMulGeneric(y, u, g) }
		},
		"add":    func(k *kernels, v *vectors) { v.add = func(x, y []float32) { addGeneric(x[5:], y[5:]) } },
		"toHalf": func(k *kernels, v *vectors) { v.toHalf = func(d []uint16, s []float32) { toHalfGeneric(d[1:], s[1:]) } },
		"fromHalf": func(k *kernels, v *vectors) {
			v.fromHalf = func(d []float32, s []uint16) { fromHalfGeneric(d[1:], s[1:]) }
		},
		"fromInt8": func(k *kernels, v *vectors) {
			v.fromInt8 = func(d []float32, s []int8, scale float32) { fromInt8Generic(d, s, -scale) }
		},
		"rotate": func(k *kernels, v *vectors) {
			v.rotate = func(a, b, cos, sin []float32) { rotateGeneric(a, b, sin, cos) }
		},
		"scores": func(k *kernels, v *vectors) {
			v.scores = func(s, q, keys []float32, scale float32) { // another order
				for j := range s {
					s[j] = 0
					for d, x := range q {
						s[j] += x * keys[j*len(q)+d]
					}
					s[j] *= scale
				}
			}
		},
		"softmax": func(k *kernels, v *vectors) {
			v.softmax = func(s *[64]float32, n int) (float32, float32, bool) { return softmaxGeneric(s, n-1) }
		},
		"mix": func(k *kernels, v *vectors) {
			v.mix = func(o, p, x []float32) { mixGeneric(o, p, x); o[0], o[1] = o[1], o[0] }
		},
		"addScaled": func(k *kernels, v *vectors) {
			v.addScaled = func(o, x []float32, w float32) { addScaledGeneric(x, o, w) }
		},
		"scale": func(k *kernels, v *vectors) { v.scale = func(o []float32, w float32) {} },
	} {
		v := genericVectors
		k := generic
		k.vec = &v
		for p := 1; p <= 3; p++ {
			l := *k.linear[p]
			k.linear[p] = &l
		}
		spoil(&k, &v)
		err := k.selfTest()
		if err == nil {
			t.Errorf("%s: passes", name)
		} else if !strings.HasSuffix(err.Error(), "processor: "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, k := range sets() {
		if !k.present() || k.vec.scoresHalf == nil {
			continue
		}
		v, spoiled := *k.vec, *k
		spoiled.vec = &v
		v.scoresHalf = func(s, q []float32, kv, ahead []uint16, dim int, scale float32) {
			k.vec.scoresHalf(s, q, kv, ahead, dim, scale)
			s[64]++
		}
		v.mixHalf = func(o, p []float32, kv, ahead []uint16, dim int) { k.vec.mixHalf(o, p, kv, ahead, dim); o[dim+1]++ }
		if err := spoiled.selfTest(); err == nil || !strings.HasSuffix(err.Error(), "processor: scoresHalf, mixHalf") {
			t.Errorf("%s on halves: %v", k.name, err)
		}
	}
}

func swapped(f func([]int32, []byte, []int8, int)) func([]int32, []byte, []int8, int) {
	return func(sums []int32, w []byte, x []int8, blocks int) {
		f(sums, w, x, blocks)
		sums[0], sums[1] = sums[1], sums[0]
	}
}

func BenchmarkSelfTest(b *testing.B) {
	for b.Loop() {
		if err := SelfTest(""); err != nil {
			b.Fatal(err)
		}
	}
}
