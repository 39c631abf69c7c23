package cpu

import (
	"fmt"
	"unsafe"

	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

const (
	chunk = 64        // key positions that attention takes together (NUMERICS.md)
	step  = 4 * chunk // positions by which a cache grows
)

// sequence is the key/value cache of one text. It grows in steps as the text
// does, so that a long window costs memory only when it is used. In a step, the
// vectors of one layer and head lie side by side: a chunk is one run of bytes.
type sequence struct {
	backend.Extent
	in    *instance
	steps []slab
}

// slab is the memory of one step: [Layers][2][KVHeads][step] vectors, keys
// before values, each padded to dimPad.
type slab struct {
	raw   []byte
	f32   []float32 // one of these three is set
	f16   []uint16
	i8    []int8
	scale []float32 // beside i8, one a vector
}

// cacheShape is what the memory of a cache depends on.
type cacheShape struct {
	kv      backend.KV
	kvHeads int
	dim     int // of a head
	dimPad  int // dim rounded up to whole vectors of 16
	vectors int // in a step
}

func newCacheShape(c *ternary.Config, kv backend.KV) cacheShape {
	return cacheShape{kv: kv, kvHeads: c.KVHeads, dim: c.HeadDim, dimPad: roundUp(c.HeadDim, 16), vectors: c.Layers * 2 * c.KVHeads * step}
}

// bytes is the size of a slab.
func (s *cacheShape) bytes() int {
	n := s.vectors * s.dimPad
	switch s.kv {
	case backend.KVF32:
		return 4 * n
	case backend.KVInt8:
		return n + 4*s.vectors
	}
	return 2 * n
}

func (s *cacheShape) newSlab() (slab, error) {
	raw, err := allocate(s.bytes())
	if err != nil {
		return slab{}, fmt.Errorf("key/value cache of %d more tokens, %d bytes: %w", step, s.bytes(), err)
	}
	return s.view(raw), nil
}

func (s *cacheShape) view(raw []byte) slab {
	b, n := slab{raw: raw}, s.vectors*s.dimPad
	switch s.kv {
	case backend.KVF32:
		b.f32 = view[float32](raw, n)
	case backend.KVInt8:
		b.i8 = view[int8](raw, n)
		b.scale = view[float32](raw[n:], s.vectors)
	default:
		b.f16 = view[uint16](raw, n)
	}
	return b
}

// view returns the first n elements in b, whose address suits their type.
func view[E any](b []byte, n int) []E {
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func (in *instance) NewSequence(context int) (backend.Sequence, error) {
	extent, err := backend.NewExtent(context, reference.MaxPositions)
	if err != nil {
		return nil, err
	}
	return &sequence{Extent: extent, in: in, steps: make([]slab, 0, roundUp(context, step)/step)}, nil
}

// grow makes room for the positions below n.
func (s *sequence) grow(n int) error {
	s.in.rope.Grow(roundUp(n, step))
	for len(s.steps)*step < n {
		b, err := s.in.cache.newSlab()
		if err != nil {
			return err
		}
		s.steps = append(s.steps, b)
	}
	return nil
}

// at returns the slab of position pos and the index of its vector there; value
// is 0 for the key and 1 for the value.
func (s *sequence) at(layer, value, head, pos int) (*slab, int) {
	return &s.steps[pos/step], ((layer*2+value)*s.in.cache.kvHeads+head)*step + pos%step
}

// put stores x [dimPad], the key (0) or value (1) of a head, after keep_50, which
// it applies to x. It reports false if a value is not finite in the cache's type.
func (s *sequence) put(layer, value, head, pos int, x []float32) bool {
	shape := &s.in.cache
	for d, v := range x {
		x[d] = reference.Keep(v, 50)
	}
	b, i := s.at(layer, value, head, pos)
	at := i * shape.dimPad
	most := s.in.k.vec.absMax(x)
	switch {
	case b.f16 != nil:
		s.in.k.vec.toHalf(b.f16[at:at+len(x)], x)
		return most < 0x477ff000 // 65520: from there on the half is infinite
	case b.f32 != nil:
		copy(b.f32[at:], x)
		return most < infBits
	case most >= infBits:
		return false
	}
	b.scale[i] = quantizeVector(b.i8[at:at+len(x)], x, most)
	return true
}

// load returns the n vectors of a chunk of keys or values as float32, in buf
// unless they are so already.
func (s *sequence) load(buf []float32, layer, value, head, first, n int) []float32 {
	shape, v := &s.in.cache, s.in.k.vec
	b, i := s.at(layer, value, head, first)
	at, size := i*shape.dimPad, n*shape.dimPad
	switch {
	case b.f32 != nil:
		return b.f32[at : at+size]
	case b.f16 != nil:
		v.fromHalf(buf[:size], b.f16[at:at+size])
	default:
		for j := range n {
			d := j * shape.dimPad
			v.fromInt8(buf[d:d+shape.dimPad], b.i8[at+d:at+d+shape.dimPad], b.scale[i+j])
		}
	}
	return buf[:size]
}

// halves returns a chunk of keys or values as they are stored, as halves.
func (s *sequence) halves(layer, value, head, first int) []uint16 {
	b, i := s.at(layer, value, head, first)
	return b.f16[i*s.in.cache.dimPad:][:chunk*s.in.cache.dimPad]
}

func (s *sequence) Fork() (backend.Sequence, error) {
	f := &sequence{Extent: s.Extent, in: s.in, steps: make([]slab, 0, cap(s.steps))}
	if err := f.grow(s.Held); err != nil {
		f.Close()
		return nil, err
	}
	for i := range f.steps {
		copy(f.steps[i].raw, s.steps[i].raw)
	}
	return f, nil
}

func (s *sequence) Close() error {
	for _, b := range s.steps {
		if err := release(b.raw); err != nil {
			return err
		}
	}
	s.steps, s.Extent = nil, backend.Extent{}
	return nil
}
