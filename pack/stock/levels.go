package stock

import (
	"math"
	"math/bits"
	"slices"

	"npack/gguf"
	"npack/ternary"
)

// levels encodes ternary rows into Q8_0, Q5_0 or Q4_0: blocks of 32 integers
// times a binary16 scale.
//
// For integers a and b that stand for lo and hi, the scale with the least
// squared error has a closed form, and the best binary16 number is one of its
// neighbours, since the error is a parabola. What is left is to choose the
// pair. Pairs whose ratio is far from lo/hi lose for every block of a row, so a
// row keeps the best few for its own mix of values, and a block tries those for
// its. It also tries the scale that rounding to nearest would take: no block is
// worse off than by that.
type levels struct {
	min, max int // of the integers
	bytes    int // of a block
	pack     func(dst []byte, d uint16, q []int8)

	values [4]float64 // of the row: +lo, -lo, +hi, -hi
	counts [4]float64 // in the row
	plans  [4][]quad  // by what a block has: 1 lo, 2 hi, 3 both
	q      [32]int8
}

// quad is the integers for +lo, -lo, +hi and -hi.
type quad [4]float64

// kept is how many pairs a row keeps.
const kept = 16

func newLevels(t gguf.Type) *levels {
	l := &levels{}
	_, l.bytes = t.Block()
	switch t {
	case gguf.Q8_0:
		l.min, l.max, l.pack = -127, 127, packQ8 // -128 has no counterpart
	case gguf.Q5_0:
		l.min, l.max, l.pack = -16, 15, packQ5
	case gguf.Q4_0:
		l.min, l.max, l.pack = -8, 7, packQ4
	}
	return l
}

func (l *levels) row(dst []byte, part *ternary.Tensor, r int) {
	w := part.Ternary
	at := r * w.Stride
	bp, bn, br := w.BP[at:at+w.Cols/8], w.BN[at:at+w.Cols/8], w.BR[at:at+w.Cols/8]
	lo, hi := float64(w.SLo[r]), float64(w.SHi[r])
	l.values = [4]float64{lo, -lo, hi, -hi}
	l.counts = [4]float64{}
	for i := range l.plans {
		l.plans[i] = l.plans[i][:0]
	}
	for b := 0; b < len(bp); b += 4 {
		for i, n := range counts(word(bp[b:]), word(bn[b:]), word(br[b:])) {
			l.counts[i] += n
		}
	}
	for b := 0; b < len(bp); b += 4 {
		p, n, h := word(bp[b:]), word(bn[b:]), word(br[b:])
		d, q := l.block(counts(p, n, h))
		fill(l.q[:], p, n, h, q)
		l.pack(dst, d, l.q[:])
		dst = dst[l.bytes:]
	}
}

func word(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// counts counts the four values among up to 32 weights.
func counts(p, n, h uint32) [4]float64 {
	return [4]float64{ones(p &^ h), ones(n &^ h), ones(p & h), ones(n & h)}
}

func ones(x uint32) float64 { return float64(bits.OnesCount32(x)) }

// presence says which magnitudes there are: 1 lo, 2 hi, 3 both, 0 none.
func presence(count [4]float64) int {
	has := 0
	if count[0]+count[1] > 0 {
		has |= 1
	}
	if count[2]+count[3] > 0 {
		has |= 2
	}
	return has
}

// fill writes the integers of up to 32 weights: q has those of +lo, -lo, +hi and
// -hi.
func fill(dst []int8, p, n, h uint32, q [4]int8) {
	code := [8]int8{1: q[0], 2: q[1], 5: q[2], 6: q[3]}
	for i := range dst {
		dst[i] = code[p>>i&1|n>>i&1<<1|h>>i&1<<2]
	}
}

// block returns scale and integers for a block with these counts of the values.
func (l *levels) block(count [4]float64) (d uint16, q [4]int8) {
	has := presence(count)
	largest := l.largest(has)
	if largest == 0 {
		return 0, q
	}
	if len(l.plans[has]) == 0 {
		l.plan(has)
	}
	least := math.Inf(1)
	try := func(h uint16, x *quad) {
		scale, e := float64(gguf.Float16(h)), 0.0
		for i, n := range count {
			// Integer times binary16 is exact in float32, so the decoder's value
			// is this product.
			f := scale*x[i] - l.values[i]
			e += n * f * f
		}
		if e < least {
			least, d = e, h
			q = [4]int8{int8(x[0]), int8(x[1]), int8(x[2]), int8(x[3])}
		}
	}
	for i := range l.plans[has] {
		x := &l.plans[has][i]
		s, sign := l.scale(count, x), uint16(0)
		if s < 0 {
			s, sign = -s, 0x8000
		}
		h := halfDown(s)
		try(sign|h, x)
		try(sign|min(h+1, maxHalf), x)
	}
	// What rounding to nearest takes, of either sign where that matters.
	h := gguf.ToFloat16(float32(largest / -float64(l.min)))
	for _, h := range [2]uint16{h, h | 0x8000} {
		if scale := float64(gguf.Float16(h)); scale != 0 && h&0x7fff <= maxHalf {
			x := l.round(scale)
			try(h, &x)
		}
	}
	return d, q
}

// largest returns the largest magnitude of those in has.
func (l *levels) largest(has int) (m float64) {
	if has&1 != 0 {
		m = math.Abs(l.values[0])
	}
	if has&2 != 0 {
		m = max(m, math.Abs(l.values[2]))
	}
	return m
}

// round returns the integers nearest to the values.
func (l *levels) round(scale float64) (x quad) {
	for i, v := range l.values {
		x[i] = min(max(math.RoundToEven(v/scale), float64(l.min)), float64(l.max))
	}
	return x
}

// scale returns the scale with the least squared error.
func (l *levels) scale(count [4]float64, x *quad) float64 {
	var vq, qq float64
	for i, n := range count {
		vq += n * l.values[i] * x[i]
		qq += n * x[i] * x[i]
	}
	if qq == 0 {
		return 0
	}
	return vq / qq
}

// plan finds the integers that blocks with the magnitudes in has may use.
func (l *levels) plan(has int) {
	type scored struct {
		quad
		err float64
	}
	var list []scored
	count := l.counts
	if has == 1 {
		count[2], count[3] = 0, 0
	} else if has == 2 {
		count[0], count[1] = 0, 0
	}
	add := func(lo, hi float64, sign float64) {
		x := quad{lo, lo, hi, hi}
		for i := range x { // of -min, one sign fits
			x[i] = min(math.Copysign(x[i], sign*l.values[i]), float64(l.max))
		}
		s, e := l.scale(count, &x), 0.0
		for i, n := range count {
			f := s*x[i] - l.values[i]
			e += n * f * f
		}
		at := len(list)
		if has == 3 { // sorted, and no more than are kept
			for ; at > 0 && list[at-1].err > e; at-- {
			}
			if at == kept {
				return
			}
		}
		if has == 3 && len(list) == kept {
			list = list[:kept-1]
		}
		list = slices.Insert(list, at, scored{x, e})
	}
	lo, hi := math.Abs(l.values[0]), math.Abs(l.values[2])
	for b := 1.0; b <= float64(-l.min); b++ { // for the larger magnitude
		signs := []float64{1, -1}
		if b <= float64(l.max) {
			signs = signs[:1] // the other one says the same
		}
		for _, sign := range signs {
			switch {
			case has == 1:
				add(b, 0, sign)
			case has == 2:
				add(0, b, sign)
			case lo <= hi:
				a := math.Floor(lo / hi * b)
				add(a, b, sign)
				add(a+1, b, sign)
			default:
				a := math.Floor(hi / lo * b)
				add(b, a, sign)
				add(b, a+1, sign)
			}
		}
	}
	if has != 3 {
		list = list[len(list)/2:] // all are right; the other half is these halved
	}
	for _, x := range list {
		l.plans[has] = append(l.plans[has], x.quad)
	}
}

const maxHalf = 0x7bff // 65504, the largest binary16

// halfDown returns the largest binary16 up to x, which is not negative.
func halfDown(x float64) uint16 {
	h := min(gguf.ToFloat16(float32(x)), maxHalf)
	for h > 0 && float64(gguf.Float16(h)) > x {
		h--
	}
	return h
}
