package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"npack/gpu/kernels"
	"npack/runtime/reference"
)

// rankKey is the order of floats as the order of integers (kernels.k).
func rankKey(x float32) uint32 {
	b := math.Float32bits(x)
	switch {
	case b == 1<<31:
		return 1 << 31
	case b>>31 != 0:
		return ^b
	}
	return b | 1<<31
}

// TestChoice compares argmax and topk with a stable sort.
func TestChoice(t *testing.T) { texts(t, checkChoice) }

func checkChoice(t testing.TB, c *card, capability int) {
	for i, rows := range []int{1, 5, 511, 513, 4096, 4097, 9000} {
		const n = 2
		r, stride := random(uint64(i)), rows+3
		logits := make([]float32, n*stride)
		for j := range logits {
			logits[j] = float32(math.Round(r.NormFloat64()*4)) * [2]float32{1, -0.5}[r.IntN(2)] // many equal, zeros of both signs
		}
		ranks := make([][]int, n)
		for col := range ranks {
			for id := range rows {
				ranks[col] = append(ranks[col], id)
			}
			l := logits[col*stride:]
			slices.SortStableFunc(ranks[col], func(a, b int) int {
				switch {
				case l[a] > l[b]:
					return -1
				case l[a] < l[b]:
					return 1
				}
				return 0
			})
		}
		pairs := func(col, k int) (w []uint32) {
			for _, id := range ranks[col][:min(k, rows)] {
				w = append(w, rankKey(logits[col*stride+id]), uint32(id))
			}
			return w
		}
		from := upload(c, logits)
		slices := (rows + 4095) / 4096
		best, choice, ids, pos := c.room(n*slices*2), c.room(2*n), upload(c, []int32{-5, -6}), upload(c, []int32{10, 20})
		c.launch("argmax", slices, n, 1, from, best, num(rows), num(stride))
		for advance := range 2 {
			c.launch("argmax_join", n, 1, 1, best, choice, ids, pos, num(slices), num(advance))
			equal(t, fmt.Sprintf("argmax of %d", rows), c.words(choice), append(pairs(0, 1), pairs(1, 1)...))
			wantIDs, wantPos := []int32{-5, -6}, []int32{10, 20}
			if advance == 1 {
				wantIDs, wantPos = []int32{int32(ranks[0][0]), int32(ranks[1][0])}, []int32{11, 21}
			}
			equal(t, "ids", c.words(ids), []uint32{uint32(wantIDs[0]), uint32(wantIDs[1])})
			equal(t, "positions", c.words(pos), []uint32{uint32(wantPos[0]), uint32(wantPos[1])})
		}
		for _, k := range []int{1, 5, 64} {
			a, count := from, rows
			for stage := 0; ; stage++ {
				slices := (count + 511) / 512
				b := c.room(n * slices * k * 2)
				c.launch("topk", (slices+7)/8, n, 1, from, a, b, num(count), num(stride), num(k), num(stage))
				if a, count = b, slices*k; slices == 1 {
					break
				}
			}
			got := c.words(a)
			for col := range n {
				want := pairs(col, k)
				equal(t, fmt.Sprintf("%d first of %d", k, rows), got[col*2*k:][:len(want)], want)
				for j := len(want); j < 2*k; j += 2 {
					if got[col*2*k+j] != 0 {
						t.Errorf("%d first of %d: key %#x behind the last", k, rows, got[col*2*k+j])
					}
				}
			}
		}
	}
}

// TestProbe compares the operations with the reference's, on values of all sizes.
func TestProbe(t *testing.T) { texts(t, checkProbe) }

func checkProbe(t testing.TB, c *card, capability int) {
	const n = 20000
	r := random(3)
	bounded := func(low, high float64) []float32 { // magnitudes 2^low to 2^high, both signs
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(math.Exp2(low + (high-low)*r.Float64()))
			if r.IntN(2) == 0 {
				x[i] = -x[i]
			}
		}
		return x
	}
	positive := bounded(-60, 60)
	for i, v := range positive {
		positive[i] = float32(math.Abs(float64(v)))
	}
	small, wide, large := bounded(-45, 5.3), bounded(-60, 30), bounded(-50, 50)
	for i, v := range small { // exp is for x <= 40
		small[i] = min(v, 40)
	}
	copy(small, []float32{0, -30, math.Nextafter32(-30, -31), 0x1p-30, math.Nextafter32(0x1p-30, 0), -0x1p-30, 40, -40, math.Nextafter32(-40, -41)})
	halves := append(bounded(-30, 17), 65504, 65519, 65520, 0x1p-24, 0x1p-25, float32(math.Inf(1)))[6:]
	cases := []struct {
		op      int
		a, b, c []float32
		f       func(a, b, c float32) uint32
	}{
		{kernels.ProbeMulAdd, large, bounded(-20, 20), large, func(a, b, c float32) uint32 { return math.Float32bits(add(mul(a, b), c)) }},
		{kernels.ProbeRecip, positive, nil, nil, func(a, _, _ float32) uint32 { return math.Float32bits(reference.Recip(a)) }},
		{kernels.ProbeRSqrt, positive, nil, nil, func(a, _, _ float32) uint32 { return math.Float32bits(reference.RSqrt(a)) }},
		{kernels.ProbeExp, small, nil, nil, func(a, _, _ float32) uint32 { return math.Float32bits(reference.Exp(a)) }},
		{kernels.ProbeSiLU, small, nil, nil, func(a, _, _ float32) uint32 { return math.Float32bits(reference.SiLU(a)) }},
		{kernels.ProbeKeep, wide, nil, nil, func(a, _, _ float32) uint32 { return math.Float32bits(reference.Keep(a, 50)) }},
		{kernels.ProbeToHalf, halves, nil, nil, func(a, _, _ float32) uint32 { return uint32(reference.F32toF16(a)) }},
		{kernels.ProbeRound, wide, nil, nil, func(a, _, _ float32) uint32 { return uint32(int32(math.RoundToEven(float64(a)))) }},
	}
	probe := func(op int, a, b, x []uint32) []uint32 {
		y := c.room(len(a))
		args := [3]([]uint32){a, b, x}
		for i := range args {
			if args[i] == nil {
				args[i] = make([]uint32, len(a))
			}
		}
		c.launch("probe", (len(a)+127)/128, 1, 1, upload(c, args[0]), upload(c, args[1]), upload(c, args[2]), y, num(len(a)), num(op))
		return c.words(y)
	}
	asBits := func(x []float32) (w []uint32) {
		for _, v := range x {
			w = append(w, math.Float32bits(v))
		}
		return w
	}
	at := func(x []float32, i int) float32 {
		if x == nil {
			return 0
		}
		return x[i]
	}
	for _, p := range cases {
		want := make([]uint32, len(p.a))
		for i, v := range p.a {
			want[i] = p.f(v, at(p.b, i), at(p.c, i))
		}
		equal(t, fmt.Sprintf("operation %d", p.op), probe(p.op, asBits(p.a), asBits(p.b), asBits(p.c)), want)
	}
	ints := func() []uint32 {
		w := make([]uint32, n)
		for i := range w {
			w[i] = r.Uint32() >> r.IntN(32)
		}
		return w
	}
	a, b, x := ints(), ints(), ints()
	want := make([]uint32, n)
	for i := range want {
		if i%2 == 0 {
			b[i] = ^b[i]
		}
		want[i] = math.Float32bits(float32(int64(b[i])<<32 | int64(a[i])))
	}
	equal(t, "i64 to f32", probe(kernels.ProbeI64, a, b, nil), want)
	for i := range want {
		s := int32(x[i])
		for j := 0; j < 32; j += 8 {
			s += int32(int8(a[i]>>j)) * int32(int8(b[i]>>j))
		}
		want[i] = uint32(s)
	}
	equal(t, "dp4a", probe(kernels.ProbeDP4A, a, b, x), want)
	half := make([]uint32, 0x7c00)
	wantHalf := make([]uint32, len(half))
	for i := range half {
		half[i] = uint32(i)
		wantHalf[i] = math.Float32bits(reference.F16toF32(uint16(i)))
	}
	equal(t, "f16 to f32", probe(kernels.ProbeFromHalf, half, nil, nil), wantHalf)
}
