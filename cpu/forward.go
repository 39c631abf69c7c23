package cpu

import (
	"math"
	"math/bits"

	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

const (
	tableRows = 64            // rows of an embedding table in a task
	tableMost = 4 * tableRows // and at once
	tableNear = 256 << 10     // bytes of them that stay near for all columns
)

// widths are the padded sizes of vectors and of columns in the buffers of a pass.
type widths struct {
	hidden, q, kv, ffn int // floats
	heads              int // floats of the rotated queries
	fixed              int // digits
	widest             int // columns of the linears
	packed             int // bytes of activations for the tables
	inPlace            int // bytes of activations for planes in place
}

// sections are the methods that pools run, bound once: binding a method makes a
// closure, and a pass must not allocate.
type sections struct {
	attnNorm, ffnNorm, finalNorm, quantMix, quantGate, rotary, scores, combine, qkv, o, gateUp, down, table func(w *worker, from, to int)
}

// prepare makes what depends on the model but not on its weights.
func (in *instance) prepare() {
	c := in.c
	pad := func(n int) int { return roundUp(n, in.l.unit()) }
	in.pad = widths{
		hidden: pad(c.Hidden), q: pad(c.QDim()), kv: pad(c.KVDim()), ffn: pad(c.Intermediate),
		heads:  c.Heads * in.cache.dimPad,
		packed: pad(c.Hidden) / blockCols * in.k.int8Bytes(in.headPlanes),
	}
	in.pad.fixed = max(in.pad.hidden*max(in.l.planes, in.headPlanes), max(in.pad.q, in.pad.ffn)*in.l.planes)
	in.pad.widest = max(in.pad.hidden, in.pad.q, in.pad.ffn)
	if in.zeroCopy {
		in.pad.inPlace = inPlaceBytes(in.l.planes, in.pad.widest/blockCols)
	}
	for _, w := range in.pool.workers {
		if in.zeroCopy {
			w.tiles = make([]byte, in.l.arrangedTogether(in.pad.widest))
		}
		w.vec = make([]float32, in.pad.widest)
		w.head = make([]float32, roundUp(in.cache.dimPad, blockCols))
		w.keys, w.vals = make([]float32, chunk*in.cache.dimPad), make([]float32, chunk*in.cache.dimPad)
		w.p = make([]float32, in.share*chunk)
	}
	in.sections = sections{
		attnNorm: in.attnNorm, ffnNorm: in.ffnNorm, finalNorm: in.finalNormed, quantMix: in.quantMix, quantGate: in.quantGate,
		rotary: in.rotary, scores: in.scores, combine: in.combine,
		qkv: in.qkv, o: in.attnOut, gateUp: in.gateUp, down: in.ffnDown, table: in.table,
	}
}

// reserve makes room for n columns.
func (in *instance) reserve(n int) {
	p := &in.pass
	p.failed.Store(false)
	p.contradicts.Store(false)
	p.l = in.l.of(n)
	p.direct = in.zeroCopy && n <= in.l.inPlace.direct
	if n <= p.room {
		return
	}
	p.room = n
	p.x, p.q = make([]float32, n*in.pad.hidden), make([]float32, n*in.pad.q)
	p.k, p.v = make([]float32, n*in.pad.kv), make([]float32, n*in.pad.kv)
	p.heads, p.mix = make([]float32, n*in.pad.heads), make([]float32, n*in.pad.q)
	p.gate, p.up = make([]float32, n*in.pad.ffn), make([]float32, n*max(in.pad.ffn, in.pad.hidden))
	p.fixed, p.scales = make([]int8, n*in.pad.fixed), make([]activations, n)
	if in.zeroCopy {
		p.inPlace = make([]int8, min(n, in.l.inPlace.direct)*in.pad.inPlace)
	}
	p.formed = make([]int8, n*max(in.l.formed(in.pad.widest), p.l.formed(in.pad.widest)))
	for _, w := range in.pool.workers {
		w.sums = make([]int32, min(n, mostTogether)*2*in.l.planes*in.l.rows)
		w.many = make([]byte, max(in.l.scratch(min(n, mostTogether)), p.l.scratch(min(n, mostTogether))))
	}
}

// layer adds transformer block l to x.
func (in *instance) layer(l int) error {
	s, w := &in.sections, &in.layers[l]
	in.pass.layer = l

	if err := in.columns(s.attnNorm, "attn_norm"); err != nil {
		return err
	}
	if err := in.rows(w.q.rowsPad(in.l)+2*w.k.rowsPad(in.l), s.qkv); err != nil {
		return err
	}
	heads := len(in.pass.batch) * in.c.KVHeads
	in.pool.run(heads, in.grain(heads, 4), s.rotary)
	if err := in.check("attn_k or attn_v"); err != nil {
		return err
	}
	if err := in.attention(); err != nil {
		return err
	}
	if err := in.columns(s.quantMix, "attn_output"); err != nil {
		return err
	}
	if err := in.rows(w.o.rowsPad(in.l), s.o); err != nil {
		return err
	}

	if err := in.columns(s.ffnNorm, "ffn_norm"); err != nil {
		return err
	}
	if err := in.rows(w.gate.rowsPad(in.l), s.gateUp); err != nil {
		return err
	}
	if err := in.columns(s.quantGate, "ffn_down"); err != nil {
		return err
	}
	return in.rows(w.down.rowsPad(in.l), s.down)
}

// rows runs a section over n rows of linears, in tasks of [linear].unit rows. With
// many columns a worker takes more rows at once, which share what is read of them.
func (in *instance) rows(n int, section func(w *worker, from, to int)) error {
	tasks, claims := n/in.l.unit(), mostClaims
	if len(in.pass.batch) > 8 {
		claims = 4
	}
	err := in.mapped(tasks, in.grain(tasks, claims), section)
	if err == nil && in.pass.contradicts.Load() {
		err = ternary.Guard(in.contradiction)
	}
	return err
}

// mapped runs a section over what may lie in the map of a file.
func (in *instance) mapped(tasks, grain int, section func(w *worker, from, to int)) error {
	in.pool.run(tasks, grain, section)
	if in.pool.fault.Swap(false) {
		return ternary.ErrFault
	}
	return nil
}

// mostClaims is how often a worker claims tasks, so that all end at about the same
// time.
const mostClaims = 16

// grain is how many of n tasks a worker claims at once to claim so many times.
func (in *instance) grain(n, claims int) int { return max(1, n/(len(in.pool.workers)*claims)) }

// columns runs a section over the columns and returns an error that names name
// if a value in it was not finite.
func (in *instance) columns(section func(w *worker, from, to int), name string) error {
	in.pool.run(len(in.pass.batch), 1, section)
	return in.check(name)
}

func (in *instance) check(name string) error {
	if in.pass.failed.Load() {
		return backend.Overflow(in.pass.layer, name)
	}
	return nil
}

// norm writes the RMS norm of x to y, both [padded], with weight g; inv is 1/n.
func (in *instance) norm(w *worker, y, x, g []float32, inv float32) {
	in.k.vec.squares(&w.lanes, x)
	// Lanes behind len(x) are +0, and adding +0 to a sum of squares changes nothing.
	lanes := w.lanes[:min(len(w.lanes), 1<<bits.Len(uint(len(x)-1)))]
	r := reference.RSqrt(add(mul(reference.Fold(lanes), inv), in.c.RMSEps))
	in.k.vec.normScale(y, x, g, r)
}

// quantize writes x [padded] as the fixed-point activations of column i.
func (in *instance) quantize(i int, x []float32, planes int, bitnet bool) {
	p, v := &in.pass, in.k.vec
	most := v.absMax(x)
	if most >= infBits {
		p.failed.Store(true)
		return
	}
	m := math.Float32frombits(most)
	q := p.fixed[i*in.pad.fixed:][:len(x)*planes]
	a := &p.scales[i]
	switch {
	case bitnet:
		m = max(m, 1e-5)
		// |x*up| is at most 127 and some ulp, which rounds to 127.
		a.sum = v.quantize[1](q, x, mul(127, reference.Recip(m)))
		a.before, a.after = 1, mul(m, 1.0/127)
	case m < 0x1p-40:
		clear(q)
		*a = activations{0, 1, 1}
	default:
		up, scale := reference.FixedScale(m, backend.Activations(planes))
		a.sum = v.quantize[planes](q, x, up)
		a.before, a.after = scale, 1
	}
}

// activate makes x [padded] the activations of column i for the linears.
func (in *instance) activate(i int, x []float32) {
	p := &in.pass
	in.quantize(i, x, p.l.planes, in.c.Arch == ternary.BitNet)
	if p.direct {
		in.l.inPlace.form(p.inPlace[i*in.pad.inPlace:], p.fixed[i*in.pad.fixed:], in.l.planes, len(x)/blockCols)
	}
	if p.l.form != nil {
		// X counts in no other way than sums being too large by as much.
		p.scales[i].sum += p.l.form(p.formed[i*p.l.formed(in.pad.widest):], p.fixed[i*in.pad.fixed:], len(x)/blockCols)
	}
}

func (in *instance) normed(w *worker, from, to int, g []float32) {
	for i := from; i < to; i++ {
		y := w.vec[:in.pad.hidden]
		in.norm(w, y, in.pass.x[i*in.pad.hidden:][:in.pad.hidden], g, in.invHidden)
		in.activate(i, y)
	}
}

func (in *instance) attnNorm(w *worker, from, to int) {
	in.normed(w, from, to, in.layers[in.pass.layer].attnNorm)
}

func (in *instance) ffnNorm(w *worker, from, to int) {
	in.normed(w, from, to, in.layers[in.pass.layer].ffnNorm)
}

func (in *instance) quantMix(w *worker, from, to int) {
	for i := from; i < to; i++ {
		x := in.pass.mix[i*in.pad.q:][:in.pad.q]
		if g := in.layers[in.pass.layer].attnSubNorm; g != nil {
			in.norm(w, w.vec[:in.pad.q], x, g, in.invHidden)
			x = w.vec[:in.pad.q]
		}
		in.activate(i, x)
	}
}

func (in *instance) quantGate(w *worker, from, to int) {
	for i := from; i < to; i++ {
		x := in.pass.gate[i*in.pad.ffn:][:in.pad.ffn]
		if g := in.layers[in.pass.layer].ffnSubNorm; g != nil {
			in.norm(w, w.vec[:in.pad.ffn], x, g, in.invFFN)
			x = w.vec[:in.pad.ffn]
		}
		in.activate(i, x)
	}
}

// rotary norms and rotates the heads of queries and keys, and stores keys and
// values. Key/value heads, each with the query heads that share it, count through
// the columns.
func (in *instance) rotary(w *worker, from, to int) {
	p, c, l := &in.pass, in.c, &in.layers[in.pass.layer]
	dim := c.HeadDim
	for task := from; task < to; task++ {
		i, head := task/c.KVHeads, task%c.KVHeads
		col := &p.batch[i]
		for h := head * in.share; h < (head+1)*in.share; h++ {
			x := p.heads[i*in.pad.heads+h*in.cache.dimPad:][:in.cache.dimPad]
			copy(x, p.q[i*in.pad.q+h*dim:][:dim])
			in.rotate(w, x, l.qNorm, col.Pos)
		}
		seq, x := p.seqs[col.Run], w.head[:in.cache.dimPad]
		copy(x, p.k[i*in.pad.kv+head*dim:][:dim])
		in.rotate(w, x, l.kNorm, col.Pos)
		ok := seq.put(p.layer, 0, head, col.Pos, x)
		copy(x, p.v[i*in.pad.kv+head*dim:][:dim])
		if !seq.put(p.layer, 1, head, col.Pos, x) || !ok {
			p.failed.Store(true)
		}
	}
}

// rotate norms, if g is not nil, and rotates one head x [dimPad] at position pos.
func (in *instance) rotate(w *worker, x, g []float32, pos int) {
	if g != nil {
		in.norm(w, x, x, g[:len(x)], in.invHead)
	} else {
		for d, v := range x {
			x[d] = reference.Keep(v, 50)
		}
	}
	n := in.rope.Pairs
	in.k.vec.rotate(x[:n], x[n:2*n], in.rope.Cos[pos*n:][:n], in.rope.Sin[pos*n:][:n])
}

// linear writes y = W*x for the rows of tasks from to to of m and all columns,
// column i at y[i*stride], with the activations of the pass.
func (in *instance) linear(w *worker, m *matrix, from, to int, y []float32, stride int) {
	unit := in.l.unit()
	first, end := from*unit/in.l.rows, to*unit/in.l.rows
	if m.planes != nil {
		in.inPlace(w, m, first, end, y, stride)
	} else {
		in.tiles(w, m, first, m.w[first*m.tile(in.l):end*m.tile(in.l)], y, stride)
	}
	if m.bias != nil {
		for i := range in.pass.batch {
			for r := from * unit; r < min(to*unit, m.rows); r++ {
				y[i*stride+r] = add(y[i*stride+r], m.bias[r])
			}
		}
	}
}

// tiles is linear for arranged tiles, the first of which is tile first of m. As many
// columns as the second-level cache holds the activations of meet all tiles before
// the next.
func (in *instance) tiles(w *worker, m *matrix, first int, tiles []byte, y []float32, stride int) {
	p := &in.pass
	l, tile := p.l, m.tile(p.l)
	n, size := len(p.batch), 2*l.planes*l.rows
	x, xStride := p.fixed, in.pad.fixed
	if l.form != nil {
		x, xStride = p.formed, l.formed(in.pad.widest)
	}
	some := l.together(m.blocks)
	for i := 0; i < n; i += some {
		columns := min(some, n-i)
		for t := range len(tiles) / tile {
			weights := tiles[t*tile:][:tile]
			if columns <= l.direct {
				for c := range columns {
					l.dot(w.sums[c*size:][:size], weights, x[(i+c)*xStride:], m.blocks)
				}
			} else {
				l.many(w.sums[:columns*size], weights, x[i*xStride:], m.blocks, columns, xStride, w.many)
			}
			for c := range columns {
				in.finish(m, first+t, i+c, w.sums[c*size:][:size], y, stride)
			}
		}
	}
}

// finish writes the outputs of tile t of m and column i from their sums.
func (in *instance) finish(m *matrix, t, i int, sums []int32, y []float32, stride int) {
	l, a := in.pass.l, &in.pass.scales[i]
	r := t * l.rows
	l.finish(y[i*stride+r:][:l.rows], sums, m.lo[r:][:l.rows], m.hi[r:][:l.rows], l.planes, a.sum, a.before, a.after)
}

// qkv does its tasks in the rows of q, k and v laid end to end.
func (in *instance) qkv(w *worker, from, to int) {
	p, l := &in.pass, &in.layers[in.pass.layer]
	for _, part := range [...]struct {
		m      *matrix
		y      []float32
		stride int
	}{{&l.q, p.q, in.pad.q}, {&l.k, p.k, in.pad.kv}, {&l.v, p.v, in.pad.kv}} {
		n := part.m.rowsPad(in.l) / in.l.unit()
		if from < n && to > 0 {
			in.linear(w, part.m, max(from, 0), min(to, n), part.y, part.stride)
		}
		from, to = from-n, to-n
	}
}

func (in *instance) attnOut(w *worker, from, to int) {
	in.residual(w, &in.layers[in.pass.layer].o, from, to)
}

func (in *instance) ffnDown(w *worker, from, to int) {
	in.residual(w, &in.layers[in.pass.layer].down, from, to)
}

// residual adds the rows of m to x. Before they are added they lie in up, which
// nobody needs at that time.
func (in *instance) residual(w *worker, m *matrix, from, to int) {
	p := &in.pass
	y, stride := p.up, in.pad.hidden
	in.linear(w, m, from, to, y, stride)
	r0, r1 := from*in.l.unit(), to*in.l.unit()
	for i := range p.batch {
		in.k.vec.add(p.x[i*in.pad.hidden+r0:i*in.pad.hidden+r1], y[i*stride+r0:i*stride+r1])
	}
}

// gateUp writes the middle of the MLP over gate.
func (in *instance) gateUp(w *worker, from, to int) {
	p, l := &in.pass, &in.layers[in.pass.layer]
	in.linear(w, &l.gate, from, to, p.gate, in.pad.ffn)
	in.linear(w, &l.up, from, to, p.up, in.pad.ffn)
	for i := range p.batch {
		r0, r1 := i*in.pad.ffn+from*in.l.unit(), i*in.pad.ffn+to*in.l.unit()
		g, u := p.gate[r0:r1], p.up[r0:r1]
		if in.c.Arch == ternary.BitNet {
			squaredReLU(g, u)
		} else {
			in.k.vec.siluMul(g, g, u)
		}
	}
}

// squaredReLU sets g = (g'*g')*keep_50(u), g' = keep_50(max(g, 0)).
func squaredReLU(g, u []float32) {
	for j, v := range g {
		v = reference.Keep(max(v, 0), 50)
		g[j] = mul(mul(v, v), reference.Keep(u[j], 50))
	}
}

// logits writes the logits of the columns that want them. The output embedding
// always takes fixed-point activations, in BitNet too.
func (in *instance) logits() error {
	p := &in.pass
	p.layer, p.wanted = -1, p.wanted[:0]
	for i := range p.batch {
		if p.batch[i].Logits != nil {
			p.wanted = append(p.wanted, i)
		}
	}
	p.packed = resize(p.packed, len(p.wanted)*in.pad.packed)
	in.pool.run(len(p.wanted), 1, in.sections.finalNorm)
	if err := in.check("output_norm"); err != nil {
		return err
	}
	if len(p.wanted) > 0 {
		tasks := (in.head.Rows + tableRows - 1) / tableRows
		return in.mapped(tasks, in.grain(tasks, mostClaims), in.sections.table)
	}
	return nil
}

func (in *instance) finalNormed(w *worker, from, to int) {
	p := &in.pass
	for j := from; j < to; j++ {
		i := p.wanted[j]
		y := w.vec[:in.pad.hidden]
		in.norm(w, y, p.x[i*in.pad.hidden:][:in.pad.hidden], in.finalNorm, in.invHidden)
		in.quantize(i, y, in.headPlanes, false)
		in.k.int8Pack(p.packed[j*in.pad.packed:][:in.pad.packed], p.fixed[i*in.pad.fixed:], in.headPlanes, in.pad.hidden/blockCols)
	}
}

// table writes the logits of its rows of the output embedding. It takes many at once:
// short rows, too, make long streams to read, and each that begins is slow at first.
func (in *instance) table(w *worker, from, to int) {
	p, t := &in.pass, &in.head
	blocks := t.Cols / blockCols // whole ones: a row's end may be the file's
	some := min(max(tableNear/t.Stride, tableRows), tableMost)
	end := min(to*tableRows, t.Rows)
	for r0 := from * tableRows; r0 < end; r0 += some {
		sums := w.dots[:min(some, end-r0)]
		for j, i := range p.wanted {
			in.k.int8Dot(sums, t.Q[r0*t.Stride:], t.Stride, p.packed[j*in.pad.packed:], in.headPlanes, blocks)
			if blocks*blockCols < t.Cols {
				in.tableEnds(sums, r0, p.fixed[i*in.pad.fixed:], blocks)
			}
			scales, scale, logits := t.Scale[r0:][:len(sums)], p.scales[i].before, p.batch[i].Logits[r0:][:len(sums)]
			for r, s := range sums {
				logits[r] = mul(float32(s), mul(scales[r], scale))
			}
		}
	}
}

// tableEnds adds the products of the columns behind the last whole block.
func (in *instance) tableEnds(sums []int64, r0 int, x []int8, blocks int) {
	for r := range sums {
		for c, v := range in.head.Row(r0 + r)[blocks*blockCols:] {
			sums[r] += int64(v) * int64(activation(x, in.headPlanes, blocks, c))
		}
	}
}
