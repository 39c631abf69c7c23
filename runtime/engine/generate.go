package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Request is what [Session.Generate] is asked for.
type Request struct {
	Prompt    []int32
	MaxTokens int // 0: until a stop or the end of the context
	Sampling  Sampling

	StopIDs []int32  // end the answer and are no part of it
	Stop    []string // likewise, found in the text across tokens

	// Text turns tokens into text; without it there is none, and no stop
	// strings can be found.
	Text Detokenizer
	// Emit, if not nil, is called with every token of the answer, and once
	// more with ID -1 if text was held back at the end. An error from it ends
	// the answer and is returned.
	Emit func(Chunk) error
	// Progress, if not nil, is told how much of the prompt is done.
	Progress func(done, total int)
}

// Detokenizer turns a stream of tokens into text.
type Detokenizer interface {
	// Append appends to dst the text that is complete once id has come, in
	// whole characters: valid UTF-8.
	Append(dst []byte, id int32) []byte
	// Flush appends what is left of a character that never was completed,
	// as valid UTF-8.
	Flush(dst []byte) []byte
}

// Chunk is a token of the answer with the text that can be shown now. Text may
// be empty while characters, or what could be a stop string, are held back; it
// is valid UTF-8, and only during the call.
type Chunk struct {
	ID   int32
	Text []byte
}

// Finish is why an answer ended.
type Finish string

const (
	FinishStop      Finish = "stop"      // a stop id or stop string
	FinishLength    Finish = "length"    // MaxTokens reached
	FinishContext   Finish = "context"   // no room for another token
	FinishCancelled Finish = "cancelled" // the context.Context ended
)

// Result is an answer.
type Result struct {
	IDs      []int32 // without the stop id; with all tokens of a stop string
	Finish   Finish
	StopID   int32  // the stop id that ended the answer, or -1
	StopText string // the stop string that ended it, or ""
	Timings
	Draft *DraftStats // nil without a drafter
}

// Timings says what an answer cost.
type Timings struct {
	Prompt  int           // tokens of the prompt
	Cached  int           // those of them that were in the cache already
	Prefill time.Duration // for the others, until the first logits were there
	Steps   int           // decoding steps: tokens of the answer that went through the model
	Passes  int           // calls of Forward for them: as many, or with a drafter fewer
	Decode  time.Duration // for the steps, with choosing and showing tokens
}

// PrefillRate is in tokens a second, 0 if nothing was measured.
func (t *Timings) PrefillRate() float64 { return rate(t.Prompt-t.Cached, t.Prefill) }

// DecodeRate is in tokens a second, 0 if nothing was measured.
func (t *Timings) DecodeRate() float64 { return rate(t.Steps, t.Decode) }

func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Generate prefills the prompt and adds tokens until one of the ends in
// [Finish]. If ctx ends, the result is what there is by then, with
// FinishCancelled and no error, also where not all of the prompt was read. In
// any case the session stays usable.
//
// A step allocates nothing but what Emit does.
func (s *Session) Generate(ctx context.Context, r Request) (Result, error) {
	res := Result{StopID: -1, Timings: Timings{Prompt: len(r.Prompt)}}
	if err := s.sampler.Reset(r.Sampling); err != nil {
		return res, err
	}
	s.rows.suit(&r.Sampling)
	start := time.Now()
	cached, err := s.Prefill(ctx, r.Prompt, r.Progress)
	if d := s.draft; d != nil && err == nil {
		d.begin(ctx, s, r.Prompt)
	}
	res.Cached, res.Prefill = cached, time.Since(start)
	if err == nil {
		room := s.Window() - len(r.Prompt) + 1 // the last token need not be stored
		if r.MaxTokens > 0 {
			room = min(room, r.MaxTokens)
		}
		res.IDs = make([]int32, 0, room)
		start = time.Now()
		err = s.decode(ctx, &r, &res)
		if d := s.draft; d != nil {
			err = errors.Join(err, d.settle(s))
			stats := d.stats
			res.Draft = &stats
		}
		res.Decode = time.Since(start)
	}
	if err != nil && ctx.Err() != nil {
		res.Finish, err = FinishCancelled, nil
	}
	return res, err
}

// decode chooses tokens, beginning with the logits of the prompt.
func (s *Session) decode(ctx context.Context, r *Request, res *Result) error {
	out := output{text: r.Text, stops: newStopper(r.Stop), emit: r.Emit, buf: s.piece}
	defer func() { s.piece = out.buf }()
	for {
		id := s.sampler.choose(s.next, s.ids)
		if slices.Contains(r.StopIDs, id) {
			res.Finish, res.StopID = FinishStop, id
			return out.flush()
		}
		res.IDs = append(res.IDs, id)
		found, err := out.token(id)
		switch {
		case err != nil:
			return err
		case found >= 0:
			res.Finish, res.StopText = FinishStop, r.Stop[found]
			return nil
		case len(res.IDs) == r.MaxTokens:
			res.Finish = FinishLength
			return out.flush()
		case len(s.ids) == s.seq.Cap():
			res.Finish = FinishContext
			return out.flush()
		}
		if err := s.step(ctx, r, res); err != nil {
			if ctx.Err() != nil {
				if flushErr := out.flush(); flushErr != nil {
					return flushErr
				}
			}
			return err
		}
	}
}

// step makes s.next the row after the last token of the answer.
func (s *Session) step(ctx context.Context, r *Request, res *Result) error {
	ran, err := true, error(nil)
	if n := len(res.IDs); s.draft != nil {
		left := math.MaxInt
		if r.MaxTokens > 0 {
			left = r.MaxTokens - n
		}
		ran, err = s.draft.step(ctx, s, res.IDs[n-1], left)
	} else {
		err = s.forward(ctx, res.IDs[n-1:], true)
	}
	if err != nil {
		return err
	}
	res.Steps++
	if ran {
		res.Passes++
	}
	return nil
}

// output is the way of tokens to the caller: detokenizer, stop strings, Emit.
type output struct {
	text  Detokenizer
	stops *stopper
	emit  func(Chunk) error
	buf   []byte
}

// token lets a token's text out and returns the index of the stop string that
// it completed, or -1.
func (o *output) token(id int32) (found int, err error) {
	o.buf = o.buf[:0]
	if o.text != nil {
		o.buf = o.text.Append(o.buf, id)
	}
	text, found := o.stops.next(o.buf)
	if o.emit != nil {
		err = o.emit(Chunk{id, text})
	}
	return found, err
}

// flush lets out what was held back. What the detokenizer still has may
// complete a stop string too.
func (o *output) flush() error {
	o.buf = o.buf[:0]
	if o.text != nil {
		o.buf = o.text.Flush(o.buf)
	}
	text, found := o.stops.next(o.buf)
	o.buf = append(o.buf[:0], text...)
	if found < 0 {
		o.buf = append(o.buf, o.stops.flush()...)
	}
	if len(o.buf) > 0 && o.emit != nil {
		return o.emit(Chunk{-1, o.buf})
	}
	return nil
}
