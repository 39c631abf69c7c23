package backend

import (
	"fmt"

	"npack/ternary"
)

// Column is one token of a batch at its place in its sequence.
type Column struct {
	ID     int32
	Pos    int
	Run    int       // index of its run
	Wanted bool      // its logits are, all or the largest
	Logits []float32 // [Vocab], or nil
}

// Columns checks runs as [Instance] asks and appends their tokens, in order, to
// batch. An error is found before anything is computed.
func Columns(batch []Column, runs []Run, vocab int) ([]Column, error) {
	return columns(batch, runs, vocab, vocab)
}

// columns is Columns for runs with room for so many logits of a wanted token: vocab or 0.
func columns(batch []Column, runs []Run, vocab, room int) ([]Column, error) {
	for i, r := range runs {
		if need := r.Seq.Len() + len(r.Tokens); need > r.Seq.Cap() {
			return nil, fmt.Errorf("run %d: %w", i, &ContextError{Need: need, Have: r.Seq.Cap()})
		}
		if len(r.Logits) != len(r.Want)*room {
			return nil, fmt.Errorf("run %d: room for %d logits, %d wanted", i, len(r.Logits), len(r.Want)*room)
		}
		for _, o := range runs[:i] {
			if o.Seq == r.Seq {
				return nil, fmt.Errorf("run %d: its sequence is already in another run", i)
			}
		}
		first := len(batch)
		for j, id := range r.Tokens {
			if id < 0 || int(id) >= vocab {
				return nil, fmt.Errorf("run %d: token id %d is outside the vocabulary of %d", i, id, vocab)
			}
			batch = append(batch, Column{ID: id, Pos: r.Seq.Len() + j, Run: i})
		}
		for j, w := range r.Want {
			if w < 0 || w >= len(r.Tokens) || j > 0 && w <= r.Want[j-1] {
				return nil, fmt.Errorf("run %d: logits wanted of token %d of %d", i, w, len(r.Tokens))
			}
			batch[first+w].Wanted = true
			if room > 0 {
				batch[first+w].Logits = r.Logits[j*room : (j+1)*room]
			}
		}
	}
	return batch, nil
}

// Overflow says that a value of a layer's tensor, or of no layer's for layer -1,
// left the range of float32. It wraps [ErrOverflow].
func Overflow(layer int, name string) error {
	if layer >= 0 {
		name = ternary.LayerName(layer, name)
	}
	return fmt.Errorf("%s: %w", name, ErrOverflow)
}
