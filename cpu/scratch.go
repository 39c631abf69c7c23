package cpu

import (
	"math"
	"sync/atomic"

	"npack/runtime/backend"
	"npack/runtime/reference"
)

const infBits = 0x7f800000 // of float32; NaN lies above

// quantizeVector writes x as 8-bit integers, most being the bits of its largest
// magnitude, and returns the scale (NUMERICS.md, section 5, int8 cache).
func quantizeVector(q []int8, x []float32, most uint32) float32 {
	m := math.Float32frombits(most)
	if m < 0x1p-40 {
		clear(q)
		return 0
	}
	up := mul(127, reference.Recip(m))
	for d, v := range x {
		q[d] = int8(min(max(math.RoundToEven(float64(mul(v, up))), -127), 127))
	}
	return mul(m, 1.0/127)
}

// scratch is the memory of one worker.
type scratch struct {
	lanes [256]float32
	vec   []float32 // [widest]: a normed vector
	head  []float32 // [dimPad]
	keys  []float32 // [chunk*dimPad]
	vals  []float32 // [chunk*dimPad]
	p     []float32 // [heads that share keys][chunk]: scores, then weights
	sums  []int32   // [columns that meet a tile together][2][P][R]
	many  []byte    // what linear.many needs
	tiles []byte    // of weights that are in place, those that are arranged at the moment
	dots  [tableMost]int64
}

// pass is the state of one call of Forward: a batch of columns on its way
// through the layers. Vectors are padded with zeros to whole blocks. The memory
// is kept from call to call, for as many columns as have been needed.
type pass struct {
	batch []backend.Column
	seqs  []*sequence // by run
	room  int         // columns there is memory for
	l     *linear     // what does the linears of so many columns

	direct bool // the planes of weights in place are read, not arranged

	x       []float32 // [columns][hidden]: the residual stream
	q, k, v []float32 // [columns][QDim or KVDim]
	heads   []float32 // [columns][Heads][dimPad]: rotated queries
	mix     []float32 // [columns][QDim]: what attention gives
	gate    []float32 // [columns][Intermediate], later the MLP's middle
	up      []float32 // [columns][Intermediate]

	fixed    []int8        // [columns][fixedStride]: activations in fixed point
	formed   []int8        // [columns][formedStride]: activations as l wants them, if not as digits
	inPlace  []int8        // [columns][inPlaceStride]: activations for planes in place
	scales   []activations // [columns]
	packed   []byte        // [columns][packedStride]: activations for the tables
	wanted   []int         // columns that want logits
	groups   []group
	partial  []float32    // [columns of a round][chunks][Heads][dimPad]
	partials []partialSum // [columns of a round][chunks][Heads]

	layer  int
	failed atomic.Bool // a value was not finite; any worker may set it
	// Planes of weights in place contradict each other; any worker may set it.
	contradicts atomic.Bool
	from, to    int // columns of attention's round
	chunks      int // of the longest column, in whole steps of the cache
}

// activations is how the integers of a column relate to its values.
type activations struct {
	sum           int64   // of the integers
	before, after float32 // see kernels.finish
}

// partialSum is the largest score of a chunk and the sum of its exponentials.
type partialSum struct{ m, l float32 }

// group is the columns of one sequence in a round of attention.
type group struct {
	seq      *sequence
	from, to int // columns
	first    int // index of its first task
	chunks   int
}

// resize returns s with n elements, all 0 if they are new.
func resize[E any](s []E, n int) []E {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]E, n)
}
