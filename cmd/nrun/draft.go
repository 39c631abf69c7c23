package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
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
	length, err := parseDraftLength(c.String("draft-length"))
	if err != nil {
		return nil, fmt.Errorf("--draft-length %w", err)
	}
	d, err := openDraft(c.Context, c.String("draft"), length, p)
	if err != nil {
		return nil, fmt.Errorf("--draft: %w", err)
	}
	return d, nil
}

// autoLength stands for as many tokens as pay.
const autoLength = "auto"

// parseDraftLength returns 0 for auto, which is also what "" stands for.
func parseDraftLength(s string) (int, error) {
	if s == "" || s == autoLength {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > engine.MaxDraft {
		return 0, cli.Usagef("", "%q: auto or 1 to %d", s, engine.MaxDraft)
	}
	return n, nil
}

// openDraft opens what name stands for and compares its vocabulary with p's.
func openDraft(ctx context.Context, name string, length int, p *packOf) (*draft, error) {
	d := &draft{name: name, length: length}
	if name == lookupDraft {
		return d, nil
	}
	var err error
	if d.pack, err = packAt(ctx, name); err != nil {
		return nil, cli.WithHint(err, "a draft is a model's file or pack directory, or \"lookup\"")
	}
	if err := d.compare(p); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// compare checks that the draft can run and means the same by the same tokens.
func (d *draft) compare(p *packOf) error {
	if err := d.pack.runnable(); err != nil {
		return err
	}
	theirs, err := p.Tokenizer()
	ours, errOurs := d.pack.Tokenizer()
	if errors.Is(err, pack.ErrTruncated) && errors.Is(errOurs, pack.ErrTruncated) {
		return d.compareSizes(p)
	}
	if err = errors.Join(err, errOurs); err != nil {
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

// compareSizes is for models of ids alone, without a tokenizer: nothing says what
// a token means, and a wrong guess costs nothing but time.
func (d *draft) compareSizes(p *packOf) error {
	m, err := p.Model()
	if err != nil {
		return err
	}
	if d.shared = d.pack.src.Model().Vocab; d.shared != m.Vocab {
		return cli.WithHint(fmt.Errorf("%q: nothing says that its %d tokens are those of the model, which has %d: %w", d.name, d.shared, m.Vocab, pack.ErrUnsupported),
			"put the tokenizer.json of each beside it")
	}
	return nil
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

func (d *draft) load(c *urfave.Context, b *chosen, o backend.Options) (err error) {
	if d == nil || d.pack == nil {
		return nil
	}
	d.inst, err = d.pack.load(c, b, o)
	return err
}

// unload frees what load took; the draft can be loaded again.
func (d *draft) unload() error {
	if d == nil || d.inst == nil {
		return nil
	}
	err := d.inst.Close()
	d.inst = nil
	return err
}

// Close unloads the draft and closes its pack.
func (d *draft) Close() error {
	if d == nil || d.pack == nil {
		return nil
	}
	return errors.Join(d.unload(), d.pack.Close())
}

// attach lets the draft guess length tokens at a time for s, a session of room
// tokens. The caller closes what it returns, which is nil for lookup, after s.
func (d *draft) attach(s *engine.Session, room, length int) (*engine.DraftModel, error) {
	if d.pack == nil {
		return nil, s.Draft(engine.Lookup{}, length)
	}
	m, err := engine.NewDraftModel(d.inst, room, d.shared)
	if err != nil {
		return nil, err
	}
	if err := s.Draft(m, length); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// session returns a new session with a context of room tokens, drafted if the
// flags say so, and what closes it.
func (r *runner) session(room int) (*engine.Session, func(), error) {
	s, err := r.Engine.NewSession(room)
	if err != nil {
		return nil, nil, err
	}
	if r.Draft == nil {
		return s, func() { s.Close() }, nil
	}
	m, err := r.Draft.attach(s, room, r.Draft.length)
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, func() {
		s.Close()
		if m != nil {
			m.Close()
		}
	}, nil
}

func (d *draft) lengthName() string {
	if d.length == 0 {
		return autoLength
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
