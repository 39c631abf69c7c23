// Package cpu runs models on the processor with vector instructions. Its logits
// equal those of runtime/reference, bit for bit, with every set of kernels.
//
// A model is arranged once, when it is loaded: tiles of rows whose planes lie
// side by side, so that a linear is one stream of bytes, 3 bits a weight, and one
// broadcast of activations serves all rows of a tile (kernels.go has the
// layout). Embedding tables stay where they are. Decode reads all weights once a
// token and is bound by the memory; batches expand a tile's codes once for all
// columns and are bound by the dot products.
package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

// Backend runs models with one set of kernels.
type Backend struct {
	Kernel string // a name of [KernelSets]; "" chooses the best
}

// Name returns "cpu".
func (Backend) Name() string { return "cpu" }

// ErrInvalid is wrapped by Load for planes that contradict each other. Whoever
// needs to know where walks over the model (ternary.Model.Validate).
var ErrInvalid = errors.New("planes of weights contradict each other")

// Load arranges m for the kernels. m may still be in its file (ternary.Model.Rows
// set). Its matrices are not used afterwards, so their memory is released to the
// system as they are arranged; its tables and vectors are.
func (b Backend) Load(m *ternary.Model, o backend.Options) (backend.Instance, error) {
	k, err := choose(b.Kernel)
	if err != nil {
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
		k: k, c: c, o: o,
		cache:     newCacheShape(c, o.KV),
		rope:      reference.NewRotary(c.RotaryDims, c.RopeTheta),
		invHidden: float32(1 / float64(c.Hidden)), invHead: float32(1 / float64(c.HeadDim)), invFFN: float32(1 / float64(c.Intermediate)),
		invSqrtHead: float32(1 / math.Sqrt(float64(c.HeadDim))),
		planes:      int(o.Activations), headPlanes: int(o.Activations),
	}
	if c.Arch == ternary.BitNet {
		in.planes = 1
	}
	if err := in.load(m); err != nil {
		in.Close()
		return nil, err
	}
	in.pool = newPool(o.Threads)
	in.prepare()
	return in, nil
}

type instance struct {
	k *kernels
	c *ternary.Config
	o backend.Options

	raw         []byte // holds the matrices of all layers
	layers      []layer
	finalNorm   []float32 // [hidden, padded]
	embed, head table

	pad   widths
	cache cacheShape
	rope  *reference.Rotary

	invHidden, invHead, invFFN float32 // 1/n of the three norm lengths
	invSqrtHead                float32
	planes, headPlanes         int // P of the linears and of the output embedding

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

// table is an embedding table, as the model has it.
type table struct {
	ternary.Int8Matrix
	raw []byte // what its values lie in if it was read from a file
}

func (in *instance) Config() *ternary.Config  { return in.c }
func (in *instance) Options() backend.Options { return in.o }

// Kernels returns the name of the set of kernels in use.
func (in *instance) Kernels() string { return in.k.name }

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
	in.raw, in.layers, in.embed, in.head = nil, nil, table{}, table{}
	return err
}

// load fills in from m.
func (in *instance) load(m *ternary.Model) error {
	if err := backend.CheckEps(&m.Config); err != nil {
		return err
	}
	in.layers = make([]layer, len(m.Layers))
	in.finalNorm = padded(m.FinalNorm)
	for i := range m.Layers {
		s, d := &m.Layers[i], &in.layers[i]
		d.attnNorm, d.ffnNorm = padded(s.AttnNorm), padded(s.FFNNorm)
		d.qNorm, d.kNorm = padded(s.QNorm), padded(s.KNorm)
		d.attnSubNorm, d.ffnSubNorm = padded(s.AttnSubNorm), padded(s.FFNSubNorm)
	}
	jobs, err := in.place(m)
	if err != nil {
		return err
	}
	return runLoads(jobs, in.o.Threads, m)
}

// padded returns a copy of x with zeros up to a whole block; nil stays nil.
func padded(x []float32) []float32 {
	if x == nil {
		return nil
	}
	return append(make([]float32, 0, roundUp(len(x), blockCols)), x...)[:roundUp(len(x), blockCols)]
}

// load is one piece of loading: some rows of a matrix or table, or a whole
// vector, which is only checked.
type load struct {
	t      ternary.Tensor
	r0, r1 int
	to     func(part ternary.Tensor, r0 int) error
}

// place allocates the memory of all matrices, and of tables that are still in a
// file, and returns the pieces of work that fill it.
func (in *instance) place(m *ternary.Model) ([]load, error) {
	var jobs []load
	size := 0
	linears := map[*ternary.Matrix]*matrix{}
	for i := range m.Layers {
		for j, s := range m.Layers[i].Linears() {
			if s.Cols > maxCols {
				return nil, fmt.Errorf("%s has %d columns; kernels take up to %d", ternary.LayerName(i, ternary.Projections[j]), s.Cols, maxCols)
			}
			d := in.layers[i].linears()[j]
			d.rows, d.cols, d.blocks = s.Rows, s.Cols, roundUp(s.Cols, blockCols)/blockCols
			if s.Bias != nil {
				if err := backend.CheckTensor(ternary.Tensor{Name: ternary.LayerName(i, ternary.Projections[j]), Ternary: &ternary.Matrix{Bias: s.Bias}}); err != nil {
					return nil, err
				}
				d.bias = slices.Clone(s.Bias)
				for r, b := range d.bias {
					d.bias[r] = reference.Keep(b, 50)
				}
			}
			linears[s] = d
			size += d.bytes(in.k.rows)
		}
	}
	raw, err := allocate(size)
	if err != nil {
		return nil, fmt.Errorf("memory for %d bytes of weights: %w", size, err)
	}
	in.raw = raw
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			d := linears[t.Ternary]
			raw = d.place(raw, in.k.rows)
			for r0, r1 := range rowChunks(t) {
				jobs = append(jobs, load{t, r0, r1, d.arrange(in.k.rows, m)})
			}
		case t.Int8 != nil:
			d := &in.head
			if t.Int8 == m.Embed {
				d = &in.embed
			}
			d.Int8Matrix = *t.Int8
			if m.Rows == nil {
				jobs = append(jobs, load{t: t})
				break
			}
			if d.raw, err = allocate(t.Int8.Rows * (t.Int8.Stride + 4)); err != nil {
				return nil, fmt.Errorf("memory for %s: %w", t.Name, err)
			}
			d.Scale = view[float32](d.raw, t.Int8.Rows)
			d.Q = view[int8](d.raw[4*t.Int8.Rows:], t.Int8.Rows*t.Int8.Stride)
			for r0, r1 := range t.Chunks() {
				jobs = append(jobs, load{t, r0, r1, d.copyRows})
			}
		default:
			jobs = append(jobs, load{t: t})
		}
	}
	return jobs, nil
}

// rowChunks is ternary's Chunks in whole blocks of rows, so that no two pieces
// share a tile.
func rowChunks(t ternary.Tensor) func(yield func(r0, r1 int) bool) {
	return func(yield func(r0, r1 int) bool) {
		rows := t.Ternary.Rows
		n := roundUp(max(1, (1<<20)/max(1, t.Ternary.Stride)), blockCols)
		for r := 0; r < rows && yield(r, min(rows, r+n)); r += n {
		}
	}
}

// copyRows fills a table from part of its file.
func (d *table) copyRows(part ternary.Tensor, r0 int) error {
	copy(d.Scale[r0:], part.Int8.Scale)
	copy(d.Q[r0*d.Stride:], part.Int8.Q)
	return nil
}

// runLoads runs the jobs on the given number of threads and returns the first
// job's error that is found.
func runLoads(jobs []load, threads int, m *ternary.Model) error {
	var next atomic.Int64
	errs := make([]error, len(jobs))
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range min(threads, len(jobs)) {
		wg.Go(func() {
			var p ternary.Part
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				if errs[i] = jobs[i].run(m, &p); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *load) run(m *ternary.Model, p *ternary.Part) error {
	part := j.t
	if j.to != nil {
		var err error
		if part, err = m.ReadRows(p, j.t, j.r0, j.r1); err != nil {
			return err
		}
	}
	if err := backend.CheckTensor(part); err != nil {
		return err
	}
	if j.to != nil {
		return j.to(part, j.r0)
	}
	return nil
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
		if err := p.seqs[i].grow(p.seqs[i].len + len(r.Tokens)); err != nil {
			return err
		}
	}
	in.reserve(len(p.batch))
	for i, col := range p.batch {
		in.embedding(p.x[i*in.pad.hidden:][:in.c.Hidden], int(col.ID))
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
		p.seqs[i].len += len(r.Tokens)
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
