package gpu

import (
	"fmt"
	"math"

	"npack/gpu/kernels"
	"npack/runtime/backend"
	"npack/ternary"
)

// shape is what follows from a model's geometry and the options: how wide
// everything is, and what it takes.
type shape struct {
	c          *ternary.Config
	o          backend.Options
	planes     int // digits of the activations of linears
	headPlanes int // of those of the output embedding
	headPad    int // elements of a head vector on the device
	yStride    int // floats of a column of scratch.y
}

func newShape(c *ternary.Config, o backend.Options) shape {
	s := shape{c: c, o: o, planes: int(o.Activations), headPlanes: int(o.Activations), headPad: kernels.HeadPad(c.HeadDim)}
	if c.Arch == ternary.BitNet {
		s.planes = 1
	}
	s.yStride = max(c.QDim()+2*c.KVDim(), c.Intermediate)
	return s
}

// check refuses what the kernels cannot run.
func (s *shape) check() error {
	c := s.c
	if cols := max(c.Hidden, c.QDim(), c.Intermediate); cols > kernels.MaxCols {
		return fmt.Errorf("a linear has %d columns; these kernels take up to %d", cols, kernels.MaxCols)
	}
	if c.HeadDim > kernels.MaxHeadDim {
		return fmt.Errorf("heads have %d dimensions; these kernels take up to %d", c.HeadDim, kernels.MaxHeadDim)
	}
	if n := s.headGroups(); n > maxGrid {
		return fmt.Errorf("%d groups of heads; these kernels take up to %d", n, maxGrid)
	}
	return nil
}

// maxGrid is the most blocks of a launch in its second and third direction.
const maxGrid = 1<<16 - 1

// headGroups is the number of groups of up to 4 query heads that share keys.
func (s *shape) headGroups() int { return s.c.KVHeads * divUp(s.c.Heads/s.c.KVHeads, 4) }

// place is a part of a buffer, in bytes. Without a size it is absent.
type place struct{ off, size int64 }

// in returns p as an argument.
func (p place) in(b Buffer) Arg {
	if p.size == 0 {
		return Arg{}
	}
	return Arg{Buf: b, Val: uint64(p.off)}
}

// layout hands out the places of a buffer, one after the other.
type layout struct{ size int64 }

func (l *layout) place(size int64) place {
	p := place{l.size, size}
	l.size += (size + 255) &^ 255
	return p
}

// The linears of a layer on the device. Those that read the same vector are one.
const (
	qkv = iota
	attnOut
	gateUp
	down
	numLinears
)

// member is where a linear of the model lies in one of the device's.
type member struct {
	linear int
	row    int // its first one
	as     kernels.Place
}

// members returns the places of the seven linears of a layer, in their order.
func (s *shape) members() [ternary.NumProjections]member {
	q, kv := s.c.QDim(), s.c.KVDim()
	return [ternary.NumProjections]member{
		{qkv, 0, kernels.Whole}, {qkv, q, kernels.Whole}, {qkv, q + kv, kernels.Whole},
		{attnOut, 0, kernels.Whole}, {gateUp, 0, kernels.Gate}, {gateUp, 0, kernels.Up}, {down, 0, kernels.Whole},
	}
}

// linear is one of the device's. Its planes, scales and biases lie side by side.
type linear struct {
	rows          int // outputs that are written: of gate and up the gates
	strips, tiles int
	planes        place // kernels.PackPlanes
	scales        place // float32 [16*strips][2]
	bias          place // float32 [16*strips], or absent
}

// bytes is what the parts take, from the start of planes on.
func (w *linear) bytes() int64 {
	return max(w.scales.off+w.scales.size, w.bias.off+w.bias.size) - w.planes.off
}

// layer is one transformer block.
type layer struct {
	buf     Buffer
	linears [numLinears]linear

	attnNorm, ffnNorm, qNorm, kNorm, attnSubNorm, ffnSubNorm place // float32
}

// norms returns the places in the order of [ternary.Layer.Norms].
func (l *layer) norms(c *ternary.Config) []*place {
	switch c.Arch {
	case ternary.BitNet:
		return []*place{&l.attnNorm, &l.ffnNorm, &l.attnSubNorm, &l.ffnSubNorm}
	case ternary.Qwen3:
		return []*place{&l.attnNorm, &l.ffnNorm, &l.qNorm, &l.kNorm}
	}
	return []*place{&l.attnNorm, &l.ffnNorm}
}

// placeLayer lays out a block of the model and returns it with its size in bytes.
func (s *shape) placeLayer(m *ternary.Layer) (layer, int64) {
	var l layer
	var at layout
	c := s.c
	var biased [numLinears]bool
	for i, w := range m.Linears() {
		if w.Bias != nil {
			biased[s.members()[i].linear] = true
		}
	}
	for i, d := range [numLinears]struct{ rows, strips, cols int }{
		qkv:     {c.QDim() + 2*c.KVDim(), kernels.Strips(c.QDim() + 2*c.KVDim()), c.Hidden},
		attnOut: {c.Hidden, kernels.Strips(c.Hidden), c.QDim()},
		gateUp:  {c.Intermediate, kernels.Strips(kernels.Up.Row(c.Intermediate-1) + 1), c.Hidden},
		down:    {c.Hidden, kernels.Strips(c.Hidden), c.Intermediate},
	} {
		w := &l.linears[i]
		w.rows, w.strips, w.tiles = d.rows, d.strips, kernels.Tiles(d.cols)
		w.planes = at.place(kernels.PlaneBytes(w.strips, w.tiles))
		w.scales = at.place(int64(w.strips) * kernels.StripRows * 8)
		if biased[i] {
			w.bias = at.place(int64(w.strips) * kernels.StripRows * 4)
		}
	}
	norms := l.norms(c)
	for i, n := range m.Norms(c) {
		*norms[i] = at.place(4 * int64(n.Len))
	}
	return l, at.size
}

// table is an embedding table, and the norm before it.
type table struct {
	buf           Buffer
	strips, tiles int
	rows, scales  place // kernels.PackTable; float32 [16*strips]
	norm          place // float32 [hidden], of the output embedding
}

func (s *shape) placeTable(norm bool) (table, int64) {
	var at layout
	t := table{strips: kernels.Strips(s.c.Vocab), tiles: kernels.Tiles(s.c.Hidden)}
	t.rows = at.place(kernels.TableBytes(t.strips, t.tiles))
	t.scales = at.place(int64(t.strips) * kernels.StripRows * 4)
	if norm {
		t.norm = at.place(4 * int64(s.c.Hidden))
	}
	return t, at.size
}

// cacheBytes is what the cache of a layer takes for so many steps.
func (s *shape) cacheBytes(steps int) (values, scales int64) {
	vectors := int64(steps) * 2 * int64(s.c.KVHeads) * step
	switch s.o.KV {
	case backend.KVF32:
		return vectors * int64(s.headPad) * 4, 0
	case backend.KVInt8:
		return vectors * int64(s.headPad), vectors * 4
	}
	return vectors * int64(s.headPad) * 2, 0
}

const (
	// maxColumns is the most columns that go through the layers together.
	maxColumns = 512
	// headColumns is the most whose logits are computed together.
	headColumns = 8
	// partialBytes bounds the memory for what chunks of attention give before they
	// are put together, unless one column alone needs more.
	partialBytes = 32 << 20
)

// room is the number of columns that there is memory for where n are needed.
func room(n int) int {
	for _, r := range []int{headColumns, 32, 128} {
		if n <= r {
			return r
		}
	}
	return maxColumns
}

// scratch is the memory of passes of up to room columns.
type scratch struct {
	buf  Buffer
	room int

	x       place // float32 [room][hidden]: the residual stream
	y       place // float32 [room][yStride]: q, k and v; then what attention gives; then the middle of the MLP
	heads   place // float32 [room][Heads][headPad]: rotated queries
	digits  place // fixed-point activations, kernels.DigitsBytes or BitsBytes
	scales  place // float32 [room], of them
	largest place // uint32 [room]: bits of the largest magnitude in y
	input   place // int32: ids, positions, columns whose logits are wanted
	logits  place // float32 [headColumns][Vocab]
	ranked  [2]place
	output  place // int32 fault, padded to outputHead; then key and id of ranked tokens
}

// outputHead is the number of bytes before the ranked tokens in scratch.output.
const outputHead = 16

func (s *shape) placeScratch(room int) (scratch, int64) {
	c, n := s.c, int64(room)
	tiles := kernels.Tiles(max(c.Hidden, c.QDim(), c.Intermediate))
	slices, choices := rankSlices(c.Vocab), rankSlices(rankSlices(c.Vocab)*backend.MaxRanked)
	var at layout
	t := scratch{
		room:  room,
		x:     at.place(4 * n * int64(c.Hidden)),
		y:     at.place(4 * n * int64(s.yStride)),
		heads: at.place(4 * n * int64(c.Heads) * int64(s.headPad)),
		digits: at.place(max(kernels.DigitsBytes(room, s.planes, tiles), kernels.BitsBytes(1, s.planes, tiles),
			kernels.DigitsBytes(headColumns, s.headPlanes, kernels.Tiles(c.Hidden)))),
		scales:  at.place(4 * n),
		largest: at.place(4 * n),
		input:   at.place(4 * 3 * n),
		logits:  at.place(4 * headColumns * int64(c.Vocab)),
		output:  at.place(outputHead + headColumns*backend.MaxRanked*8),
	}
	t.ranked[0] = at.place(headColumns * int64(slices) * backend.MaxRanked * 8)
	t.ranked[1] = at.place(headColumns * int64(choices) * backend.MaxRanked * 8)
	return t, at.size
}

// The numbers of logits that a block of argmax and a slice of topk look at.
const (
	argmaxSlice = 4096
	rankSlice   = 512
)

// rankSlices is how many slices topk makes of n candidates.
func rankSlices(n int) int { return (n + rankSlice - 1) / rankSlice }

// partial is what attention over chunks gives for columns, before it is put together.
type partial struct {
	sums place // float32 [columns][chunks][Heads][2]: the largest score, the sum of the exponentials
	mix  place // float32 [columns][chunks][Heads][headPad]
}

func (s *shape) placePartial(columns, chunks int) (partial, int64) {
	var at layout
	n := int64(columns) * int64(chunks) * int64(s.c.Heads)
	p := partial{sums: at.place(n * 8), mix: at.place(n * int64(s.headPad) * 4)}
	return p, at.size
}

// round is how many of n columns attention takes together over so many chunks.
func (s *shape) round(n, chunks int) int {
	_, one := s.placePartial(1, chunks)
	return int(min(int64(n), max(1, partialBytes/one)))
}

// rotaryBytes is what the cosines, and again the sines, of so many positions take.
func (s *shape) rotaryBytes(positions int) int64 {
	return int64(positions) * int64(s.c.RotaryDims/2) * 4
}

// Plan implements [backend.Planner].
func (b *Backend) Plan(m *ternary.Model, o backend.Options, context, columns int) backend.Memory {
	return Plan(m, o, context, columns)
}

// Plan is [backend.Planner]'s, for any device: the sums of what is allocated there,
// which a test compares.
func Plan(m *ternary.Model, o backend.Options, context, columns int) (mem backend.Memory) {
	if o.Activations == 0 {
		o.Activations = backend.Exact
	}
	c := &m.Config
	s := newShape(c, o)
	for i := range m.Layers {
		_, size := s.placeLayer(&m.Layers[i])
		mem.Weights += size
		mem.Token += size
	}
	_, head := s.placeTable(true)
	mem.Weights += head
	mem.Token += head
	if m.Embed != nil {
		_, embed := s.placeTable(false)
		mem.Weights += embed
		mem.Token += int64(c.Hidden) + 4
	}
	if context > 0 {
		values, scales := s.cacheBytes(steps(context))
		mem.Cache = int64(c.Layers+1) * (values + scales) // one layer is there twice while it grows
	}
	columns = min(columns, maxColumns)
	chunks := steps(context) * step / kernels.Chunk
	_, buffers := s.placeScratch(room(columns))
	_, partials := s.placePartial(s.round(columns, max(1, chunks)), chunks)
	mem.Buffers = buffers + partials + 2*s.rotaryBytes(steps(context)*step)
	return mem
}

// constants are numbers that the written arithmetic divides by or takes roots of.
type constants struct {
	invHidden, invHead, invFFN float32 // 1/n of the three norm lengths
	invSqrtHead                float32
}

func newConstants(c *ternary.Config) constants {
	return constants{
		invHidden: float32(1 / float64(c.Hidden)), invHead: float32(1 / float64(c.HeadDim)), invFFN: float32(1 / float64(c.Intermediate)),
		invSqrtHead: float32(1 / math.Sqrt(float64(c.HeadDim))),
	}
}
