package engine

import (
	"context"
	"fmt"

	"npack/runtime/backend"
)

// Session is one text: its key/value cache and the tokens that are in it.
// A prompt that begins like the text so far only pays for the rest, which
// makes each turn of a chat cost what is new in it.
type Session struct {
	e       *Engine
	seq     backend.Sequence
	ids     []int32 // the tokens in seq, with room for one more than it holds
	next    row     // of the token after ids
	rows    rows    // one
	sampler Sampler
	draft   *drafting // nil: every pass is one token

	want  [1]int // kept here so that a step allocates nothing
	piece []byte
}

// NewSession returns an empty session with a context of window tokens, prompt
// and answer together.
func (e *Engine) NewSession(window int) (*Session, error) {
	seq, err := e.inst.NewSequence(window)
	if err != nil {
		return nil, err
	}
	return &Session{
		e: e, seq: seq,
		ids:  make([]int32, 0, window+1),
		rows: newRows(e.inst, 1),
	}, nil
}

// Close frees the cache.
func (s *Session) Close() error { return s.seq.Close() }

// Window is the number of tokens that the session has room for.
func (s *Session) Window() int { return s.seq.Cap() }

// Tokens returns the text so far. It is valid until the next call and must not
// be changed.
func (s *Session) Tokens() []int32 { return s.ids }

// Reset forgets the text.
func (s *Session) Reset() error { return s.truncate(0) }

// Prefill makes the session's text equal prompt and computes the logits of the
// token after it. It returns how many tokens were in the cache already. progress,
// which may be nil, is told after every chunk how many of the prompt's tokens
// are done.
//
// If it returns an error, the session holds a part of prompt from its start,
// and the call can be repeated to go on from there.
func (s *Session) Prefill(ctx context.Context, prompt []int32, progress func(done, total int)) (cached int, err error) {
	if len(prompt) == 0 {
		return 0, ErrNoPrompt
	}
	if len(prompt) > s.seq.Cap() {
		return 0, &ContextError{Prompt: len(prompt), Window: s.seq.Cap()}
	}
	// The last token is always computed, for its logits.
	for cached < min(len(s.ids), len(prompt)-1) && s.ids[cached] == prompt[cached] {
		cached++
	}
	if err := s.truncate(cached); err != nil {
		return 0, err
	}
	for at := cached; at < len(prompt); {
		n := min(s.e.chunk, len(prompt)-at)
		if err := s.forward(ctx, prompt[at:at+n], at+n == len(prompt)); err != nil {
			return cached, err
		}
		if at += n; progress != nil {
			progress(at, len(prompt))
		}
	}
	return cached, nil
}

// forward appends tokens, and computes what the next is chosen from if asked to.
func (s *Session) forward(ctx context.Context, tokens []int32, logits bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var want []int
	if logits {
		s.want[0] = len(tokens) - 1
		want = s.want[:]
	}
	if err := s.rows.forward(ctx, s.seq, tokens, want); err != nil {
		return err
	}
	if logits {
		s.next = s.rows.at(0)
	}
	s.ids = append(s.ids, tokens...)
	return nil
}

func (s *Session) truncate(n int) error {
	if err := s.seq.Truncate(n); err != nil {
		return fmt.Errorf("cutting the cache back: %w", err)
	}
	s.ids = s.ids[:n]
	return nil
}
