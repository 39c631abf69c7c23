// Package race measures programs that run the same model against each other:
// contestants of ours and external ones take turns in rounds of one run, and no
// rate counts before the tokens were compared.
//
// docs/race.md describes the protocol and the file.
package race

import (
	"context"
	"fmt"
	"time"

	"npack/internal/machine"
	"npack/pack"
)

// Prompt is a text to continue. Class groups prompts that are alike, "" if
// there are no classes.
type Prompt struct {
	Class string  `json:"class"`
	IDs   []int32 `json:"ids"`
}

// Contestant is one that takes part.
type Contestant struct {
	Definition
	// Start makes it ready to run, model loaded.
	Start func(context.Context) (Runner, error)
}

// Runner is a contestant that was started.
type Runner interface {
	// Turn answers every prompt greedily with up to tokens tokens, each as if it
	// were the first.
	Turn(ctx context.Context, prompts []Prompt, tokens int) (*Turn, error)
	Close() error
}

// Turn is what a contestant did when it was its turn.
type Turn struct {
	Answers [][]int32 // of each prompt; nil from one that only tells its speed
	Total   Work
	Classes []ClassWork // in the order in which classes first come up; nil if there are none

	took time.Duration // all of it, by our clock
}

// Judge is a [Runner] that can say how near its choice was to another.
type Judge interface {
	// Judge continues prompt by answer, whose last token is not its choice, and
	// returns by how much its choice beat the second, and by how much the last
	// token of answer, both in logits. The error is [ErrNoLogits] if it cannot.
	Judge(ctx context.Context, prompt, answer []int32) (margin, behind float64, err error)
}

// Options say how a race is held.
type Options struct {
	OneByOne   bool // start each contestant for its turn and close it after: they do not fit memory together
	NoIdentity bool // compare no tokens; every contestant must be speed-only

	Compared func(*Identity)                              // is told when tokens were compared, before the first round
	Sampled  func(n int, clock *machine.Clock, s *Sample) // is told a round's number, from 1, and what was measured in a turn
	// Save, if not nil, is called after each round.
	Save func(*Report) error
}

// Run holds the race that r describes: those rounds that are not yet in it. It
// fills r. An error wraps [pack.ErrNotEqual] if tokens differ that must not.
func Run(ctx context.Context, contestants []Contestant, r *Report, o Options) error {
	h := &heat{contestants: contestants, r: r, o: o, runners: make([]Runner, len(contestants))}
	defer h.close()
	if r.Rounds == nil {
		r.Rounds, r.LoadBefore = []Round{}, machine.LoadAverage()
	}
	r.Finish()
	if err := h.warmUp(ctx); err != nil {
		return err
	}
	for len(r.Rounds) < r.Wanted {
		round, err := h.round(ctx, len(r.Rounds))
		if err != nil {
			return err
		}
		r.Rounds = append(r.Rounds, *round)
		r.LoadAfter = machine.LoadAverage()
		r.Finish()
		if o.Save != nil {
			if err := o.Save(r); err != nil {
				return err
			}
		}
	}
	r.Finish()
	return nil
}

// heat is a race that is being held.
type heat struct {
	contestants []Contestant
	r           *Report
	o           Options
	runners     []Runner
	answers     [][][]int32 // of each contestant to each prompt, from the warm-up
}

func (h *heat) close() {
	for _, r := range h.runners {
		if r != nil {
			_ = r.Close()
		}
	}
}

// warmUp lets everyone answer everything once, which brings weights and caches
// into memory and is not measured, and compares the tokens.
func (h *heat) warmUp(ctx context.Context) error {
	for i := range h.contestants {
		t, err := h.turn(ctx, i, true)
		if err != nil {
			return err
		}
		h.answers = append(h.answers, t.Answers)
	}
	id, err := h.compare(ctx)
	if err != nil {
		return err
	}
	if err := h.r.sameAnswers(id); err != nil {
		return err
	}
	h.r.Identity = *id
	if h.o.Compared != nil {
		h.o.Compared(id)
	}
	if n := id.unequal(); n != "" {
		return fmt.Errorf("contestant %q makes other tokens than %q: %w", n, id.Reference, pack.ErrNotEqual)
	}
	return nil
}

// turn lets a contestant run, and starts and closes it around that if it must.
func (h *heat) turn(ctx context.Context, i int, warm bool) (*Turn, error) {
	c := &h.contestants[i]
	fail := func(err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("contestant %q: %w", c.Name, err)
	}
	if err := h.start(ctx, i); err != nil {
		return nil, fail(err)
	}
	// One that was just started pays for its first pages; a bench has a warm-up of
	// its own.
	if h.o.OneByOne && !warm && c.Bench == "" {
		if _, err := h.runners[i].Turn(ctx, h.r.Prompts[:1], h.r.Tokens); err != nil {
			return nil, fail(err)
		}
	}
	start := time.Now()
	t, err := h.runners[i].Turn(ctx, h.r.Prompts, h.r.Tokens)
	if err != nil {
		return nil, fail(err)
	}
	t.took = time.Since(start)
	if !warm && !t.Total.measured() {
		return nil, fail(fmt.Errorf("%d tokens behind the first ones in %.3g s, %d of prompts in %.3g s: no rate", t.Total.Tokens, t.Total.DecodeSeconds, t.Total.PromptTokens, t.Total.PrefillSeconds))
	}
	if h.o.OneByOne {
		err := h.runners[i].Close()
		if h.runners[i] = nil; err != nil {
			return nil, fail(err)
		}
	}
	return t, nil
}

func (h *heat) start(ctx context.Context, i int) error {
	if h.runners[i] != nil {
		return nil
	}
	r, err := h.contestants[i].Start(ctx)
	if err == nil {
		h.runners[i] = r
	}
	return err
}

// round gives everyone one turn. Who is first changes from round to round, so
// that nobody always follows the same one.
func (h *heat) round(ctx context.Context, n int) (*Round, error) {
	round := &Round{Before: machine.ReadClock(), Samples: make([]Sample, len(h.contestants))}
	for k := range h.contestants {
		i := (n + k) % len(h.contestants)
		s := Sample{Contestant: h.contestants[i].Name, Load: machine.LoadAverage()}
		t, err := h.turn(ctx, i, false)
		if err != nil {
			return nil, err
		}
		s.Seconds, s.Total, s.Classes = t.took.Seconds(), t.Total, t.Classes
		if t.Answers != nil && h.answers[i] != nil && !h.o.NoIdentity {
			if p, at := firstFork(h.answers[i], t.Answers); p >= 0 {
				return nil, fmt.Errorf("contestant %q answers prompt %d otherwise than before, from token %d on: %w", s.Contestant, p, at, pack.ErrNotEqual)
			}
		}
		round.Samples[i] = s
		round.Order = append(round.Order, s.Contestant)
		if h.o.Sampled != nil {
			h.o.Sampled(n+1, &round.Before, &s)
		}
	}
	round.After = machine.ReadClock()
	return round, nil
}

// Answerer is a contestant that answers prompt by prompt; see [PerPrompt].
type Answerer interface {
	// Answer continues prompt greedily by up to tokens tokens, and says what that
	// cost.
	Answer(ctx context.Context, prompt []int32, tokens int) ([]int32, Work, error)
	Close() error
}

// PerPrompt makes turns of answers.
func PerPrompt(a Answerer) Runner { return perPrompt{a} }

type perPrompt struct{ Answerer }

func (p perPrompt) Turn(ctx context.Context, prompts []Prompt, tokens int) (*Turn, error) {
	t := &Turn{}
	for i := range prompts {
		ids, w, err := p.Answer(ctx, prompts[i].IDs, tokens)
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		t.Answers = append(t.Answers, ids)
		t.Total.Add(&w)
		t.class(prompts[i].Class).Add(&w)
	}
	if len(t.Classes) == 1 && t.Classes[0].Class == "" {
		t.Classes = nil
	}
	return t, nil
}

func (p perPrompt) Judge(ctx context.Context, prompt, answer []int32) (margin, behind float64, err error) {
	if j, ok := p.Answerer.(Judge); ok {
		return j.Judge(ctx, prompt, answer)
	}
	return 0, 0, ErrNoLogits
}

func (t *Turn) class(name string) *Work {
	for i := range t.Classes {
		if t.Classes[i].Class == name {
			return &t.Classes[i].Work
		}
	}
	t.Classes = append(t.Classes, ClassWork{Class: name})
	return &t.Classes[len(t.Classes)-1].Work
}
