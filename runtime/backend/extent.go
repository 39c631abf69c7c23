package backend

import "fmt"

// Extent is how many tokens a sequence holds and how many it has room for: the part of
// a [Sequence] that is the same in every backend.
type Extent struct{ Held, Room int }

// NewExtent returns an empty one. It refuses a context that is not within 1 to most.
func NewExtent(context, most int) (Extent, error) {
	if context < 1 || context > most {
		return Extent{}, fmt.Errorf("context of %d tokens is not within 1..%d", context, most)
	}
	return Extent{Room: context}, nil
}

// Len implements [Sequence].
func (e *Extent) Len() int { return e.Held }

// Cap implements [Sequence].
func (e *Extent) Cap() int { return e.Room }

// Truncate implements [Sequence].
func (e *Extent) Truncate(n int) error {
	if n < 0 || n > e.Held {
		return fmt.Errorf("truncate to %d tokens: the sequence holds %d", n, e.Held)
	}
	e.Held = n
	return nil
}
