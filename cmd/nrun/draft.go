package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/runtime/backend"
	"npack/runtime/engine"
)

// lookupDraft is what --draft takes besides a model: guesses from the text.
const lookupDraft = "lookup"

func draftFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "draft", Usage: "let `MODEL`, a smaller one of the same vocabulary, guess tokens, or \"lookup\" take them from the text; never changes the answer"},
		&urfave.StringFlag{Name: "draft-length", Value: "auto", Usage: "guess `N` tokens at a time, 1 to 7; auto: as many as pay, none if they do not"},
	}
}

// draft is what guesses tokens for a model.
type draft struct {
	name   string
	length int              // 0: auto
	pack   *packOf          // nil for lookup
	shared int              // ids below are of both vocabularies
	inst   backend.Instance // once it is loaded
}

// readDraft reads the flags, opens the draft and compares its vocabulary with
// p's. It returns nil without --draft.
func readDraft(c *urfave.Context, p *packOf) (*draft, error) {
	if !c.IsSet("draft") {
		if c.IsSet("draft-length") {
			return nil, cli.Usagef("add --draft MODEL or --draft lookup", "--draft-length has no effect without --draft")
		}
		return nil, nil
	}
	d := &draft{name: c.String("draft")}
	if l := c.String("draft-length"); l != "auto" {
		var err error
		if d.length, err = strconv.Atoi(l); err != nil || d.length < 1 || d.length > engine.MaxDraft {
			return nil, cli.Usagef("", "--draft-length %q: auto or 1 to %d", l, engine.MaxDraft)
		}
	}
	if d.name == lookupDraft {
		return d, nil
	}
	var err error
	if d.pack, err = packAt(d.name); err != nil {
		return nil, cli.WithHint(fmt.Errorf("--draft: %w", err), "a draft is a model's file or pack directory, or \"lookup\"")
	}
	if err := d.compare(p); err != nil {
		d.Close()
		return nil, fmt.Errorf("--draft: %w", err)
	}
	return d, nil
}

// compare checks that the draft can run and means the same by the same tokens.
func (d *draft) compare(p *packOf) error {
	if err := d.pack.runnable(); err != nil {
		return err
	}
	theirs, err := p.Tokenizer()
	if err != nil {
		return err
	}
	ours, err := d.pack.Tokenizer()
	if err != nil {
		return err
	}
	d.pack.tok = nil // its memory is better used
	d.shared, err = engine.SharedVocabulary(theirs, ours)
	var v *engine.VocabularyError
	if errors.As(err, &v) {
		return cli.WithHint(fmt.Errorf("%q: %w", d.name, err), "a draft needs the model's own vocabulary; --draft lookup works with every model")
	}
	return err
}

// bytes is what drafting for a model with a vocabulary of vocab tokens takes
// beside it.
func (d *draft) bytes(b backend.Backend, o backend.Options, vocab, context int) int64 {
	if d == nil {
		return 0
	}
	n := engine.DraftBytes(vocab)
	if d.pack != nil {
		m := d.pack.src.Model()
		n += engine.NewPlan(b, m, o, min(context, engine.ModelContext(&m.Config))).Total()
	}
	return n
}

// needs begins the message for what does not fit.
func (d *draft) needs() string {
	if d == nil || d.pack == nil {
		return "the model needs"
	}
	return "the model and its draft need"
}

func (d *draft) load(c *urfave.Context, e *backendEntry, b backend.Backend, o backend.Options) (err error) {
	if d == nil || d.pack == nil {
		return nil
	}
	d.inst, err = d.pack.load(c, e, b, o)
	return err
}

// Close unloads the draft.
func (d *draft) Close() error {
	if d == nil || d.pack == nil {
		return nil
	}
	var err error
	if d.inst != nil {
		err = d.inst.Close()
	}
	return errors.Join(err, d.pack.Close())
}

// session returns a new session with a context of room tokens, drafted if the
// flags say so, and what closes it.
func (r *runner) session(room int) (*engine.Session, func(), error) {
	s, err := r.Engine.NewSession(room)
	if err != nil {
		return nil, nil, err
	}
	d := r.Draft
	switch {
	case d == nil:
		return s, func() { s.Close() }, nil
	case d.pack == nil:
		err = s.Draft(engine.Lookup{}, d.length)
	default:
		var m *engine.DraftModel
		if m, err = engine.NewDraftModel(d.inst, room, d.shared); err == nil {
			if err = s.Draft(m, d.length); err == nil {
				return s, func() { s.Close(); m.Close() }, nil
			}
			m.Close()
		}
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, func() { s.Close() }, nil
}

func (d *draft) lengthName() string {
	if d.length == 0 {
		return "auto"
	}
	return strconv.Itoa(d.length)
}

// drafted is the JSON form of what a draft did. Fields are only ever added.
type drafted struct {
	Draft        string  `json:"draft"`
	Length       string  `json:"length"`
	Passes       int     `json:"passes"`
	PassesPer512 float64 `json:"passes_per_512_tokens"`
	PlainPasses  int     `json:"plain_passes"`
	Drafted      int     `json:"drafted_tokens"`
	Accepted     int     `json:"accepted_tokens"`
	Acceptance   float64 `json:"acceptance"`
	Kept         []int   `json:"passes_by_accepted"` // drafted passes with 0, 1, … accepted tokens
	Seconds      float64 `json:"seconds"`
	Share        float64 `json:"share_of_decode"`
	ReadSeconds  float64 `json:"read_seconds"` // of the prompt, a part of prefill_seconds
	Error        string  `json:"error,omitempty"`
}

func newDrafted(d *draft, t *engine.Timings, s *engine.DraftStats) *drafted {
	if d == nil || s == nil {
		return nil
	}
	out := &drafted{
		Draft: d.name, Length: d.lengthName(), Passes: t.Passes, PassesPer512: passesPer512(t), PlainPasses: s.Plain,
		Drafted: s.Drafted, Accepted: s.Accepted, Acceptance: s.Acceptance(), Kept: s.Kept[:],
		Seconds: s.Time.Seconds(), Share: share(s.Time, t.Decode), ReadSeconds: s.Read.Seconds(),
	}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}

func passesPer512(t *engine.Timings) float64 {
	return 512 * float64(t.Passes) / float64(max(1, t.Steps))
}

func share(part, all time.Duration) float64 {
	if all <= 0 {
		return 0
	}
	return part.Seconds() / all.Seconds()
}

// print says in a line what the draft did.
func (d *draft) print(w io.Writer, lead string, t *engine.Timings, s *engine.DraftStats) {
	if d == nil || s == nil {
		return
	}
	fmt.Fprintf(w, "%sdraft %s, length %s: %.0f passes per 512 tokens; %d of %d tokens accepted (%.1f %%); %.0f %% of the time\n",
		lead, d.name, d.lengthName(), passesPer512(t), s.Accepted, s.Drafted, 100*s.Acceptance(), 100*share(s.Time, t.Decode))
	if s.Err != nil {
		fmt.Fprintf(w, "%sthe draft failed and was left out from there on: %s\n", lead, cli.OneLine(s.Err.Error()))
	}
}
