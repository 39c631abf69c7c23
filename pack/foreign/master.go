package foreign

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"npack/pack"
	"npack/ternary"
)

// master is a matrix of BitNet b1.58 as it is trained: numbers that the model
// itself makes ternary whenever it runs. With m the mean of their magnitudes,
// at least 1e-5, and s = 1/m, a weight is round(w·s), clamped to -1 … +1, times
// 1/s; all in float32, whatever the numbers are stored as.
type master struct {
	values
	once  sync.Once
	err   error
	scale float32 // s
	size  float32 // 1/s, the magnitude
	// codes are those of all bf16 numbers, if the weights are stored as such.
	bf16  bool
	codes [1 << 16]byte
	// near counts the weights whose w·s is so close to ±0.5 that a program that
	// adds the mean in another order may take them differently.
	near *atomic.Int64
}

// thresholdSlack is how far, as a part of it, a mean that was added up in float32
// in blocks may be from the correctly rounded one: at most 64 additions follow
// each other in a level, and there are four levels, each of half a 2^-24.
const thresholdSlack = 4 * 64 * 0x1p-25

// prepare finds the scale. The sum is taken in float64 row by row, which is far
// finer than a float32, and the mean is rounded once.
func (x *master) prepare() error {
	x.once.Do(func() {
		sums := make([]float64, x.rows)
		check := func(r int, sum float64) error {
			if sums[r] = sum; sum-sum != 0 {
				return x.wrong(pack.ErrCorrupt, r, "a value that is not finite", "finite weights", hintDamaged)
			}
			return nil
		}
		if x.bf16 {
			x.err = x.eachRow(0, x.rows, func(r int, b []byte) error { return check(r, sumBF16(b)) })
		} else {
			x.err = x.each(0, x.rows, func(r int, v []float32) error { return check(r, sumMagnitudes(v)) })
		}
		total := 0.0
		for _, s := range sums {
			total += s
		}
		mean := max(float32(total/(float64(x.rows)*float64(x.cols))), 1e-5)
		x.scale = 1 / mean
		x.size = 1 / x.scale
		if x.bf16 {
			for i := range x.codes {
				x.codes[i] = x.code(math.Float32frombits(uint32(i) << 16))
			}
		}
	})
	return x.err
}

func sumMagnitudes(v []float32) (sum float64) {
	for _, f := range v {
		sum += math.Abs(float64(f))
	}
	return sum
}

// sumBF16 is sumMagnitudes for bf16 numbers, in four lanes, which follow each
// other faster.
func sumBF16(b []byte) float64 {
	var s [4]float64
	magnitude := func(w uint64) float64 { return float64(math.Float32frombits(uint32(w) << 16 &^ signBit)) }
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		s[0] += magnitude(w)
		s[1] += magnitude(w >> 16)
		s[2] += magnitude(w >> 32)
		s[3] += magnitude(w >> 48)
	}
	for ; len(b) >= 2; b = b[2:] {
		s[0] += magnitude(uint64(binary.LittleEndian.Uint16(b)))
	}
	return s[0] + s[1] + (s[2] + s[3])
}

// nearBit marks the code of a number that is close to the threshold.
const nearBit = 8

// code is what the model makes of a number: the bits of bp and bn, and nearBit.
func (x *master) code(f float32) byte {
	n := f * x.scale
	a := max(n, -n)
	code := byte(0)
	if a > 0.5 { // 0.5 itself is rounded to even
		code = 1
		if n < 0 {
			code = 2
		}
	}
	if d := a - 0.5; max(d, -d) <= 0.5*thresholdSlack {
		code |= nearBit
	}
	return code
}

func (x *master) matrix(m *ternary.Matrix, r0 int, k known) error {
	if err := x.prepare(); err != nil {
		return err
	}
	if x.bf16 {
		return x.eachRow(r0, r0+m.Rows, func(r int, b []byte) error {
			x.near.Add(x.putCodes(m, r-r0, b))
			return nil
		})
	}
	return x.each(r0, r0+m.Rows, func(r int, v []float32) error {
		near := int64(0)
		for i, f := range v {
			code := x.code(f)
			near += int64(code / nearBit)
			v[i] = [3]float32{0, x.size, -x.size}[code%nearBit]
		}
		x.near.Add(near)
		if err := putRow(m, r-r0, v, k.scales, nil); err != nil {
			return x.misfit(r, err)
		}
		return nil
	})
}

// putCodes writes a row of bf16 numbers through the table of their codes, and
// compares the planes with them. It returns how many numbers are close to the
// threshold.
func (x *master) putCodes(m *ternary.Matrix, r int, b []byte) (near int64) {
	bp, bn, br := planeRow(m.BP, m, r), planeRow(m.BN, m, r), planeRow(m.BR, m, r)
	var bad uint64
	var tail [16]byte // zeros, whose code is 0
	i := 0
	for ; len(b) > 0; i++ {
		var eight *[16]byte
		if len(b) >= 16 {
			eight, b = (*[16]byte)(b), b[16:]
		} else {
			copy(tail[:], b)
			eight, b = &tail, nil
		}
		var codes uint64
		for half := range 2 {
			four := binary.LittleEndian.Uint64(eight[8*half:])
			codes = codes>>32 | uint64(x.codes[four&0xffff])<<32 | uint64(x.codes[four>>16&0xffff])<<40 |
				uint64(x.codes[four>>32&0xffff])<<48 | uint64(x.codes[four>>48])<<56
		}
		near += int64(bits.OnesCount64(codes & (nearBit * lowBits)))
		bp[i], bn[i] = gather(codes), gather(codes>>1)
		bad |= (spread[bp[i]] | spread[bn[i]]<<1) ^ codes&(3*lowBits)
	}
	clear(bp[i:])
	clear(bn[i:])
	clear(br)
	if bad != 0 {
		panic("foreign: weights that were made differ from the source's")
	}
	m.SLo[r], m.SHi[r] = x.size, x.size
	m.RSLo[r], m.RSHi[r] = rowSums(m, r)
	return near
}

func (x *master) table(*ternary.Int8Matrix, int, known) error {
	return x.wrong(pack.ErrUnsupported, -1, "an embedding of numbers to be made ternary", "a table of numbers", "")
}

// tableReport is what is known of the tables that were read.
type tableReport struct {
	round  bool        // where no scale holds a row, take the nearest values
	narrow atomic.Bool // some products are the source's values only when rounded to its type

	mu      sync.Mutex
	rounded int64   // rows
	largest float64 // error, as a part of the row's largest value
	sum     float64 // of squares of errors and of values
	all     float64
}

// nearest sets q to the multiples of a 127th of v's largest magnitude that are
// nearest, and returns it.
func (t *tableReport) nearest(q []int8, v []float32) float32 {
	var largest float32
	for _, f := range v {
		largest = max(largest, f, -f)
	}
	s := largest / 127
	worst, sum, all := 0.0, 0.0, 0.0
	for i, f := range v {
		q[i] = int8(max(-127, min(127, math.RoundToEven(float64(f)/float64(s)))))
		d := math.Abs(float64(f) - float64(float32(q[i])*s))
		worst, sum, all = max(worst, d), sum+d*d, all+float64(f)*float64(f)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounded++
	t.largest = max(t.largest, worst/float64(largest))
	t.sum, t.all = t.sum+sum, t.all+all
	return s
}

func (t *tableReport) String() string {
	return fmt.Sprintf("%d rows of embeddings are rounded to int8: the largest error is %.3g of a row's largest value, the relative error of all %.3g", t.rounded, t.largest, math.Sqrt(t.sum/t.all))
}
