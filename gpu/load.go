package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"npack/gpu/kernels"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

// instance is a model on the device.
type instance struct {
	b *Backend
	c *ternary.Config
	o backend.Options
	shape
	constants

	layers      []layer
	embed, head table // embed has no buffer where head embeds the input, too

	rope       *reference.Rotary
	cos, sin   Buffer // float32 [positions][pairs]
	ropeOnCard int    // positions that they hold
	scratch    scratch
	partials   Buffer
	epoch      int // counts the times that one of these buffers moved

	pass pass
}

// Load brings m to the device. Nothing of m is used afterwards but its Config.
// What does not fit the memory is refused before anything is allocated.
func (b *Backend) Load(ctx context.Context, m *ternary.Model, o backend.Options) (backend.Instance, error) {
	if o.Activations == 0 {
		o.Activations = backend.Exact
	}
	in := &instance{b: b, c: &m.Config, o: o, shape: newShape(&m.Config, o), constants: newConstants(&m.Config)}
	if err := errors.Join(in.check(), backend.CheckEps(in.c), b.fits(m, o)); err != nil {
		return nil, err
	}
	in.rope = reference.NewRotary(in.c.RotaryDims, in.c.RopeTheta)
	in.pass.prepare(in)
	if err := in.load(ctx, m); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

func (in *instance) Config() *ternary.Config  { return in.c }
func (in *instance) Options() backend.Options { return in.o }

// Close frees the model's memory on the device, but for that of sequences.
func (in *instance) Close() error {
	return in.b.do(func() error {
		for l := range in.layers {
			in.b.free(&in.layers[l].buf)
		}
		for _, buf := range []*Buffer{&in.embed.buf, &in.head.buf, &in.cos, &in.sin, &in.scratch.buf, &in.partials} {
			in.b.free(buf)
		}
		return nil
	})
}

// fits is an error if m, with the least context, is larger than what may be
// allocated.
func (b *Backend) fits(m *ternary.Model, o backend.Options) error {
	mem := b.Plan(m, o, 1, 1)
	need := mem.Weights + mem.Cache + mem.Buffers
	return b.do(func() error {
		free := b.dev.Info().Free
		if b.limit > 0 {
			free = min(free, b.limit-b.taken)
		}
		if need > free {
			return fmt.Errorf("the model takes %d bytes on %s, of which %d are weights; %d may be taken: %w", need, b.info.Name, mem.Weights, free, ErrMemory)
		}
		return nil
	})
}

// load fills in from m: buffers first, so that no weight is read in vain, then
// one pass over the model. Layers are uploaded linear by linear, when all rows
// of one are packed.
func (in *instance) load(ctx context.Context, m *ternary.Model) error {
	loading := &loading{in: in, m: m, layers: make([]staged, len(m.Layers))}
	err := in.b.do(func() error { return loading.allocate() })
	if err != nil {
		return err
	}
	return m.Walk(ctx, ternary.WalkOptions{Threads: in.o.Threads, Progress: in.o.Progress}, kernels.StripRows, loading.fill)
}

// loading is the state of a load.
type loading struct {
	in     *instance
	m      *ternary.Model
	layers []staged
	bufs   sync.Pool   // *[]byte, for linears and parts of tables
	copied tableCounts // rows of tables, for releasing the file's pages
}

type tableCounts struct{ embed, head atomic.Int64 }

// staged is a layer on its way: each linear of the device gathers its members.
type staged struct {
	linears [numLinears]struct {
		sync.Mutex
		buf  *[]byte
		left int // rows that are still to be packed
	}
	tensors [ternary.NumProjections]atomic.Int64 // rows that are still to be packed
}

// allocate makes all buffers of the model.
func (d *loading) allocate() (err error) {
	in, m := d.in, d.m
	in.layers = make([]layer, len(m.Layers))
	for i := range m.Layers {
		var size int64
		in.layers[i], size = in.placeLayer(&m.Layers[i])
		if in.layers[i].buf, err = in.b.alloc(size); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i, len(m.Layers), err)
		}
		for j, w := range m.Layers[i].Linears() {
			d.layers[i].linears[in.members()[j].linear].left += w.Rows
			d.layers[i].tensors[j].Store(int64(w.Rows))
		}
	}
	var size int64
	in.head, size = in.placeTable(true)
	if in.head.buf, err = in.b.alloc(size); err != nil {
		return fmt.Errorf("output embedding: %w", err)
	}
	if m.Embed != nil {
		in.embed, size = in.placeTable(false)
		if in.embed.buf, err = in.b.alloc(size); err != nil {
			return fmt.Errorf("input embedding: %w", err)
		}
	}
	return in.reserve(1)
}

// fill packs a part of tensor t, rows r0 and on, once it is checked.
func (d *loading) fill(t, part ternary.Tensor, r0 int) error {
	if err := backend.CheckTensor(part); err != nil {
		return err
	}
	switch {
	case t.Ternary != nil:
		return d.fillLinear(t, part.Ternary, r0)
	case t.Int8 != nil:
		return d.fillTable(t, part.Int8, r0)
	}
	to := &d.in.head.norm
	buf := d.in.head.buf
	if t.Layer >= 0 {
		l := &d.in.layers[t.Layer]
		buf = l.buf
		norms := l.norms(d.in.c)
		for i, n := range d.m.Layers[t.Layer].Norms(d.in.c) {
			if unsafe.SliceData(*n.Data) == unsafe.SliceData(t.Vector) {
				to = norms[i]
			}
		}
	}
	return d.upload(buf, to.off, bytesOf(t.Vector))
}

// fillLinear packs rows of a linear of the model into one of the device's, and
// uploads that when it is whole.
func (d *loading) fillLinear(t ternary.Tensor, part *ternary.Matrix, r0 int) error {
	j := d.projection(t)
	m, l := d.in.members()[j], &d.in.layers[t.Layer]
	w, s := &l.linears[m.linear], &d.layers[t.Layer].linears[m.linear]

	s.Lock()
	if s.buf == nil {
		s.buf = d.buffer(w.bytes())
		if err := d.biases(t.Layer, m.linear, *s.buf); err != nil {
			s.Unlock()
			return err
		}
	}
	buf := *s.buf
	s.Unlock()
	if err := kernels.PackPlanes(buf[:w.planes.size], part, m.row+r0, m.as); err != nil {
		return fmt.Errorf("%s: rows %d to %d: %w", t.Name, r0, r0+part.Rows-1, ErrInvalid)
	}
	kernels.PackScales(floatsOf(buf[w.scales.off-w.planes.off:][:w.scales.size]), part, m.row+r0, m.as)

	s.Lock()
	s.left -= part.Rows
	whole := s.left == 0
	s.Unlock()
	if d.layers[t.Layer].tensors[j].Add(-int64(part.Rows)) == 0 {
		d.m.ReleaseTensor(t)
	}
	if !whole {
		return nil
	}
	defer d.bufs.Put(s.buf)
	return d.upload(l.buf, w.planes.off, buf)
}

// ErrInvalid is wrapped by Load for planes that contradict each other. Where they
// do, [ternary.Model.Validate] says.
var ErrInvalid = errors.New("planes of weights contradict each other")

// projection returns the index of t among the linears of its layer.
func (d *loading) projection(t ternary.Tensor) int {
	for j, w := range d.m.Layers[t.Layer].Linears() {
		if w == t.Ternary {
			return j
		}
	}
	panic("gpu: a matrix that is no linear of its layer")
}

// biases writes those of all members of a linear into its staged form. They are
// in memory also where a model's rows are not.
func (d *loading) biases(layer, linear int, buf []byte) error {
	w := &d.in.layers[layer].linears[linear]
	if w.bias.size == 0 {
		return nil
	}
	to := floatsOf(buf[w.bias.off-w.planes.off:][:w.bias.size])
	for j, m := range d.in.members() {
		t := d.m.Layers[layer].Linears()[j]
		if m.linear != linear || t.Bias == nil {
			continue
		}
		name := ternary.LayerName(layer, ternary.Projections[j])
		if err := backend.CheckTensor(ternary.Tensor{Name: name, Ternary: &ternary.Matrix{Bias: t.Bias}}); err != nil {
			return err
		}
		kernels.PackBias(to, t, m.row, m.as)
	}
	return nil
}

// fillTable packs and uploads rows of a table, which are whole strips.
func (d *loading) fillTable(t ternary.Tensor, part *ternary.Int8Matrix, r0 int) error {
	to, copied := &d.in.head, &d.copied.head
	if t.Int8 == d.m.Embed {
		to, copied = &d.in.embed, &d.copied.embed
	}
	strips := kernels.Strips(part.Rows)
	buf := d.buffer(kernels.TableBytes(strips, to.tiles))
	defer d.bufs.Put(buf)
	kernels.PackTable(*buf, part, 0)
	err := d.upload(to.buf, to.rows.off+kernels.TableBytes(r0/kernels.StripRows, to.tiles), *buf)
	if err == nil {
		err = d.upload(to.buf, to.scales.off+4*int64(r0), bytesOf(part.Scale))
	}
	// A table may be half of a model. What is copied is released from time to
	// time, so that there is no second one in memory.
	const some = 8 << 20
	done := int(copied.Add(int64(part.Rows)))
	if done == t.Int8.Rows || done*t.Int8.Stride/some > (done-part.Rows)*t.Int8.Stride/some {
		d.m.ReleaseTensor(t)
	}
	return err
}

// upload copies p to the device.
func (d *loading) upload(b Buffer, offset int64, p []byte) error {
	return d.in.b.do(func() error { return d.in.b.dev.Upload(b, offset, p) })
}

// buffer returns n bytes of zeros.
func (d *loading) buffer(n int64) *[]byte {
	buf, _ := d.bufs.Get().(*[]byte)
	if buf == nil || int64(cap(*buf)) < n {
		p := make([]byte, n)
		return &p
	}
	*buf = (*buf)[:n]
	clear(*buf)
	return buf
}

// bytesOf and floatsOf view memory as of another type; addresses suit both.
func bytesOf[T float32 | int32](p []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p))), 4*len(p))
}
func floatsOf(p []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/4)
}
