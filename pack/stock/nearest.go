package stock

import (
	"math"

	"npack/gguf"
)

// This file rounds as llama-quantize does without an importance matrix: what
// the search of this package is compared with. It follows llama.cpp's
// quantize_row_*_ref, whose bytes testdata/nearest.json has.

// nearestTable is the type that llama-quantize gives embeddings; head says
// whether the table is the output's, too.
func nearestTable(ty Type, head bool) gguf.Type {
	if head && (ty.Linear == gguf.Q4_0 || ty.Linear == gguf.Q5_0) {
		return gguf.Q6_K
	}
	return ty.Linear
}

func nearestQ8(dst []byte, src []float32) { nearestBlocks(dst, src, 34, 127, packQ8) }
func nearestQ5(dst []byte, src []float32) { nearestBlocks(dst, src, 22, -16, packQ5) }
func nearestQ4(dst []byte, src []float32) { nearestBlocks(dst, src, 18, -8, packQ4) }

// nearestBlocks gives the largest value of each block the integer top; a
// negative one is asymmetric: the first largest value, whatever its sign, gets
// it, and the integers end one below -top.
func nearestBlocks(dst []byte, src []float32, bytes int, top float32, pack func([]byte, uint16, []int8)) {
	var q [32]int8
	for ; len(src) > 0; src, dst = src[32:], dst[bytes:] {
		var largest, signed float32
		for _, v := range src[:32] {
			if a := abs(v); a > largest {
				largest, signed = a, v
			}
		}
		d := largest / top
		if top < 0 {
			d = signed / top
		}
		var inv float32
		if d != 0 {
			inv = 1 / d
		}
		for i, v := range src[:32] {
			x := float32(v * inv)
			if top > 0 {
				q[i] = int8(math.Round(float64(x)))
			} else { // truncated after adding what makes it positive
				q[i] = int8(min(int(float32(x-top)+0.5), int(-2*top)-1) + int(top))
			}
		}
		pack(dst, gguf.ToFloat16(d), q[:])
	}
}

func nearestQ6(dst []byte, src []float32) {
	const tiny = 1e-15
	var q [256]int8
	for ; len(src) > 0; src, dst = src[256:], dst[210:] {
		var scales [16]float32
		var largest, signed float32
		for g := range scales {
			scales[g] = groupScale(src[16*g:16*g+16], q[16*g:16*g+16])
			if a := abs(scales[g]); a > largest {
				largest, signed = a, scales[g]
			}
		}
		if largest < tiny {
			clear(dst[:210])
			continue
		}
		inv := -128 / signed
		d := gguf.ToFloat16(1 / inv)
		var codes [16]int8
		for g := range scales {
			codes[g] = int8(min(127, nearestInt(inv*scales[g])))
			unit := float32(gguf.Float16(d) * float32(codes[g]))
			if unit == 0 {
				continue // the integers of groupScale stay
			}
			for i := 16 * g; i < 16*g+16; i++ {
				q[i] = int8(max(-32, min(31, nearestInt(src[i]/unit))))
			}
		}
		packQ6(dst, d, &codes, q[:])
	}
}

// groupScale finds the scale of 16 values: of 19 near the one that gives the
// largest value -32, the one with the least error weighted by the squared value.
func groupScale(x []float32, q []int8) float32 {
	var largest, signed float32
	for _, v := range x {
		if a := abs(v); a > largest {
			largest, signed = a, v
		}
	}
	if largest < 1e-15 {
		for i := range q {
			q[i] = -32 // stored as 0
		}
		return 0
	}
	sums := func(inv float32) (sumlx, suml2 float32) {
		for _, v := range x {
			l := float32(max(-32, min(31, nearestInt(inv*v))))
			w := float32(v * v)
			sumlx += float32(float32(w*v) * l)
			suml2 += float32(float32(w*l) * l)
		}
		return
	}
	use := func(inv float32) {
		for i, v := range x {
			q[i] = int8(max(-32, min(31, nearestInt(inv*v))))
		}
	}
	inv := -32 / signed
	sumlx, suml2 := sums(inv)
	use(inv)
	var scale float32
	if suml2 != 0 {
		scale = sumlx / suml2
	}
	best := float32(scale * sumlx)
	for i := -9; i <= 9; i++ {
		if i == 0 {
			continue
		}
		inv := -(32 + float32(0.1*float32(i))) / signed
		if sumlx, suml2 := sums(inv); suml2 > 0 && float32(sumlx*sumlx) > float32(best*suml2) {
			use(inv)
			scale = sumlx / suml2
			best = float32(scale * sumlx)
		}
	}
	return scale
}

func nearestInt(x float32) int { return int(math.RoundToEven(float64(x))) }

func abs(x float32) float32 { return float32(math.Abs(float64(x))) }
