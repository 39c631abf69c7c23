package foreign

import (
	"fmt"
	"math"
	"slices"

	"npack/gguf"
)

// rounding takes a float32 to the nearest value of a narrower type. The zero
// rounding is float32 itself.
type rounding struct {
	to   func(float32) float32
	bits int // of the significand, the leading one included
	exp  int // of the smallest normal value
}

var (
	roundBF16 = rounding{toBF16, 8, -126}
	roundF16  = rounding{func(f float32) float32 { return gguf.Float16(gguf.ToFloat16(f)) }, 11, -14}
)

// around returns how far below and above d, a value of the type above 0, the
// numbers reach that are rounded to it.
func (r rounding) around(d float64) (below, above float64) {
	f, exp := math.Frexp(d) // 0.5 <= f < 1
	above = math.Ldexp(1, max(exp-1, r.exp)-r.bits)
	if below = above; f == 0.5 && exp-1 > r.exp {
		below /= 2
	}
	return below, above
}

func toBF16(f float32) float32 {
	b := math.Float32bits(f)
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// putTable writes v as int8 values q and a scale: float32(q·scale) is v for each
// value or, where no scale does that and v is of a narrower type, is so when
// rounded to that type. given, if not 0, is the scale to try first. narrow says
// that the products have to be rounded.
func putTable(q []int8, v []float32, given float32, r rounding) (scale float32, narrow bool, err *misfit) {
	var top uint32
	for _, f := range v {
		top = max(top, math.Float32bits(f)&^signBit)
	}
	switch {
	case top >= infinity:
		return 0, false, &misfit{found: "a value that is not finite", expected: "finite values"}
	case top == 0:
		clear(q)
		return given, false, nil
	}
	if given != 0 {
		if divide(q, v, given) {
			return given, false, nil
		}
		if r.to != nil && divideRounded(q, v, given, r.to) {
			return given, true, nil
		}
	}
	largest, most := math.Float32frombits(top), 127
	try := func(k int) bool {
		s := largest / float32(k)
		for _, s := range [3]float32{s, math.Nextafter32(s, 0), math.Nextafter32(s, largest)} {
			if float32(k)*s == largest && divide(q, v, s) {
				scale = s
				return true
			}
		}
		return false
	}
	for k := most; k > 0; k-- {
		if try(k) {
			return scale, false, nil
		}
	}
	if slices.Contains(v, -largest) {
		if most = 128; try(most) {
			return scale, false, nil
		}
	}
	distinct := distinctMagnitudes(v)
	if r.to != nil && len(distinct) <= 128 {
		if s, ok := narrowScale(distinct, r, most); ok && divideRounded(q, v, s, r.to) {
			return s, true, nil
		}
	}
	return 0, false, &misfit{distinct: len(distinct), found: fmt.Sprintf("%d different magnitudes, not multiples -128 to 127 of one scale", len(distinct)), expected: "an int8 value times a scale a row"}
}

// divide sets q to the multiples of s that v is, and reports whether all are: the
// float32 products are v. A multiple is known from a quotient that is a few units
// of float32 off; whether it is right the product tells.
func divide(q []int8, v []float32, s float32) bool {
	// Adding it leaves a float32 between -2^22 and 2^22 rounded to an integer, in
	// its low bits.
	const magic = 1<<23 + 1<<22
	inverse := 1 / s
	for len(v) > 0 {
		n := min(64, len(v)) // most scales fail at once
		bad := uint32(0)
		for i, f := range v[:n] {
			t := float32(f*inverse) + magic // two roundings: not fused
			k := int32(math.Float32bits(t)) - 0x4b400000
			d := math.Float32bits(float32(k)*s) ^ math.Float32bits(f)
			bad |= d&^signBit | uint32(k+128)>>8 // -0 is 0; k has f's sign if it is not
			q[i] = int8(k)
		}
		if bad != 0 {
			return false
		}
		q, v = q[n:], v[n:]
	}
	return true
}

// divideRounded is divide for products that are rounded by to.
func divideRounded(q []int8, v []float32, s float32, to func(float32) float32) bool {
	for i, f := range v {
		k := math.RoundToEven(float64(f) / float64(s))
		if !(math.Abs(k) <= 128) || k == 128 || to(float32(k)*s) != f {
			return false
		}
		q[i] = int8(k)
	}
	return true
}

// distinctMagnitudes returns the magnitudes of v that are not 0, rising.
func distinctMagnitudes(v []float32) []float64 {
	seen := map[float32]bool{}
	for _, f := range v {
		seen[max(f, -f)] = true
	}
	delete(seen, 0)
	d := make([]float64, 0, len(seen))
	for f := range seen {
		d = append(d, float64(f))
	}
	slices.Sort(d)
	return d
}

// narrowScale finds a scale whose multiples, up to most, are distinct, rising,
// when rounded by r. Each value leaves an interval for the scale; taken from the smallest one
// up, the interval is always narrow enough to know the next value's multiple.
func narrowScale(distinct []float64, r rounding, most int) (float32, bool) {
	largest := distinct[len(distinct)-1]
top:
	for top := float64(most); top >= float64(len(distinct)); top-- {
		below, above := r.around(largest)
		from, to := (largest-below)/top, (largest+above)/top
		for _, d := range distinct {
			k := math.RoundToEven(2 * d / (from + to))
			if k == 0 {
				continue top
			}
			below, above := r.around(d)
			from, to = max(from, (d-below)/k), min(to, (d+above)/k)
			if from > to {
				continue top
			}
		}
		s := float32((from + to) / 2)
		ok := true
		for _, d := range distinct {
			ok = ok && float64(r.to(float32(math.RoundToEven(d/float64(s)))*s)) == d
		}
		if ok {
			return s, true
		}
	}
	return 0, false
}
