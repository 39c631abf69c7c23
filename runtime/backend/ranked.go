package backend

import (
	"context"
	"fmt"
)

// MaxRanked is the most tokens that a [Ranker] can be asked to rank.
const MaxRanked = 64

// Ranked is a token and its logit.
type Ranked struct {
	ID    int32
	Logit float32
}

// Ranker is an [Instance] that finds the largest logits where they are computed.
// A choice that needs no others then costs the transfer of a few bytes instead
// of the whole vocabulary's.
type Ranker interface {
	Instance
	// ForwardRanked is Forward for runs without room for logits. For each token
	// that they want, in order, best [wanted*k] gets the k that rank first: larger
	// logits first, among equals the smaller id. k is 1 to MaxRanked and not above
	// the vocabulary.
	ForwardRanked(ctx context.Context, runs []Run, k int, best []Ranked) error
}

// RankedColumns is [Columns] for [Ranker]: it also checks k, which is above 0, and
// the length of best.
func RankedColumns(batch []Column, runs []Run, vocab, k int, best []Ranked) ([]Column, error) {
	if k < 1 || k > min(MaxRanked, vocab) {
		return nil, fmt.Errorf("%d tokens to rank: 1 to %d can be", k, min(MaxRanked, vocab))
	}
	wanted := 0
	for _, r := range runs {
		wanted += len(r.Want)
	}
	if len(best) != wanted*k {
		return nil, fmt.Errorf("room for %d ranked tokens, %d wanted", len(best), wanted*k)
	}
	return columns(batch, runs, vocab, 0)
}
