package cpu

import (
	"errors"
	"fmt"

	"npack/runtime/backend"
	"npack/ternary"
)

// A group of columns has 64 bytes in a plane: one cache line, and one vector of AVX-512.
const (
	groupBytes  = 64
	groupCols   = 8 * groupBytes
	groupBlocks = groupCols / blockCols
)

// inPlace is the exact product of weights in the planes of a file, as they lie there,
// and activations of P digits.
//
// # Activations
//
// x [groups][8][P][64] int8: the digits of group g, bit s and byte j are those of
// column 512g + 8j+s. So byte j of a plane meets byte j of the digits, whichever bit
// is looked at. Columns that are not there are 0.
type inPlace struct {
	present func() bool // whether this processor has the instructions
	// form writes the activations x [blocks][P][32] as dot wants them.
	form func(dst, x []int8, planes, blocks int)
	// dot writes the sums [2][P][R] of rows row to row+R of m, which has all of them. It
	// reads nothing behind the last byte that has a column.
	dot func(sums []int32, m *ternary.Matrix, row int, x []int8)
	// direct is the number of columns up to which dot for each is quicker than
	// arranging a tile and what then follows.
	direct int
}

// placed gives the linears of a set what they do in place.
func placed(set [4]*linear, of func(planes int) inPlace) [4]*linear {
	for planes := 1; planes <= 3; planes++ {
		p := of(planes)
		set[planes].inPlace = &p
	}
	return set
}

// inPlaceBytes is the number of bytes of activations, as [inPlace] has them, for so many blocks.
func inPlaceBytes(planes, blocks int) int { return roundUp(blocks*blockCols, groupCols) * planes }

func formInPlaceGeneric(dst, x []int8, planes, blocks int) {
	clear(dst[:inPlaceBytes(planes, blocks)])
	for i := range blocks * planes {
		b, p := i/planes, i%planes
		to := dst[(b/groupBlocks*8*planes+p)*groupBytes+b%groupBlocks*4:]
		for c, v := range x[i*blockCols:][:blockCols] {
			to[c%8*planes*groupBytes+c/8] = v
		}
	}
}

func dotInPlaceGeneric(planes int) func([]int32, *ternary.Matrix, int, []int8) {
	return func(sums []int32, m *ternary.Matrix, row int, x []int8) {
		R := len(sums) / 2 / planes
		clear(sums)
		for r := range R {
			at := (row + r) * m.Stride
			for j := range (m.Cols + 7) / 8 {
				bp, bn, br := m.BP[at+j], m.BN[at+j], m.BR[at+j]
				zero := ^(bp ^ bn)
				for s := range 8 {
					t := int32(bp>>s&1<<1 | zero>>s&1)
					q := t ^ int32(br>>s&1<<1)
					digits := x[(j/groupBytes*8+s)*planes*groupBytes+j%groupBytes:]
					for p := range planes {
						d := int32(digits[p*groupBytes])
						sums[p*R+r] += t * d
						sums[(planes+p)*R+r] += q * d
					}
				}
			}
		}
	}
}

// ErrZeroCopy is wrapped where weights cannot be used as they lie in their file.
var ErrZeroCopy = errors.New("zero-copy is not possible")

// worksInPlace reports whether k, on this processor, has kernels for planes of a file.
func (k *kernels) worksInPlace() bool {
	l := k.linear[1].inPlace
	return l != nil && l.present()
}

// Suits returns an error wrapping [ErrZeroCopy] if b is to use the weights of m where they
// lie and cannot.
func (b Backend) Suits(m *ternary.Model) error {
	if b.ZeroCopy && m.Rows != nil {
		return fmt.Errorf("%w: this format holds no bit planes", ErrZeroCopy)
	}
	return nil
}

// arrangedBytes is how much of a matrix that is in place is arranged at once. All
// columns of a pass meet it, so that it is arranged once, and it stays in the
// second-level cache.
const arrangedBytes = 256 << 10

// arrangedTogether is arrangedBytes, or what a tile of so many columns takes if that is more.
func (l *linear) arrangedTogether(cols int) int { return max(arrangedBytes, cols/blockCols*12*l.rows) }

// adopt is load for weights that stay where they are: it reads magnitudes alone.
func (in *instance) adopt(m *ternary.Model) error {
	for t := range m.Tensors() {
		if err := backend.CheckTensor(t); err != nil {
			return err
		}
		if t.Ternary != nil {
			d := in.matrixOf(m, t)
			copy(d.lo, t.Ternary.SLo)
			copy(d.hi, t.Ternary.SHi)
		}
	}
	return nil
}

// inPlace is linear for the tiles of m from first to end, whose weights are in their
// file. A pass over few columns reads the planes. A wider one, and the first one over a
// tile, which has to look whether they contradict each other, arranges tiles and goes on with them.
// So does every pass over a tile that lacks rows.
func (in *instance) inPlace(w *worker, m *matrix, first, end int, y []float32, stride int) {
	p, l, tile := &in.pass, in.l, m.tile(in.l)
	for t := first; t < end; {
		if p.direct && m.right[t] {
			for i := range p.batch {
				sums := w.sums[:2*l.planes*l.rows]
				l.inPlace.dot(sums, m.planes, t*l.rows, p.inPlace[i*in.pad.inPlace:])
				in.finish(m, t, i, sums, y, stride)
			}
			t++
			continue
		}
		n := min(len(w.tiles)/tile, end-t)
		for i := t; i < t+n; i++ {
			right := l.arrange(w.tiles[(i-t)*tile:][:tile], m.planes, i*l.rows, l.rows, m.blocks)
			if !right {
				p.contradicts.Store(true)
			}
			m.right[i] = right && (i+1)*l.rows <= m.rows
		}
		in.tiles(w, m, t, w.tiles[:n*tile], y, stride)
		t += n
	}
}

// contradiction names the first rows of the pass's layer whose planes contradict each other.
func (in *instance) contradiction() error {
	w := in.pool.workers[0]
	for j, m := range in.layers[in.pass.layer].linears() {
		for r := 0; r < m.rows; r += in.l.rows {
			if !in.l.arrange(w.tiles[:m.tile(in.l)], m.planes, r, in.l.rows, m.blocks) {
				return fmt.Errorf("%s: %w", ternary.LayerName(in.pass.layer, ternary.Projections[j]), m.invalid(r, in.l))
			}
		}
	}
	return ErrInvalid
}
