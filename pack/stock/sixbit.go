package stock

import (
	"math"
	"math/bits"
	"slices"

	"npack/gguf"
	"npack/ternary"
)

// sixBit encodes ternary rows into Q6_K: blocks of 256 with a binary16 scale,
// 16 groups of 16 weights with an int8 scale of their own, and integers of -32
// to 31, of which -32 is left out for its lack of a counterpart.
//
// A group that has one magnitude needs scale · group scale · integer near that
// one number, and with up to 127 · 31 steps it comes very near. A group that
// has both needs two integers in nearly the ratio of lo and hi and a scale that
// suits both: pairs are tried by the error that they force, then group scales,
// then the binary16 numbers beside what they ask for. That is done once a row,
// for blocks with both magnitudes and for those with one.
type sixBit struct {
	plans  [4]sixPlan // by what a block has: 1 lo, 2 hi, 3 both
	ready  [4]bool
	counts [4][2]float64 // in the row: weights of lo and hi in groups by what these have
	q      [256]int8
}

// sixPlan is a block's scale, and for groups by what they have a group scale and
// the integers of lo and hi.
type sixPlan struct {
	d     uint16
	group [4]sixGroup
}

type sixGroup struct {
	scale  int8
	lo, hi int8
}

func (s *sixBit) row(dst []byte, part *ternary.Tensor, r int) {
	w := part.Ternary
	at := r * w.Stride
	bp, bn, br := w.BP[at:at+w.Cols/8], w.BN[at:at+w.Cols/8], w.BR[at:at+w.Cols/8]
	s.ready = [4]bool{}
	s.counts = [4][2]float64{}
	for b := 0; b < len(bp); b += 2 {
		lo, hi := groupCounts(bp[b:], bn[b:], br[b:])
		has := presence([4]float64{lo, 0, hi, 0})
		s.counts[has][0] += lo
		s.counts[has][1] += hi
	}
	for b := 0; b < len(bp); b += 32 {
		var has [16]int
		all := 0
		for g := range has {
			lo, hi := groupCounts(bp[b+2*g:], bn[b+2*g:], br[b+2*g:])
			has[g] = presence([4]float64{lo, 0, hi, 0})
			all |= has[g]
		}
		plan := s.plan(all, float64(w.SLo[r]), float64(w.SHi[r]))
		var scales [16]int8
		for g := range has {
			c := plan.group[has[g]]
			scales[g] = c.scale
			p, n, h := word16(bp[b+2*g:]), word16(bn[b+2*g:]), word16(br[b+2*g:])
			fill(s.q[16*g:16*g+16], p, n, h, [4]int8{c.lo, -c.lo, c.hi, -c.hi})
		}
		packQ6(dst, plan.d, &scales, s.q[:])
		dst = dst[210:]
	}
}

func word16(b []byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 }

// groupCounts counts the weights of lo and of hi among 16.
func groupCounts(bp, bn, br []byte) (lo, hi float64) {
	set, high := word16(bp)|word16(bn), word16(br)
	return float64(bits.OnesCount32(set &^ high)), float64(bits.OnesCount32(set & high))
}

// plan returns the row's plan for blocks that have these magnitudes.
func (s *sixBit) plan(has int, lo, hi float64) *sixPlan {
	p := &s.plans[has]
	if s.ready[has] {
		return p
	}
	s.ready[has] = true
	*p = sixPlan{}
	switch has {
	case 1:
		p.d, p.group[1] = single(lo)
	case 2:
		p.d, p.group[2] = single(hi)
		p.group[2].lo, p.group[2].hi = 0, p.group[2].lo
	case 3:
		*p = s.both(lo, hi)
	}
	return p
}

const (
	sixMax   = 31  // the largest integer
	groupMax = 127 // the largest group scale
)

// single returns the scale, group scale and integer (as lo) that come nearest to
// v, which is all that the block has.
func single(v float64) (d uint16, g sixGroup) {
	least := math.Inf(1)
	for scale := groupMax; scale > groupMax/2; scale-- {
		for q := sixMax; q > sixMax/2; q-- {
			for _, h := range halvesNear(math.Abs(v) / float64(scale*q)) {
				if e := math.Abs(float64(gguf.Float16(h))*float64(scale*q) - math.Abs(v)); e < least {
					least, d, g = e, h, sixGroup{scale: int8(scale), lo: int8(q)}
				}
			}
		}
	}
	if v < 0 {
		g.lo = -g.lo
	}
	return d, g
}

// halvesNear returns the binary16 numbers on both sides of x.
func halvesNear(x float64) [2]uint16 {
	h := halfDown(x)
	return [2]uint16{h, min(h+1, maxHalf)}
}

// pair is two integers for lo and hi, the unit (scale times group scale) that
// suits them best, and the squared error that is left.
type pair struct{ lo, hi, unit, err float64 }

// pairs returns the best few pairs for n[0] weights of lo and n[1] of hi.
func pairs(lo, hi float64, n [2]float64) []pair {
	var list []pair
	large, swap := hi, false
	if math.Abs(lo) > math.Abs(hi) {
		lo, large, swap = hi, lo, true
		n[0], n[1] = n[1], n[0]
	}
	for b := 1; b <= sixMax; b++ {
		low := math.Floor(math.Abs(lo/large) * float64(b))
		for a := low; a <= min(low+1, sixMax); a++ {
			p := pair{lo: math.Copysign(a, lo*large), hi: float64(b)}
			p.unit = (n[0]*p.lo*lo + n[1]*p.hi*large) / (n[0]*a*a + n[1]*p.hi*p.hi)
			e, f := p.lo*p.unit-lo, p.hi*p.unit-large
			p.err = n[0]*e*e + n[1]*f*f
			if swap {
				p.lo, p.hi = p.hi, p.lo
			}
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b pair) int {
		switch {
		case a.err < b.err:
			return -1
		case a.err > b.err:
			return 1
		}
		return 0
	})
	return list[:4]
}

// both returns the plan for blocks that have groups of all kinds.
func (s *sixBit) both(lo, hi float64) sixPlan {
	if lo == 0 && hi == 0 {
		return sixPlan{}
	}
	n := s.counts[3]
	if n == [2]float64{} { // no group has both: any mix will do
		n = [2]float64{1, 1}
	}
	type option struct {
		sixPlan
		err float64
	}
	var few []option // the best for groups with both, by rising error
	for _, p := range pairs(lo, hi, n) {
		sign := math.Copysign(1, p.unit)
		for scale := groupMax; scale >= 32; scale-- {
			for _, h := range halvesNear(math.Abs(p.unit) / float64(scale)) {
				unit := sign * float64(gguf.Float16(h)) * float64(scale)
				e, f := p.lo*unit-lo, p.hi*unit-hi
				o := option{err: n[0]*e*e + n[1]*f*f}
				if len(few) == closer && o.err >= few[closer-1].err {
					continue
				}
				o.d = h
				o.group[3] = sixGroup{int8(scale), int8(sign * p.lo), int8(sign * p.hi)}
				at, _ := slices.BinarySearchFunc(few, o, func(a, b option) int {
					if a.err <= b.err {
						return -1
					}
					return 1
				})
				few = slices.Insert(few, at, o)
				few = few[:min(len(few), closer)]
			}
		}
	}
	// Among those the one that also suits groups with one magnitude.
	best, least := sixPlan{}, math.Inf(1)
	for _, o := range few {
		o.group[1] = under(o.d, lo)
		o.group[2] = under(o.d, hi)
		o.group[2].lo, o.group[2].hi = 0, o.group[2].lo
		d := float64(gguf.Float16(o.d))
		e := d*float64(o.group[1].scale)*float64(o.group[1].lo) - lo
		f := d*float64(o.group[2].scale)*float64(o.group[2].hi) - hi
		if sum := o.err + s.counts[1][0]*e*e + s.counts[2][1]*f*f; sum < least {
			best, least = o.sixPlan, sum
		}
	}
	return best
}

// closer is how many plans for groups with both magnitudes are looked at closely.
const closer = 8

// under returns the group scale and the integer (as lo) that come nearest to v
// under the scale d.
func under(d uint16, v float64) (g sixGroup) {
	least := math.Inf(1)
	unit := float64(gguf.Float16(d))
	for scale := 1; scale <= groupMax && unit > 0; scale++ {
		x := unit * float64(scale)
		q := min(math.RoundToEven(math.Abs(v)/x), sixMax)
		if e := math.Abs(q*x - math.Abs(v)); e < least {
			least, g = e, sixGroup{scale: int8(scale), lo: int8(math.Copysign(q, v))}
		}
	}
	return g
}
