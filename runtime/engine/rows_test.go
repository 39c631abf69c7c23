package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"npack/runtime/backend"
)

// ranking is a fake that ranks logits itself.
type ranking struct {
	*fake
	ranked int // calls of ForwardRanked
	k      int // of the last
}

func (f *ranking) ForwardRanked(ctx context.Context, runs []backend.Run, k int, best []backend.Ranked) error {
	f.ranked++
	f.k = k
	logits := make([]float32, f.cfg.Vocab)
	runs = slices.Clone(runs)
	for i := range runs {
		runs[i].Logits = make([]float32, len(runs[i].Want)*f.cfg.Vocab)
	}
	if err := f.Forward(ctx, runs); err != nil {
		return err
	}
	for _, r := range runs {
		for i := range r.Want {
			logits = append(logits[:0], r.Logits[i*f.cfg.Vocab:(i+1)*f.cfg.Vocab]...)
			for j := range k {
				id := largest(logits)
				best[j] = backend.Ranked{ID: id, Logit: logits[id]}
				logits[id] = -1e9
			}
			best = best[k:]
		}
	}
	return nil
}

// TestRanked: an answer is the same, to the caller and in the cache, from a
// backend that ranks logits itself, which is asked to where that is enough.
func TestRanked(t *testing.T) {
	prompt := bytesAsIDs("say:")
	for _, c := range []struct {
		name string
		p    Sampling
		k    int
	}{
		{"greedy", Sampling{}, 1},
		{"top-k", Sampling{Temperature: 0.8, TopK: 20, TopP: 0.95, Seed: 1}, 20},
		{"top-k of one", Sampling{Temperature: 2, TopK: 1, Seed: 2}, 1},
		{"min-p", Sampling{Temperature: 3, TopK: 64, MinP: 0.05, Seed: 3}, 64},
		{"all tokens", Sampling{Temperature: 1, Seed: 4}, 0},
		{"too many", Sampling{Temperature: 1, TopK: 65, Seed: 5}, 0},
		{"penalties", Sampling{Repetition: 1.3}, 0},
		{"sampled with penalties", Sampling{Temperature: 1, TopK: 20, Frequency: 0.5, Seed: 6}, 0},
	} {
		for draft := range 3 { // none, from the text, from a model
			var got [2][]string
			for i := range got {
				plain := newFake(256, nil)
				r := &ranking{fake: plain}
				var inst backend.Instance = plain
				if i == 1 {
					inst = r
				}
				s, err := New(inst, 3).NewSession(60)
				if err != nil {
					t.Fatal(err)
				}
				switch draft {
				case 1:
					err = s.Draft(&Lookup{}, 4)
				case 2:
					var d *DraftModel
					if d, err = NewDraftModel(inst, 60, 256); err == nil {
						err = s.Draft(d, 3)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				got[i] = events(t, s, Request{Prompt: prompt, MaxTokens: 40, Sampling: c.p}, 0)
				if i == 1 && (r.k != c.k || (c.k > 0) != (r.ranked == r.calls)) {
					t.Errorf("%s, draft %d: %d of %d passes ranked, the last %d tokens, want %d", c.name, draft, r.ranked, r.calls, r.k, c.k)
				}
			}
			if !slices.Equal(got[0], got[1]) {
				t.Errorf("%s, draft %d:\n%s\nwithout ranks:\n%s", c.name, draft, strings.Join(got[1], "\n"), strings.Join(got[0], "\n"))
			}
		}
	}
}

// TestRankedSmall: a vocabulary smaller than top-k is ranked whole, and a draft
// that knows tokens that the model does not have is not ranked.
func TestRankedSmall(t *testing.T) {
	p := Sampling{Temperature: 1, TopK: 20}
	f := &ranking{fake: newFake(7, nil)}
	s, err := New(f, 0).NewSession(30)
	if err != nil {
		t.Fatal(err)
	}
	d := &ranking{fake: newFake(9, nil)}
	by, err := NewDraftModel(d, 30, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Draft(by, 2); err != nil {
		t.Fatal(err)
	}
	res, err := s.Generate(t.Context(), Request{Prompt: []int32{1, 2}, MaxTokens: 20, Sampling: p})
	if err != nil || len(res.IDs) != 20 {
		t.Fatal(len(res.IDs), err)
	}
	if got := fmt.Sprint(f.k, f.ranked == f.calls, d.ranked, d.calls > 0); got != "7 true 0 true" {
		t.Errorf("k, all ranked, the draft's ranked, the draft ran: %s", got)
	}
}
