package foreign

import (
	"fmt"
	"math"
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
		x.err = x.each(0, x.rows, func(r int, v []float32) error {
			s := 0.0
			for _, f := range v {
				s += math.Abs(float64(f))
			}
			if sums[r] = s; s-s != 0 {
				return x.wrong(pack.ErrCorrupt, r, "a value that is not finite", "finite weights", hintDamaged)
			}
			return nil
		})
		total := 0.0
		for _, s := range sums {
			total += s
		}
		mean := max(float32(total/(float64(x.rows)*float64(x.cols))), 1e-5)
		x.scale = 1 / mean
		x.size = 1 / x.scale
	})
	return x.err
}

func (x *master) matrix(m *ternary.Matrix, r0 int, k known) error {
	if err := x.prepare(); err != nil {
		return err
	}
	return x.each(r0, r0+m.Rows, func(r int, v []float32) error {
		near := int64(0)
		for i, f := range v {
			n := f * x.scale
			a := max(n, -n)
			if d := a - 0.5; max(d, -d) <= 0.5*thresholdSlack {
				near++
			}
			switch {
			case a <= 0.5: // 0.5 is rounded to even
				v[i] = 0
			case n < 0:
				v[i] = -x.size
			default:
				v[i] = x.size
			}
		}
		x.near.Add(near)
		if err := putRow(m, r-r0, v, k.scales, nil); err != nil {
			return x.misfit(r, err)
		}
		return nil
	})
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
