package dense

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"npack/runtime/engine"
	"npack/runtime/identity"
	"npack/ternary"
)

// Trajectory is one prompt and its stored greedy answer.
type Trajectory = identity.Trajectory

// ParseTrajectories reads a file of trajectories of a model.
func ParseTrajectories(data []byte, c *ternary.Config) ([]Trajectory, error) {
	return identity.Parse(data, c.Vocab, engine.ModelContext(c))
}

// Tokens is the outcome of [Greedy].
type Tokens struct {
	Compared, Equal int
	// First is the first difference, if there is one: trajectory and step, from 0.
	First *Difference
	// LeastMargin is the smallest margin of a token that is equal.
	LeastMargin float64
}

// Difference is a token that the weights choose otherwise than stored.
type Difference struct {
	Prompt, Step int
	Got, Want    int32
	Margin       float64 // best less second-best logit here
}

// Greedy counts the tokens of stored trajectories that the weights choose, too,
// each on the stored text before it.
func Greedy(ctx context.Context, w Weights, list []Trajectory, progress func(done, total int64)) (Tokens, error) {
	texts := make([]Text, len(list))
	for i, t := range list {
		tokens := slices.Concat(t.Prompt, t.IDs[:len(t.IDs)-1])
		texts[i] = Text{Tokens: tokens, From: len(t.Prompt) - 1, Next: t.IDs}
	}
	scores, err := Run(ctx, w, texts, progress)
	r := Tokens{LeastMargin: math.Inf(1)}
	for i, t := range scores {
		for j, s := range t {
			r.Compared++
			switch {
			case s.Best == list[i].IDs[j]:
				r.Equal++
				r.LeastMargin = min(r.LeastMargin, s.Margin)
			case r.First == nil:
				r.First = &Difference{i, j, s.Best, list[i].IDs[j], s.Margin}
			}
		}
	}
	return r, err
}

// Windows are stretches of a text that are scored each on its own.
type Windows [][]int32

// ParseWindows reads a file of a held-out text: an object with "ids" and a list
// "windows" of objects with "start" and "tokens".
func ParseWindows(data []byte, c *ternary.Config) (Windows, error) {
	vocab, context := c.Vocab, engine.ModelContext(c)
	var file struct {
		IDs     []int32 `json:"ids"`
		Windows []struct{ Start, Tokens int }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	for i, id := range file.IDs {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("ids[%d]: token id %d, expected 0 to %d, the vocabulary of this model", i, id, vocab-1)
		}
	}
	var w Windows
	for i, x := range file.Windows {
		if x.Start < 0 || x.Tokens < 2 || x.Tokens > context || x.Start > len(file.IDs)-x.Tokens {
			return nil, fmt.Errorf("windows[%d]: %d tokens from %d, expected 2 to %d within the %d of ids", i, x.Tokens, x.Start, context, len(file.IDs))
		}
		w = append(w, file.IDs[x.Start:x.Start+x.Tokens])
	}
	if len(w) == 0 {
		return nil, errors.New("windows: none, expected one or more")
	}
	return w, nil
}

// Perplexity is exp of the mean loss of the windows' tokens but the first of
// each.
func Perplexity(ctx context.Context, w Weights, windows Windows, progress func(done, total int64)) (float64, error) {
	var texts []Text
	for _, ids := range windows {
		texts = append(texts, Text{Tokens: ids[:len(ids)-1], Next: ids[1:]})
	}
	scores, err := Run(ctx, w, texts, progress)
	if err != nil {
		return 0, err
	}
	sum, n := 0.0, 0
	for _, t := range scores {
		for i := range t {
			sum += t[i].Loss()
			n++
		}
	}
	return math.Exp(sum / float64(n)), nil
}
