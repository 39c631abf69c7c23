package identity

import (
	"context"
	"math"

	"npack/runtime/backend"
	"npack/runtime/engine"
)

// batch is how many prompts go through the model together. It changes no bit,
// and reading the weights once for all of them makes a run faster.
const batch = 16

// Report is the outcome of [Compare].
type Report struct {
	Tokens  int // compared
	Differ  int // chosen otherwise than stored
	Prompts []Prompt
	// MarginError is the largest difference between our margin and the stored
	// one over all tokens that are equal and have one.
	MarginError float64
	Margins     int // tokens that MarginError is over
}

// Prompt is the outcome for one trajectory.
type Prompt struct {
	Tokens      int
	Differences []Difference // in order; the first is where a free run forks
	MinMargin   float64      // our smallest margin, the likeliest place to fork
}

// Difference is a token that we choose otherwise than stored, after the same
// tokens.
type Difference struct {
	Step           int // from 0, in the answer
	Got, Want      int32
	GotLogit       float32
	WantLogit      float32
	Margin, Stored float64 // best minus second-best logit, ours and theirs; Stored is NaN if there is none
}

// Compare runs the trajectories greedily, one token a step as a user would,
// and compares each token. Up to the first difference of a prompt that is a
// free run; behind it the stored tokens are fed, so that every later token is
// judged on the same text. Stop tokens do not stop. progress, if not nil, is
// told how many tokens were compared, more at every call.
func Compare(ctx context.Context, inst backend.Instance, list []Trajectory, progress func(done int)) (*Report, error) {
	r := &Report{}
	for len(list) > 0 {
		n := min(batch, len(list))
		prompts, err := compareBatch(ctx, inst, list[:n], func(tokens int) {
			if r.Tokens += tokens; progress != nil {
				progress(r.Tokens)
			}
		})
		if err != nil {
			return nil, err
		}
		for i, p := range prompts {
			r.Differ += len(p.Differences)
			r.Prompts = append(r.Prompts, p.Prompt)
			if list[i].Margins != nil {
				r.Margins += p.margins
				r.MarginError = max(r.MarginError, p.marginError)
			}
		}
		list = list[n:]
	}
	return r, nil
}

// text is a trajectory on its way through the model.
type text struct {
	Prompt
	*Trajectory
	seq         backend.Sequence
	logits      []float32 // [Vocab], after the tokens in seq
	margins     int
	marginError float64
}

func compareBatch(ctx context.Context, inst backend.Instance, list []Trajectory, progress func(tokens int)) ([]*text, error) {
	texts := make([]*text, 0, len(list))
	defer func() {
		for _, t := range texts {
			t.seq.Close()
		}
	}()
	for i := range list {
		seq, err := inst.NewSequence(list[i].tokens())
		if err != nil {
			return nil, err
		}
		t := &text{Trajectory: &list[i], seq: seq, logits: make([]float32, inst.Config().Vocab)}
		t.MinMargin = math.Inf(1)
		texts = append(texts, t)
		for rest := list[i].Prompt; len(rest) > 0; {
			n := min(engine.DefaultChunk, len(rest))
			run := backend.Run{Seq: seq, Tokens: rest[:n]}
			if rest = rest[n:]; len(rest) == 0 {
				run.Want, run.Logits = []int{n - 1}, t.logits
			}
			if err := inst.Forward(ctx, []backend.Run{run}); err != nil {
				return nil, err
			}
		}
	}
	for {
		var runs []backend.Run
		compared := 0
		for _, t := range texts {
			if t.Tokens == len(t.IDs) {
				continue
			}
			t.step()
			if compared++; t.Tokens < len(t.IDs) {
				runs = append(runs, backend.Run{Seq: t.seq, Tokens: t.IDs[t.Tokens-1 : t.Tokens], Want: []int{0}, Logits: t.logits})
			}
		}
		progress(compared)
		if len(runs) == 0 {
			return texts, nil
		}
		if err := inst.Forward(ctx, runs); err != nil {
			return nil, err
		}
	}
}

// step compares one token.
func (t *text) step() {
	i := t.Tokens
	got, margin := engine.Margin(t.logits)
	stored := math.NaN()
	if t.Margins != nil {
		stored = t.Margins[i]
	}
	if want := t.IDs[i]; got != want {
		t.Differences = append(t.Differences, Difference{i, got, want, t.logits[got], t.logits[want], margin, stored})
	} else if t.Margins != nil {
		t.margins++
		t.marginError = max(t.marginError, math.Abs(margin-stored))
	}
	t.MinMargin = min(t.MinMargin, margin)
	t.Tokens++
}
