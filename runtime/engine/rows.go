package engine

import (
	"context"

	"npack/runtime/backend"
)

// row is what a token is chosen from: all logits or, where the backend ranks
// them itself and the sampler needs no others, the first in rank.
type row struct {
	logits []float32        // [Vocab]
	best   []backend.Ranked // instead of logits, if not nil
}

// rows runs passes and keeps a row for each token that one asks for.
type rows struct {
	inst   backend.Instance
	ranker backend.Ranker // inst, or nil
	ranks  int            // tokens in a ranked row; 0: rows are logits

	logits []float32        // [n*Vocab]
	best   []backend.Ranked // [n*ranks]
	run    [1]backend.Run   // kept here so that a pass allocates nothing
}

// newRows makes room for n rows of inst.
func newRows(inst backend.Instance, n int) rows {
	r := rows{inst: inst, logits: make([]float32, n*inst.Config().Vocab)}
	if r.ranker, _ = inst.(backend.Ranker); r.ranker != nil {
		r.best = make([]backend.Ranked, n*backend.MaxRanked)
	}
	return r
}

// suit makes the rows of the next pass those that choices by p need.
func (r *rows) suit(p *Sampling) {
	if r.ranks = 0; r.ranker != nil {
		r.ranks = p.ranks(r.inst.Config().Vocab)
	}
}

// forward appends tokens to seq; row i is then the one after tokens[want[i]].
func (r *rows) forward(ctx context.Context, seq backend.Sequence, tokens []int32, want []int) error {
	run := backend.Run{Seq: seq, Tokens: tokens, Want: want}
	if r.ranks > 0 {
		r.run[0] = run
		return r.ranker.ForwardRanked(ctx, r.run[:], r.ranks, r.best[:len(want)*r.ranks])
	}
	run.Logits = r.logits[:len(want)*r.inst.Config().Vocab]
	r.run[0] = run
	return r.inst.Forward(ctx, r.run[:])
}

// at returns row i of the last pass. It is valid until the next.
func (r *rows) at(i int) row {
	if r.ranks > 0 {
		return row{best: r.best[i*r.ranks : (i+1)*r.ranks]}
	}
	vocab := r.inst.Config().Vocab
	return row{logits: r.logits[i*vocab : (i+1)*vocab]}
}
