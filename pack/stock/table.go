package stock

import (
	"math"

	"npack/gguf"
	"npack/ternary"
)

// table encodes embedding rows, int8 values times one scale, into Q8_0: the
// integers stay as they are, times a whole number where the block's values leave
// room for one, so that only the scale is rounded. The whole number is the one
// whose binary16 scale is nearest to the row's.
type table struct {
	best [128]scaled // by the largest factor that may be used
	q    [32]int8
}

type scaled struct {
	factor int
	d      uint16 // binary16
}

func (t *table) row(dst []byte, part *ternary.Tensor, r int) {
	t.scale(float64(part.Int8.Scale[r]))
	for row := part.Int8.Row(r); len(row) > 0; row, dst = row[32:], dst[34:] {
		largest := 1
		for _, v := range row[:32] {
			largest = max(largest, int(v), -int(v))
		}
		c := t.best[max(1, 127/largest)] // -128 is larger than 127 and stays
		for i, v := range row[:32] {
			t.q[i] = int8(int(v) * c.factor)
		}
		packQ8(dst, c.d, t.q[:])
	}
}

// scale finds the factors for a row's scale.
func (t *table) scale(s float64) {
	least := math.Inf(1)
	for k := 1; k < len(t.best); k++ {
		t.best[k] = t.best[k-1]
		d := gguf.ToFloat16(float32(s / float64(k)))
		if k == 1 && d&0x7fff > maxHalf { // an infinity, which larger factors avoid
			d = d&0x8000 | maxHalf
		}
		if e := math.Abs(float64(gguf.Float16(d))*float64(k) - s); e < least {
			least, t.best[k] = e, scaled{k, d}
		}
	}
}
