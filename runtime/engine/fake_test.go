package engine

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"npack/runtime/backend"
	"npack/ternary"
)

// fake is a backend of a few lines. Its logits depend on all tokens of the
// sequence, so that a wrong history shows, and next, if set, decides which
// token they favour. It allocates nothing in Forward.
type fake struct {
	cfg   ternary.Config
	next  func(ids []int32) int32
	err   error  // returned by Forward, if not nil
	calls int    // of Forward
	sizes []int  // tokens of each call, if log is set
	log   bool   //
	hook  func() // called at the start of Forward
}

func newFake(vocab int, next func([]int32) int32) *fake {
	return &fake{cfg: ternary.Config{Vocab: vocab, MaxPosition: 1 << 20, Layers: 1, KVHeads: 1, HeadDim: 2}, next: next}
}

type fakeSeq struct{ ids []int32 }

func (s *fakeSeq) Len() int { return len(s.ids) }
func (s *fakeSeq) Cap() int { return cap(s.ids) }
func (s *fakeSeq) Truncate(n int) error {
	if n > len(s.ids) {
		return fmt.Errorf("truncate to %d of %d", n, len(s.ids))
	}
	s.ids = s.ids[:n]
	return nil
}
func (s *fakeSeq) Fork() (backend.Sequence, error) {
	f := &fakeSeq{make([]int32, len(s.ids), cap(s.ids))}
	copy(f.ids, s.ids)
	return f, nil
}
func (s *fakeSeq) Close() error { return nil }

func (f *fake) Config() *ternary.Config  { return &f.cfg }
func (f *fake) Options() backend.Options { return backend.Options{Activations: backend.Exact} }
func (f *fake) Close() error             { return nil }
func (f *fake) NewSequence(n int) (backend.Sequence, error) {
	if n < 1 {
		return nil, errors.New("no context")
	}
	return &fakeSeq{make([]int32, 0, n)}, nil
}

func (f *fake) Forward(ctx context.Context, runs []backend.Run) error {
	if f.hook != nil {
		f.hook()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.err != nil {
		return f.err
	}
	f.calls++
	for _, r := range runs {
		s := r.Seq.(*fakeSeq)
		if len(s.ids)+len(r.Tokens) > cap(s.ids) {
			return &backend.ContextError{Need: len(s.ids) + len(r.Tokens), Have: cap(s.ids)}
		}
		if f.log {
			f.sizes = append(f.sizes, len(r.Tokens))
		}
		at := len(s.ids)
		s.ids = append(s.ids, r.Tokens...)
		for i, w := range r.Want {
			f.logits(r.Logits[i*f.cfg.Vocab:(i+1)*f.cfg.Vocab], s.ids[:at+w+1])
		}
	}
	return nil
}

// logits are a hash of the text, within -8..8.
func (f *fake) logits(dst []float32, ids []int32) {
	h := uint32(2166136261)
	for _, id := range ids {
		h = (h ^ uint32(id)) * 16777619
	}
	for i := range dst {
		x := (h ^ uint32(i)) * 2654435761
		x ^= x >> 15
		x *= 2246822519
		x ^= x >> 13
		dst[i] = float32(int32(x>>16)-1<<15) / (1 << 12)
	}
	if f.next != nil {
		dst[f.next(ids)] = 100
	}
}

// letters is a detokenizer for ids that are bytes of UTF-8 text.
type letters struct{ held []byte }

func (l *letters) Append(dst []byte, id int32) []byte {
	l.held = append(l.held, byte(id))
	if !utf8.Valid(l.held) {
		return dst
	}
	dst = append(dst, l.held...)
	l.held = l.held[:0]
	return dst
}

func (l *letters) Flush(dst []byte) []byte {
	if len(l.held) > 0 {
		l.held = l.held[:0]
		dst = append(dst, "\uFFFD"...)
	}
	return dst
}

// script makes a fake say text, byte by byte, after a prompt of n tokens.
func script(n int, text string) func([]int32) int32 {
	return func(ids []int32) int32 {
		if i := len(ids) - n; i >= 0 && i < len(text) {
			return int32(text[i])
		}
		return 0
	}
}

func bytesAsIDs(s string) []int32 {
	ids := make([]int32, len(s))
	for i := range s {
		ids[i] = int32(s[i])
	}
	return ids
}
