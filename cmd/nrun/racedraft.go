package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"npack/internal/cli"
	"npack/internal/race"
	"npack/pack"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/ternary"
)

// drafting is how a contestant of a race is drafted: by a second model or, with
// none, by looking up the text before.
type drafting struct {
	*packOf // nil: lookup
	model   *ternary.Model
	shared  int // ids below are of both vocabularies
	length  int // tokens at a time, 0: as many as pay
}

const (
	draftLookup = "lookup"
	draftAuto   = "auto"
)

// openDrafting opens the draft that a name and a length stand for; nil for "".
func openDrafting(name, length string, target *packOf) (*drafting, error) {
	if name == "" {
		if length != "" {
			return nil, cli.Usagef("draft=MODEL or draft=lookup", "a draft length without a draft")
		}
		return nil, nil
	}
	d := &drafting{}
	var err error
	if d.length, err = parseDraftLength(length); err != nil || name == draftLookup {
		return d, err
	}
	if d.packOf, err = packAt(name); err != nil {
		return nil, err
	}
	if d.model, err = d.Model(); err == nil {
		if err = d.runnable(); err == nil {
			err = d.share(target)
		}
	}
	if err != nil {
		_ = d.close()
		return nil, err
	}
	return d, nil
}

func parseDraftLength(s string) (int, error) {
	if s == "" || s == draftAuto {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > engine.MaxDraft {
		return 0, cli.Usagef("", "draft length %q: 1 to %d, or auto", s, engine.MaxDraft)
	}
	return n, nil
}

// share compares the vocabularies: by their tokens or, where neither has a
// tokenizer, by their sizes.
func (d *drafting) share(target *packOf) error {
	m, err := target.Model()
	if err != nil {
		return err
	}
	a, errA := target.Tokenizer()
	b, errB := d.Tokenizer()
	switch {
	case errA == nil && errB == nil:
		if d.shared, err = engine.SharedVocabulary(a, b); err != nil {
			return cli.WithHint(fmt.Errorf("draft %q: %w: %w", d.Name, err, pack.ErrUnsupported), "a draft is a smaller model of the same family")
		}
	case !errors.Is(errA, pack.ErrTruncated) && errA != nil:
		return errA
	case !errors.Is(errB, pack.ErrTruncated) && errB != nil:
		return errB
	case errA == nil || errB == nil || m.Vocab != d.model.Vocab:
		return cli.WithHint(fmt.Errorf("draft %q: nothing says that its %d tokens are those of the model, which has %d: %w", d.Name, d.model.Vocab, m.Vocab, pack.ErrUnsupported),
			"put the tokenizer.json of each beside it")
	default:
		d.shared = m.Vocab
	}
	return nil
}

func (d *drafting) close() error {
	if d == nil || d.packOf == nil {
		return nil
	}
	return d.Close()
}

// plan is the memory that the draft takes beside its target m, in bytes, when it
// drafts for so many sessions of room tokens.
func (d *drafting) plan(b backend.Backend, o backend.Options, m *ternary.Model, room, sessions int) int64 {
	if d == nil {
		return 0
	}
	bytes := int64(sessions) * (engine.MaxDraft + 1) * 4 * int64(m.Vocab) // a row of logits for each token of a pass
	if d.packOf != nil {
		plan := engine.NewPlan(b, d.model, o, min(room, engine.ModelContext(&d.model.Config)))
		bytes += plan.Total() + int64(sessions-1)*plan.Cache
	}
	return bytes
}

// attach lets the draft, whose loaded model is inst, nil for lookup, guess for
// s, a session of room tokens. The caller closes what it returns, which may be
// nil.
func (d *drafting) attach(s *engine.Session, inst backend.Instance, room, length int) (*engine.DraftModel, error) {
	if inst == nil {
		return nil, s.Draft(engine.Lookup{}, length)
	}
	m, err := engine.NewDraftModel(inst, room, d.shared)
	if err == nil {
		err = s.Draft(m, length)
	}
	return m, err
}

// answerPrompt lets s, which begins anew, answer a prompt greedily.
func answerPrompt(ctx context.Context, s *engine.Session, prompt []int32, tokens int) (*engine.Result, race.Work, error) {
	if err := s.Reset(); err != nil { // nothing is read from the cache
		return nil, race.Work{}, err
	}
	res, err := s.Generate(ctx, engine.Request{Prompt: prompt, MaxTokens: tokens})
	if err == nil && res.Finish == engine.FinishCancelled {
		err = context.Canceled
	}
	if err == nil && res.Draft != nil && res.Draft.Err != nil {
		err = fmt.Errorf("draft: %w", res.Draft.Err)
	}
	if err != nil {
		return nil, race.Work{}, err
	}
	w := race.Work{Prompts: 1, PromptTokens: res.Prompt, PrefillSeconds: res.Prefill.Seconds(), Tokens: res.Steps, DecodeSeconds: res.Decode.Seconds()}
	if d := res.Draft; d != nil {
		w.Passes, w.Drafted, w.Kept, w.DraftSeconds = res.Passes, d.Drafted, d.Accepted, d.Time.Seconds()
	}
	return &res, w, nil
}
