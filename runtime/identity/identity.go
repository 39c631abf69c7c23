package identity

import (
	"context"
	"math"

	"npack/runtime/backend"
	"npack/runtime/engine"
)

// Report is the outcome of [Compare].
type Report struct {
	Tokens  int // compared
	Differ  int // chosen otherwise than stored
	Prompts []Prompt
	// MarginError is the largest difference between our margin and the stored
	// one over all tokens that are equal and have one.
	MarginError float64
	Margins     int // tokens that MarginError is over

	Bits       int // steps whose logits were compared bit by bit
	BitsDiffer int
}

// Prompt is the outcome for one trajectory.
type Prompt struct {
	Tokens      int
	Differences []Difference // in order; the first is where a free run forks
	MinMargin   float64      // our smallest margin, the likeliest place to fork
	Bits        int          // steps whose logits were compared bit by bit
	BitsDiffer  int
	FirstBits   int   // the first step whose bits differ, -1 if none does
	Sums        []Sum // of our logits, if asked for
}

// Difference is a token that we choose otherwise than stored, after the same
// tokens.
type Difference struct {
	Step           int // from 0, in the answer
	Got, Want      int32
	GotLogit       float32
	WantLogit      float32
	Largest        float32 // logit in size, which errors are relative to
	Margin, Stored float64 // best minus second-best logit, ours and theirs; Stored is NaN if there is none
}

// Behind is by how much the stored token loses against ours.
func (d *Difference) Behind() float64 { return float64(d.GotLogit) - float64(d.WantLogit) }

// Compare runs the trajectories greedily and compares each token. Up to the
// first difference of a prompt that is a free run; behind it the stored tokens
// are fed (teacher forced), so that every later token is judged on the same
// text. With bits it also sums up the logits of every step, and compares the
// sums where they are stored. Stop tokens do not stop. progress, if not nil, is
// told how many tokens were compared, more at every call.
func Compare(ctx context.Context, inst backend.Instance, list []Trajectory, bits bool, progress func(done int)) (*Report, error) {
	r := &Report{Prompts: make([]Prompt, len(list))}
	walks := make([]*walk, len(list))
	var h hasher
	for i := range list {
		t, p := &list[i], &r.Prompts[i]
		p.MinMargin, p.FirstBits = math.Inf(1), -1
		walks[i] = &walk{prompt: t.Prompt, steps: len(t.IDs), step: func(step int, logits []float32) int32 {
			r.compare(p, t, step, logits)
			if bits {
				p.Sums = append(p.Sums, h.sum(logits))
				if t.Bits != nil {
					p.compareBits(step, p.Sums[step] == t.Bits[step])
				}
			}
			return t.IDs[step]
		}}
	}
	if err := run(ctx, inst, walks, progress); err != nil {
		return nil, err
	}
	for _, p := range r.Prompts {
		r.Tokens += p.Tokens
		r.Differ += len(p.Differences)
		r.Bits += p.Bits
		r.BitsDiffer += p.BitsDiffer
	}
	return r, nil
}

// compare compares one token.
func (r *Report) compare(p *Prompt, t *Trajectory, step int, logits []float32) {
	got, margin := engine.Margin(logits)
	stored := math.NaN()
	if t.Margins != nil {
		stored = t.Margins[step]
	}
	if want := t.IDs[step]; got != want {
		p.Differences = append(p.Differences, Difference{step, got, want, logits[got], logits[want], largest(logits), margin, stored})
	} else if t.Margins != nil {
		r.Margins++
		r.MarginError = max(r.MarginError, math.Abs(finite(margin)-stored))
	}
	p.MinMargin = min(p.MinMargin, margin)
	p.Tokens++
}

func (p *Prompt) compareBits(step int, equal bool) {
	p.Bits++
	if equal {
		return
	}
	if p.BitsDiffer++; p.FirstBits < 0 {
		p.FirstBits = step
	}
}

// largest is the logit that is largest in size.
func largest(logits []float32) float32 {
	var most float32
	for _, l := range logits {
		most = max(most, l, -l)
	}
	return most
}
