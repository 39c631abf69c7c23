package gpu

import (
	"errors"
	"fmt"

	"npack/gpu/kernels"
	"npack/runtime/backend"
	"npack/runtime/reference"
)

// step is the number of positions by which a cache grows.
const step = kernels.CacheStep

// sequence is the key/value cache of one text. It grows with the text, so that a
// long window costs memory only when it is used: layer by layer, so that at no
// time more than one layer is there twice.
type sequence struct {
	backend.Extent
	in     *instance
	steps  int     // that all layers have room for
	layers []cache // [Layers]

	recordings []recording
}

// cache holds the keys and values of a layer, as kernels.CacheBytes describes it.
type cache struct {
	steps  int
	values Buffer
	scales Buffer // beside an int8 cache
}

func (in *instance) NewSequence(context int) (backend.Sequence, error) {
	extent, err := backend.NewExtent(context, reference.MaxPositions)
	if err != nil {
		return nil, err
	}
	// The kernels count the elements of a layer's cache in 32 bits.
	if n := int64(steps(context)) * step * 2 * int64(in.c.KVHeads) * int64(in.headPad); n > 1<<32 {
		return nil, fmt.Errorf("context of %d tokens: %d keys and values a layer, these kernels take up to %d", context, n, int64(1)<<32)
	}
	return &sequence{Extent: extent, in: in, layers: make([]cache, in.c.Layers)}, nil
}

// grow makes room for the positions below n. More than asked for is taken where
// that saves growing again soon, but never more than the whole window needs.
func (s *sequence) grow(n int) error {
	need := steps(n)
	if need <= s.steps {
		return nil
	}
	need = min(max(need, s.steps+s.steps/4), steps(s.Room))
	s.forgetRecordings() // they name the buffers
	for l := range s.layers {
		if err := s.in.growCache(&s.layers[l], need); err != nil {
			return fmt.Errorf("key/value cache of %d tokens: %w", need*step, err)
		}
	}
	s.steps = need
	return nil
}

// steps is the number of steps that hold n positions.
func steps(n int) int { return (n + step - 1) / step }

// growCache moves c to buffers for n steps, if it has room for less.
func (in *instance) growCache(c *cache, n int) error {
	if n <= c.steps {
		return nil
	}
	values, scales := in.cacheBytes(c.steps)
	moreValues, moreScales := in.cacheBytes(n)
	if err := in.b.grow(&c.values, values, moreValues); err != nil {
		return err
	}
	if err := in.b.grow(&c.scales, scales, moreScales); err != nil {
		return err
	}
	c.steps = n
	return nil
}

func (s *sequence) Fork() (backend.Sequence, error) {
	f := &sequence{Extent: s.Extent, in: s.in, layers: make([]cache, len(s.layers))}
	copied := func(to, from Buffer, n int64) error {
		if n == 0 {
			return nil
		}
		return s.in.b.dev.Copy(to, 0, from, 0, n)
	}
	err := s.in.b.do(func() error {
		if err := f.grow(s.Held); err != nil {
			return err
		}
		values, scales := s.in.cacheBytes(steps(s.Held))
		for l := range f.layers {
			to, from := &f.layers[l], &s.layers[l]
			if err := errors.Join(copied(to.values, from.values, values), copied(to.scales, from.scales, scales)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *sequence) Close() error {
	err := s.in.b.do(func() error {
		s.forgetRecordings()
		for l := range s.layers {
			s.in.b.free(&s.layers[l].values)
			s.in.b.free(&s.layers[l].scales)
		}
		return nil
	})
	s.layers, s.steps, s.Extent = nil, 0, backend.Extent{}
	return err
}
