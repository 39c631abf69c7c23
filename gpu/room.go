package gpu

import "fmt"

// reserve makes room for passes of n columns.
func (in *instance) reserve(n int) error {
	if n <= in.scratch.room {
		return nil
	}
	in.moved()
	in.b.free(&in.scratch.buf)
	t, size := in.placeScratch(room(n))
	buf, err := in.b.alloc(size)
	if err != nil {
		in.scratch = scratch{}
		return fmt.Errorf("activations of %d tokens: %w", room(n), err)
	}
	t.buf = buf
	in.scratch = t
	in.pass.faulty = true
	return nil
}

// reservePartials makes room for the attention of a segment.
func (in *instance) reservePartials(s *segment) error {
	_, size := in.placePartial(in.round(s.n, s.chunks), s.chunks)
	if size <= in.partials.Size {
		return nil
	}
	in.moved()
	in.b.free(&in.partials)
	var err error
	if in.partials, err = in.b.alloc(size); err != nil {
		return fmt.Errorf("attention over %d chunks: %w", s.chunks, err)
	}
	return nil
}

// growRotary makes sure that the device has the rotary table of the positions
// below n.
func (in *instance) growRotary(n int) error {
	if n <= in.ropeOnCard || in.rope.Pairs == 0 {
		return nil
	}
	n = steps(n) * step
	in.rope.Grow(n)
	in.ropeOnCard = 0
	size := in.rotaryBytes(n)
	for _, t := range []struct {
		buf  *Buffer
		host []float32
	}{{&in.cos, in.rope.Cos}, {&in.sin, in.rope.Sin}} {
		in.moved()
		in.b.free(t.buf)
		buf, err := in.b.alloc(size)
		if err != nil {
			return fmt.Errorf("rotary table of %d positions: %w", n, err)
		}
		*t.buf = buf
		if err := in.b.dev.Upload(buf, 0, bytesOf(t.host[:size/4])); err != nil {
			return err
		}
	}
	in.ropeOnCard = n
	return nil
}

// moved notes that a buffer of the instance is about to change its place: what was
// recorded names the old one, and input left for the next pass is gone.
func (in *instance) moved() {
	in.epoch++
	in.pass.next.seq = nil
}
