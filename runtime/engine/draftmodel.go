package engine

import (
	"context"
	"fmt"
	"slices"

	"npack/runtime/backend"
)

// DraftModel drafts with a second, smaller model of the same vocabulary. It
// draws with the model's own sampler settings and random numbers: where the two
// distributions are alike, so are the choices, at any temperature.
type DraftModel struct {
	inst    backend.Instance
	seq     backend.Sequence
	shared  int32 // ids below are of both vocabularies
	sampler Sampler

	start int     // where in the text the sequence begins
	ids   []int32 // the tokens in seq
	text  []int32 // history for the sampler
	rows  rows    // one
	want  [1]int
}

// A draft that was not asked for a while has to read what came up since. Of
// more than draftLag tokens it reads the last draftTail only: enough to see
// whether it guesses right again.
const (
	draftLag  = 64
	draftTail = 32
)

// NewDraftModel returns a drafter for one session with a context of window
// tokens. shared is what [SharedVocabulary] returned. If the draft was made for
// a shorter context, it sees the end of the text. The caller closes it, and inst
// after it.
func NewDraftModel(inst backend.Instance, window, shared int) (*DraftModel, error) {
	c := inst.Config()
	context := min(window, ModelContext(c))
	seq, err := inst.NewSequence(context)
	if err != nil {
		return nil, fmt.Errorf("draft: %w", err)
	}
	return &DraftModel{
		inst: inst, seq: seq, shared: int32(min(shared, c.Vocab)),
		ids:  make([]int32, 0, context),
		text: make([]int32, 0, window+MaxDraft+1),
		rows: newRows(inst, 1),
	}, nil
}

// Close frees the cache.
func (d *DraftModel) Close() error { return d.seq.Close() }

// Propose implements [Drafter].
func (d *DraftModel) Propose(ctx context.Context, dst, text []int32, n int, s *Sampler) ([]int32, error) {
	known := len(text) // from here on, the draft has all tokens
	for known > 0 && text[known-1] < d.shared {
		known--
	}
	if known == len(text) {
		return dst, nil
	}
	n = min(n, d.seq.Cap()/2)
	rest, err := d.align(text, known, n)
	if err != nil {
		return dst, err
	}
	if d.rows.ranks = 0; int(d.shared) == d.inst.Config().Vocab { // ranks are of all tokens
		d.rows.suit(&s.p)
	}
	for len(rest) > 0 {
		part := rest[:min(len(rest), DefaultChunk)]
		rest = rest[len(part):]
		if err := d.forward(ctx, part, len(rest) == 0 && n > 0); err != nil {
			return dst, err
		}
	}
	if n == 0 {
		return dst, nil
	}
	d.sampler.follow(s)
	d.text = append(d.text[:0], text[known:]...)
	for i := 0; ; i++ {
		id := d.sampler.choose(d.row(), d.text)
		dst, d.text = append(dst, id), append(d.text, id)
		if i == n-1 {
			return dst, nil
		}
		if err := d.forward(ctx, d.text[len(d.text)-1:], true); err != nil {
			return dst, err
		}
	}
}

// align cuts the sequence back to a part of text[known:] and returns what is to
// be read after it, so that n tokens can be drafted.
func (d *DraftModel) align(text []int32, known, n int) ([]int32, error) {
	same := 0
	if known <= d.start {
		// The last token is always computed, for its logits.
		for same < len(d.ids) && d.start+same < len(text)-1 && d.ids[same] == text[d.start+same] {
			same++
		}
	}
	if same == 0 {
		d.start = known
	}
	size := len(text) - d.start + max(0, n-1)
	if size > d.seq.Cap() || n > 0 && len(text)-d.start-same > draftLag {
		d.start, same = max(known, len(text)-min(draftTail, (d.seq.Cap()+1)/2)), 0
	}
	if err := d.seq.Truncate(same); err != nil {
		return nil, fmt.Errorf("cutting the draft's cache back: %w", err)
	}
	d.ids = d.ids[:same]
	return text[d.start+same:], nil
}

// forward appends tokens and, if asked to, computes what the next is chosen from.
func (d *DraftModel) forward(ctx context.Context, tokens []int32, logits bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var want []int
	if logits {
		d.want[0] = len(tokens) - 1
		want = d.want[:]
	}
	if err := d.rows.forward(ctx, d.seq, tokens, want); err != nil {
		return err
	}
	d.ids = append(d.ids, tokens...)
	return nil
}

// row is what the next token is chosen from: those that the model has too.
func (d *DraftModel) row() row {
	r := d.rows.at(0)
	if r.best == nil {
		r.logits = r.logits[:d.shared]
	}
	return r
}

// follow makes s choose as o will next, from other logits.
func (s *Sampler) follow(o *Sampler) {
	if !slices.Equal(s.p.DRY.Breakers, o.p.DRY.Breakers) {
		s.dry.breakers = s.dry.breakers[:0]
	}
	s.p, s.rng = o.p, o.rng
}

// Vocabulary is what tokens stand for; a tokenizer is one.
type Vocabulary interface {
	Len() int // one more than the largest id
	// Token returns the bytes of a token and whether it is a control token.
	Token(id int32) (bytes string, control bool)
}

// SharedVocabulary compares the vocabularies of a model and its draft, token by
// token, and returns below which id both have the same. What one has more is no
// mistake: models pad their vocabularies to sizes that suit them.
func SharedVocabulary(model, draft Vocabulary) (int, error) {
	n := min(model.Len(), draft.Len())
	for id := range int32(n) {
		a, ac := model.Token(id)
		b, bc := draft.Token(id)
		if a != b || ac != bc {
			return 0, &VocabularyError{ID: id, Model: a, Draft: b}
		}
	}
	if n == 0 {
		return 0, &VocabularyError{ID: -1}
	}
	return n, nil
}

// VocabularyError says which token means something else to a draft.
type VocabularyError struct {
	ID           int32 // -1: there are no tokens to compare
	Model, Draft string
}

func (e *VocabularyError) Error() string {
	switch {
	case e.ID < 0:
		return "the draft's vocabulary has nothing in common with the model's"
	case e.Model == e.Draft:
		return fmt.Sprintf("token %d, %q, is a control token in one of model and draft, text in the other", e.ID, e.Model)
	}
	return fmt.Sprintf("token %d is %q in the model, %q in the draft", e.ID, e.Model, e.Draft)
}
