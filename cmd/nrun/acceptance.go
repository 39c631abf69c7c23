package main

import (
	"fmt"
	"slices"
	"strconv"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
	"npack/runtime/engine"
)

func acceptanceCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "acceptance",
		Usage:     "show how much of what a draft guesses is kept, by class of prompt",
		UsageText: "nrun acceptance [flags] [MODEL] --draft DRAFT",
		Description: "Every prompt is answered greedily, plain and then with the draft, and each token of the two\n" +
			"compared: drafting never changes a text (exit status 3 if it does). Of each class come the\n" +
			"tokens kept a pass, passes for 512 tokens, and the draft's share of the time. The times\n" +
			"are of one go; nrun race measures in rounds.\n\n" + cli.Examples(
			"nrun acceptance --draft lookup",
			"nrun acceptance ~/models/pack --draft ~/models/small --plot kept.png",
			"nrun acceptance ~/models/pack --draft ~/models/small --lengths 2,4,7,auto --class code,chat"),
		Flags: slices.Concat([]urfave.Flag{
			&urfave.StringFlag{Name: "draft", Usage: "`MODEL` that drafts, or lookup: what followed like words before"},
			&urfave.StringFlag{Name: "lengths", Value: autoLength, Usage: "draft `N,…` tokens at a time, 1 to 7, or auto: as many as pay"},
		}, promptFlags(), []urfave.Flag{
			&urfave.StringFlag{Name: "plot", Usage: "draw kept tokens and passes into `FILE`, .png or .svg"},
		}, runFlags(), []urfave.Flag{quietFlag("no progress"), jsonFlag()}),
		Action: acceptance,
	}
}

// acceptanceReport is the JSON form. Fields are only ever added.
type acceptanceReport struct {
	Version     string             `json:"version"`
	Model       string             `json:"model"`
	Draft       string             `json:"draft"`
	Backend     string             `json:"backend"`
	Kernels     string             `json:"kernels,omitempty"`
	Activations string             `json:"activations"`
	KV          string             `json:"kv"`
	Threads     int                `json:"threads"`
	Battery     string             `json:"battery"`
	Tokens      int                `json:"tokens"` // of an answer
	Lengths     []acceptanceLength `json:"lengths"`
}

// acceptanceLength is what came of drafts of one length.
type acceptanceLength struct {
	Length  string            `json:"draft_length"` // 1 to 7, or auto
	Total   acceptanceClass   `json:"total"`
	Classes []acceptanceClass `json:"classes"`
}

// acceptanceClass is the part of the prompts of a class.
type acceptanceClass struct {
	Class        string                   `json:"class"`
	Prompts      int                      `json:"prompts"`
	Tokens       int                      `json:"tokens"`       // behind the first of each answer
	Passes       int                      `json:"passes"`       // of the model, for these
	Plain        int                      `json:"passes_plain"` // of these, those without a drafted token
	Kept         [engine.MaxDraft + 1]int `json:"passes_kept"`  // the others, by how many drafted tokens were kept
	Drafted      int                      `json:"drafted"`      // tokens
	Accepted     int                      `json:"accepted"`     // of these
	DraftSeconds float64                  `json:"draft_seconds"`
	Seconds      float64                  `json:"decode_seconds"`       // drafted, with draft_seconds
	PlainSeconds float64                  `json:"plain_decode_seconds"` // for the same tokens without a draft

	// What follows from these:
	Acceptance     float64 `json:"acceptance"`      // accepted / drafted
	TokensPerPass  float64 `json:"tokens_per_pass"` // the model's own among them
	PassesPer512   float64 `json:"passes_per_512_tokens"`
	DraftShare     float64 `json:"draft_share"`      // of decode_seconds
	TimesPlain     float64 `json:"times_plain"`      // how many times as fast as without a draft
	AcceptedLength float64 `json:"accepted_a_draft"` // tokens kept of a draft, on average
}

func (a *acceptanceClass) add(plain, drafted *engine.Result) {
	d := drafted.Draft
	a.Prompts++
	a.Tokens += drafted.Steps
	a.Passes += drafted.Passes
	a.Plain += d.Plain
	for i, n := range d.Kept {
		a.Kept[i] += n
	}
	a.Drafted += d.Drafted
	a.Accepted += d.Accepted
	a.DraftSeconds += d.Time.Seconds()
	a.Seconds += drafted.Decode.Seconds()
	a.PlainSeconds += plain.Decode.Seconds()
}

func (a *acceptanceClass) finish() {
	ratio := func(x, y float64) float64 {
		if y == 0 {
			return 0
		}
		return x / y
	}
	drafts := 0
	for _, n := range a.Kept {
		drafts += n
	}
	a.Acceptance = ratio(float64(a.Accepted), float64(a.Drafted))
	a.AcceptedLength = ratio(float64(a.Accepted), float64(drafts))
	a.TokensPerPass = ratio(float64(a.Tokens), float64(a.Passes))
	a.PassesPer512 = ratio(512*float64(a.Passes), float64(a.Tokens))
	a.DraftShare = ratio(a.DraftSeconds, a.Seconds)
	a.TimesPlain = ratio(a.PlainSeconds, a.Seconds)
}

func acceptance(c *urfave.Context) error {
	if err := plotName(c); err != nil {
		return err
	}
	if c.String("draft") == "" {
		return cli.Usagef("--draft MODEL, or --draft lookup, which needs none", "no draft")
	}
	var lengths []int
	for _, s := range list(c, "lengths") {
		n, err := parseDraftLength(s)
		if err != nil {
			return fmt.Errorf("--lengths %w", err)
		}
		lengths = append(lengths, n)
	}
	p, err := openPack(c)
	if err != nil {
		return err
	}
	defer p.Close()
	q, err := p.questions(c)
	if err != nil {
		return err
	}
	if q.tokens < 2 {
		return cli.Usagef("", "-n %d: the first token comes with the prompt; a draft takes 2 or more", q.tokens)
	}
	x, err := newAcceptanceRun(c, p, q, lengths)
	if err != nil {
		return err
	}
	defer x.close()
	r, err := x.run(c, q, lengths)
	if err != nil {
		return err
	}
	if plot := c.String("plot"); plot != "" {
		if err := writeAcceptancePlot(plot, r); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, r)
	}
	return printAcceptance(c.App.Writer, r)
}

// acceptanceRun is a model with its draft, and a session for each way to run: a
// session remembers which lengths paid.
type acceptanceRun struct {
	*runner
	plain   *engine.Session
	drafted []*engine.Session    // by length
	models  []*engine.DraftModel // of them
}

func newAcceptanceRun(c *urfave.Context, p *packOf, q *questions, lengths []int) (_ *acceptanceRun, err error) {
	x := &acceptanceRun{}
	b, err := chooseBackend(c)
	if err != nil {
		return nil, err
	}
	need, err := readNeed(c, b.backend) // before there is a model in memory
	if err != nil {
		return nil, err
	}
	if x.runner, err = p.open(c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	room := q.longest() + q.tokens - 1
	if err = x.holds(room, "choose others with --class, or a smaller -n"); err != nil {
		return nil, err
	}
	plan := engine.NewPlan(b.backend, p.src.Model(), x.Options(), room)
	bytes := plan.Total() + int64(len(lengths))*plan.Cache + x.Draft.bytes(b.backend, x.Options(), x.Config().Vocab, room)
	if need.most >= 0 && bytes > need.most {
		return nil, cli.WithHint(fmt.Errorf("the model, its draft and %d caches need %s of memory; %s: %w", 1+len(lengths), cli.Size(bytes), need.room, pack.ErrNoSpace),
			"fewer --lengths at a time take less")
	}
	if x.plain, err = x.Engine.NewSession(room); err != nil {
		return nil, err
	}
	for _, n := range lengths {
		s, err := x.Engine.NewSession(room)
		if err != nil {
			return nil, err
		}
		x.drafted = append(x.drafted, s)
		m, err := x.Draft.attach(s, room, n)
		if err != nil {
			return nil, err
		}
		if m != nil {
			x.models = append(x.models, m)
		}
	}
	return x, nil
}

func (x *acceptanceRun) close() {
	for _, m := range x.models {
		_ = m.Close()
	}
	for _, s := range append(x.drafted, x.plain) {
		if s != nil {
			_ = s.Close()
		}
	}
	_ = x.runner.Close()
}

// run answers every prompt plain and with each length in turn. A first go, of
// the first prompt, is not counted.
func (x *acceptanceRun) run(c *urfave.Context, q *questions, lengths []int) (*acceptanceReport, error) {
	o := x.Options()
	r := &acceptanceReport{Version: cli.Build(), Model: x.Name, Draft: c.String("draft"), Backend: x.Backend, Kernels: x.Kernels,
		Activations: o.Activations.String(), KV: o.KV.String(), Threads: o.Threads, Battery: q.name, Tokens: q.tokens}
	for _, n := range lengths {
		name := autoLength
		if n > 0 {
			name = strconv.Itoa(n)
		}
		r.Lengths = append(r.Lengths, acceptanceLength{Length: name, Total: acceptanceClass{Class: "all"}, Classes: []acceptanceClass{}})
	}
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet")).Count("answers")
	defer bar.Done()
	for i, done := -1, 0; i < len(q.list); i++ {
		prompt := &q.list[max(0, i)]
		plain, _, err := answerPrompt(c.Context, x.plain, prompt.IDs, q.tokens)
		if err != nil {
			return nil, err
		}
		for k := range lengths {
			drafted, _, err := answerPrompt(c.Context, x.drafted[k], prompt.IDs, q.tokens)
			if err != nil {
				return nil, err
			}
			if !slices.Equal(plain.IDs, drafted.IDs) {
				return nil, cli.WithHint(fmt.Errorf("prompt %d: drafting %s tokens changes the answer: %w", max(0, i), r.Lengths[k].Length, pack.ErrNotEqual),
					"that must never be: please report it")
			}
			if i >= 0 {
				l := &r.Lengths[k]
				l.Total.add(plain, drafted)
				l.class(prompt.Class).add(plain, drafted)
			}
			done++
			bar.Show("answering", int64(done), int64((len(q.list)+1)*len(lengths)))
		}
	}
	for i := range r.Lengths {
		r.Lengths[i].Total.finish()
		for k := range r.Lengths[i].Classes {
			r.Lengths[i].Classes[k].finish()
		}
	}
	return r, nil
}

func (l *acceptanceLength) class(name string) *acceptanceClass {
	for i := range l.Classes {
		if l.Classes[i].Class == name {
			return &l.Classes[i]
		}
	}
	l.Classes = append(l.Classes, acceptanceClass{Class: name})
	return &l.Classes[len(l.Classes)-1]
}

// longest is the number of tokens of the longest prompt.
func (q *questions) longest() int {
	most := 0
	for _, p := range q.list {
		most = max(most, len(p.IDs))
	}
	return most
}
