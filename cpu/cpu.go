// Package cpu runs models on the processor with vector instructions. Its logits
// equal those of runtime/reference, bit for bit, with every set of kernels.
//
// A model is arranged once, when it is loaded: tiles of rows whose planes lie
// side by side, so that a linear is one stream of bytes, 3 bits a weight, and what
// is made of activations serves all rows of a tile (type linear). Embedding tables
// keep their order. Decode reads all weights once a token and is bound by the
// memory; batches use a tile, or codes that it is expanded into, for all columns
// and are bound by the dot products.
//
// Or nothing is kept arranged ([Backend].ZeroCopy): decode multiplies the bit planes as
// they lie in the model's file (type inPlace), and batches arrange tiles as they go.
package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

// Backend runs models with one set of kernels.
type Backend struct {
	Kernel string // a name of [KernelSets]; "" chooses the best
	// ZeroCopy leaves weights where the model has them, in the map of its file, and
	// keeps no copy. It never changes a bit.
	ZeroCopy bool
}

// Name returns "cpu".
func (Backend) Name() string { return "cpu" }

// Check reports why this machine cannot run b, or should not: the generic
// kernels define what the others do and are slower than the reference backend.
func (b Backend) Check() error {
	k, err := b.choose()
	if err == nil && b.Kernel == "" && k == &generic {
		return errors.New("no kernels for the instructions of this processor, or this program was built without them (noasm)")
	}
	return err
}

func (b Backend) choose() (*kernels, error) {
	k, err := choose(b.Kernel)
	if err == nil && b.ZeroCopy && !k.worksInPlace() {
		err = fmt.Errorf("%w: kernels %q need arranged weights", ErrZeroCopy, k.name)
	}
	return k, err
}

// Kernels returns the name of the set of kernels that b runs, "" if it cannot.
func (b Backend) Kernels() string {
	k, err := choose(b.Kernel)
	if err != nil {
		return ""
	}
	return k.name
}

// ErrInvalid is wrapped by Load for planes that contradict each other. Where they
// do, [ternary.Model.Validate] says.
var ErrInvalid = errors.New("planes of weights contradict each other")

// Load arranges m for the kernels. m may still be in its file (ternary.Model.Rows
// set). Afterwards only its input embedding is used; the memory of the others is
// released to the system as they are arranged.
//
// With ZeroCopy all of m stays in use. Its planes are looked at when a pass first
// reads them, so that Forward may return ErrInvalid, or [ternary.ErrFault] for a file
// that is cut short. What else another program does to the file is not noticed.
func (b Backend) Load(ctx context.Context, m *ternary.Model, o backend.Options) (backend.Instance, error) {
	k, err := b.choose()
	if err != nil {
		return nil, err
	}
	if err := b.Suits(m); err != nil {
		return nil, err
	}
	if o.Activations == 0 {
		o.Activations = backend.Exact
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	c := &m.Config
	in := &instance{
		k: k, c: c, o: o, zeroCopy: b.ZeroCopy,
		cache:     newCacheShape(c, o.KV),
		rope:      reference.NewRotary(c.RotaryDims, c.RopeTheta),
		invHidden: float32(1 / float64(c.Hidden)), invHead: float32(1 / float64(c.HeadDim)), invFFN: float32(1 / float64(c.Intermediate)),
		invSqrtHead: float32(1 / math.Sqrt(float64(c.HeadDim))),
		share:       c.Heads / c.KVHeads,
		l:           k.linear[o.Activations], headPlanes: int(o.Activations),
	}
	if c.Arch == ternary.BitNet {
		in.l = k.linear[1]
	}
	if err := in.load(ctx, m); err != nil {
		in.Close()
		return nil, err
	}
	in.pool = newPool(o.Threads)
	in.pool.guards = b.ZeroCopy
	in.prepare()
	return in, nil
}

type instance struct {
	k *kernels
	l *linear // of k
	c *ternary.Config
	o backend.Options

	zeroCopy    bool
	raw         []byte // holds the matrices of all layers, or their magnitudes
	layers      []layer
	finalNorm   []float32 // [hidden, padded]
	embed, head table

	pad   widths
	cache cacheShape
	rope  *reference.Rotary

	invHidden, invHead, invFFN float32 // 1/n of the three norm lengths
	invSqrtHead                float32
	share                      int // query heads that share a key/value head
	headPlanes                 int // P of the output embedding; the linears' is l.planes

	pool     *pool
	pass     pass
	sections sections
}

// layer is one transformer block. Norm weights are padded with zeros.
type layer struct {
	attnNorm, ffnNorm, qNorm, kNorm, attnSubNorm, ffnSubNorm []float32

	q, k, v, o, gate, up, down matrix
}

func (l *layer) linears() [ternary.NumProjections]*matrix {
	return [ternary.NumProjections]*matrix{&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}
}

// table is an embedding table.
type table struct {
	ternary.Int8Matrix
	raw  []byte       // what its values lie in, if they are a copy
	left atomic.Int64 // rows that are still to be copied
}

func (in *instance) Config() *ternary.Config  { return in.c }
func (in *instance) Options() backend.Options { return in.o }

func (in *instance) Close() error {
	if in.pool != nil {
		in.pool.close()
	}
	err := release(in.raw)
	if in.embed.raw != nil {
		err = errors.Join(err, release(in.embed.raw))
	}
	if in.head.raw != nil {
		err = errors.Join(err, release(in.head.raw))
	}
	in.raw, in.layers = nil, nil
	in.embed.raw, in.head.raw = nil, nil
	return err
}

// load fills in from m.
func (in *instance) load(ctx context.Context, m *ternary.Model) error {
	if err := backend.CheckEps(&m.Config); err != nil {
		return err
	}
	in.layers = make([]layer, len(m.Layers))
	pad := func(x []float32) []float32 { return padded(x, in.l.unit()) }
	in.finalNorm = pad(m.FinalNorm)
	for i := range m.Layers {
		s, d := &m.Layers[i], &in.layers[i]
		d.attnNorm, d.ffnNorm = pad(s.AttnNorm), pad(s.FFNNorm)
		d.qNorm, d.kNorm = pad(s.QNorm), pad(s.KNorm)
		d.attnSubNorm, d.ffnSubNorm = pad(s.AttnSubNorm), pad(s.FFNSubNorm)
	}
	if err := in.place(m); err != nil {
		return err
	}
	if in.zeroCopy {
		return ternary.Guard(func() error { return in.adopt(m) })
	}
	return m.Walk(ctx, ternary.WalkOptions{Threads: in.o.Threads, Progress: in.o.Progress}, in.l.unit(), func(t, part ternary.Tensor, r0 int) error {
		return in.fill(m, t, part, r0)
	})
}

// padded returns a copy of x with zeros up to a multiple of unit; nil stays nil.
func padded(x []float32, unit int) []float32 {
	if x == nil {
		return nil
	}
	n := roundUp(len(x), unit)
	return append(make([]float32, 0, n), x...)[:n]
}

// place allocates the memory of all matrices, and of tables that are still in a
// file.
func (in *instance) place(m *ternary.Model) error {
	size := 0
	for i := range m.Layers {
		for j, s := range m.Layers[i].Linears() {
			d := in.layers[i].linears()[j]
			if err := d.shape(ternary.LayerName(i, ternary.Projections[j]), s, in.l, in.zeroCopy); err != nil {
				return err
			}
			size += d.bytes(in.l)
		}
	}
	raw, err := allocate(size)
	if err != nil {
		return fmt.Errorf("memory for %d bytes of weights: %w", size, err)
	}
	in.raw = raw
	for i := range in.layers {
		for _, d := range in.layers[i].linears() {
			raw = d.place(raw, in.l)
		}
	}
	// From huge pages the output embedding is read a third faster than from those
	// of a mapped file. Of the input embedding a row a token is used.
	if err := in.head.place(&m.Head, !in.zeroCopy); err != nil || m.Embed == nil {
		return err
	}
	return in.embed.place(m.Embed, m.Rows != nil)
}

// place makes d a view of t, or memory for a copy.
func (d *table) place(t *ternary.Int8Matrix, copied bool) (err error) {
	d.Int8Matrix = *t
	if !copied {
		return nil
	}
	d.left.Store(int64(t.Rows))
	if d.raw, err = allocate(t.Rows * (t.Stride + 4)); err != nil {
		return fmt.Errorf("memory for an embedding table of %d bytes: %w", t.Rows*(t.Stride+4), err)
	}
	d.Scale, d.Q = view[float32](d.raw, t.Rows), view[int8](d.raw[4*t.Rows:], t.Rows*t.Stride)
	return nil
}

// fill arranges or copies a part of m's tensor t, rows r0 and on, once it is
// checked.
func (in *instance) fill(m *ternary.Model, t, part ternary.Tensor, r0 int) error {
	if err := backend.CheckTensor(part); err != nil {
		return err
	}
	switch {
	case t.Ternary != nil:
		d := in.matrixOf(m, t)
		if err := d.arrange(part.Ternary, r0, in.l); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		// All of a matrix at once: parts share the file's huge pages.
		if d.left.Add(-int64(part.Ternary.Rows)) == 0 {
			m.ReleaseTensor(t)
		}
	case t.Int8 != nil:
		d := &in.head
		if t.Int8 == m.Embed {
			d = &in.embed
		}
		if d.raw == nil {
			return nil
		}
		copy(d.Scale[r0:], part.Int8.Scale)
		copy(d.Q[r0*d.Stride:], part.Int8.Q)
		// A table may be half of a model. What is copied is released from time to
		// time, so that there is no second one in memory.
		const some = 8 << 20
		left := int(d.left.Add(-int64(part.Int8.Rows)))
		if done := (d.Rows - left) * d.Stride; left == 0 || done/some > (done-part.Int8.Rows*d.Stride)/some {
			m.ReleaseTensor(t)
		}
	}
	return nil
}

// matrixOf returns what t is arranged into.
func (in *instance) matrixOf(m *ternary.Model, t ternary.Tensor) *matrix {
	for j, w := range m.Layers[t.Layer].Linears() {
		if w == t.Ternary {
			return in.layers[t.Layer].linears()[j]
		}
	}
	panic("cpu: a matrix that is no linear of its layer")
}

// Forward runs all columns of all runs through the model, layer by layer. No
// column depends on another but through the cache, so neither batch nor split
// can change a bit.
func (in *instance) Forward(ctx context.Context, runs []backend.Run) error {
	p := &in.pass
	p.seqs = p.seqs[:0]
	for i, r := range runs {
		s, ok := r.Seq.(*sequence)
		if !ok || s.in != in {
			return fmt.Errorf("run %d: the sequence is not of this instance", i)
		}
		p.seqs = append(p.seqs, s)
	}
	var err error
	if p.batch, err = backend.Columns(p.batch[:0], runs, in.c.Vocab); err != nil || len(p.batch) == 0 {
		return err
	}
	for i, r := range runs {
		if err := p.seqs[i].grow(p.seqs[i].Held + len(r.Tokens)); err != nil {
			return err
		}
	}
	in.reserve(len(p.batch))
	if err := ternary.Guard(in.embeddings); err != nil { // the table may be in a file
		return err
	}
	for l := range in.layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := in.layer(l); err != nil {
			return err
		}
	}
	if err := in.logits(); err != nil {
		return err
	}
	for i, r := range runs {
		p.seqs[i].Held += len(r.Tokens)
	}
	return nil
}

// embeddings writes the input embeddings of the batch.
func (in *instance) embeddings() error {
	p := &in.pass
	for i, col := range p.batch {
		in.embedding(p.x[i*in.pad.hidden:][:in.c.Hidden], int(col.ID))
	}
	return nil
}

// embedding writes the input embedding of a token.
func (in *instance) embedding(x []float32, id int) {
	t := &in.embed
	if t.Q == nil {
		t = &in.head
	}
	scale := t.Scale[id]
	for c, q := range t.Row(id) {
		x[c] = mul(float32(q), scale)
	}
}
