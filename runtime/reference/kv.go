package reference

import (
	"npack/runtime/backend"
	"npack/ternary"
)

// sequence is the key/value cache of one text. Values are converted once, when
// stored, and never change afterwards.
type sequence struct {
	backend.Extent
	c      *ternary.Config
	kv     backend.KV
	keys   []store // [Layers]
	values []store // [Layers]
}

// store holds cap*KVHeads head vectors of one layer in the cache's number
// type: one of the slices is set, and scale with i8.
type store struct {
	f32   []float32 // [cap*KVHeads*HeadDim]
	f16   []uint16  // [cap*KVHeads*HeadDim]
	i8    []int8    // [cap*KVHeads*HeadDim]
	scale []float32 // [cap*KVHeads]
}

func newSequence(c *ternary.Config, kv backend.KV, e backend.Extent) *sequence {
	s := &sequence{Extent: e, c: c, kv: kv, keys: make([]store, c.Layers), values: make([]store, c.Layers)}
	for i := range s.keys {
		s.keys[i] = newStore(kv, e.Room*c.KVHeads, c.HeadDim)
		s.values[i] = newStore(kv, e.Room*c.KVHeads, c.HeadDim)
	}
	return s
}

func newStore(kv backend.KV, vectors, dim int) store {
	switch kv {
	case backend.KVF32:
		return store{f32: make([]float32, vectors*dim)}
	case backend.KVInt8:
		return store{i8: make([]int8, vectors*dim), scale: make([]float32, vectors)}
	}
	return store{f16: make([]uint16, vectors*dim)}
}

// put stores head vector i of the layer after keep_50, which it applies to x,
// using q [len(x)] as scratch. It reports false if a value is not finite in the
// cache's type.
func (s *store) put(i int, x []float32, q []int32) bool {
	keepAll(x, 50)
	m, ok := absMax(x)
	if !ok {
		return false
	}
	at := i * len(x)
	switch {
	case s.f32 != nil:
		copy(s.f32[at:], x)
	case s.f16 != nil:
		for d, v := range x {
			s.f16[at+d] = F32toF16(v)
		}
		return m < 65520 // from there on the half is infinite
	case m < pow2(-40):
		s.scale[i] = 0
		clear(s.i8[at : at+len(x)])
	default:
		s.scale[i] = QuantizeInt8(q, x, m)
		for d, v := range q {
			s.i8[at+d] = int8(v)
		}
	}
	return true
}

// get reads head vector i of the layer into x.
func (s *store) get(x []float32, i int) {
	at := i * len(x)
	switch {
	case s.f32 != nil:
		copy(x, s.f32[at:])
	case s.f16 != nil:
		for d := range x {
			x[d] = F16toF32(s.f16[at+d])
		}
	default:
		for d := range x {
			x[d] = mul(float32(s.i8[at+d]), s.scale[i])
		}
	}
}

func (s *store) clone() store {
	return store{append([]float32(nil), s.f32...), append([]uint16(nil), s.f16...), append([]int8(nil), s.i8...), append([]float32(nil), s.scale...)}
}

func (s *sequence) Fork() (backend.Sequence, error) {
	f := *s
	f.keys, f.values = make([]store, len(s.keys)), make([]store, len(s.values))
	for i := range s.keys {
		f.keys[i], f.values[i] = s.keys[i].clone(), s.values[i].clone()
	}
	return &f, nil
}

func (s *sequence) Close() error {
	s.keys, s.values, s.Extent = nil, nil, backend.Extent{}
	return nil
}
