package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
	"npack/runtime/backend"
	"npack/runtime/identity"
)

// verifier compares models one after the other with the same trajectories.
type verifier struct {
	*urfave.Context
	sets    []set
	bits    bool
	several bool
	sums    [][]identity.Sum // of the first model, which the others are compared with
	done    []*verification
}

// one runs a model on a backend.
func (v *verifier) one(p *packOf, s choice) error {
	r, err := p.openOn(v.Context, s)
	if err != nil {
		return err
	}
	defer r.Close()
	list, from := v.list(r.Options())
	if v.bits && !v.several && from == "" {
		return cli.Usagef("record them with nrun trajectory, or name a second model or backend", "--bits: no sums of this arithmetic are stored in %q", v.sets[0].name)
	}
	total, longest := 0, 0
	for _, t := range list {
		total += len(t.IDs)
		longest = max(longest, len(t.Prompt)+len(t.IDs)-1)
	}
	if err := r.holds(longest, hintRoom); err != nil {
		return err
	}
	bar := cli.NewProgress(v.App.ErrWriter, v.Bool("quiet")).Count("tokens")
	report, err := identity.Compare(v.Context.Context, r.Instance, list, v.bits, func(done int) { bar.Show("verifying", int64(done), int64(total)) })
	bar.Done()
	if err != nil {
		return err
	}
	if v.bits && v.sums == nil {
		for _, q := range report.Prompts {
			v.sums = append(v.sums, q.Sums)
		}
	}
	v.done = append(v.done, v.newVerification(r, report))
	if !v.Bool("json") {
		v.print(p, r, list, report)
	}
	return nil
}

// list is all trajectories. Their sums are the stored ones where these are of
// the same arithmetic, else those of the first model, and from says whose.
func (v *verifier) list(o backend.Options) (list []identity.Trajectory, from string) {
	for i := range v.sets {
		s := &v.sets[i]
		for _, t := range s.Trajectories {
			if t.Bits != nil && s.Same(o) {
				from = s.name
			} else {
				t.Bits = nil
			}
			if t.Bits == nil && v.sums != nil {
				t.Bits, from = v.sums[len(list)], v.done[0].Model
			}
			list = append(list, t)
		}
	}
	return list, from
}

// finish prints the sum of all and returns what they are worth.
func (v *verifier) finish() error {
	tokens, differ, bits, bitsDiffer := 0, 0, 0, 0
	for _, d := range v.done {
		tokens, differ, bits, bitsDiffer = tokens+d.Tokens, differ+d.Differ, bits+d.Bits, bitsDiffer+d.BitsDiffer
	}
	var err error
	switch {
	case v.Bool("json") && v.several:
		err = cli.JSON(v.App.Writer, &verifications{v.done, tokens, differ, bits, bitsDiffer})
	case v.Bool("json"):
		err = cli.JSON(v.App.Writer, v.done[0])
	case v.bits:
		fmt.Fprintf(v.App.Writer, "verify: %d tokens, %d differ; logits of %d steps, %d differ\n", tokens, differ, bits, bitsDiffer)
	default:
		fmt.Fprintf(v.App.Writer, "verify: %d tokens, %d differ\n", tokens, differ)
	}
	switch {
	case err != nil:
		return err
	case differ > 0:
		return cli.WithHint(fmt.Errorf("%d of %d tokens differ from the stored ones: %w", differ, tokens, pack.ErrNotEqual),
			"a small margin is a near tie with another arithmetic; a large one is a fault of the file or the program")
	case bitsDiffer > 0:
		return cli.WithHint(fmt.Errorf("the logits of %d of %d steps differ: %w", bitsDiffer, bits, pack.ErrNotEqual),
			"all tokens are equal, but equal arithmetic has equal bits: another model, or a fault of the program")
	}
	return nil
}

// print prints a line a prompt, and for one that differs the prompt, both
// tokens and both margins.
func (v *verifier) print(p *packOf, r *runner, all []identity.Trajectory, report *identity.Report) {
	w := v.App.Writer
	if v.Bool("quiet") {
		return
	}
	if v.several {
		fmt.Fprintf(w, "%s: ", cli.OneLine(strconv.Quote(p.Name)))
	}
	fmt.Fprintf(w, "backend %s, %s, activations %s, KV %s%s\n", onBackend(r.Backend, r.Kernels),
		threadsText(r.Options().Threads), r.Options().Activations, r.Options().KV, tested(r))
	fmt.Fprintf(w, "%8s  %6s  %6s  %10s  prompt\n", "", "tokens", "differ", "min margin")
	for i, q := range report.Prompts {
		word := "ok"
		if len(q.Differences) > 0 || q.BitsDiffer > 0 {
			word = "DIFFERS"
		}
		fmt.Fprintf(w, "%-8s  %6d  %6d  %10.3g  %s\n", word, q.Tokens, len(q.Differences), q.MinMargin, short(all[i].PromptText))
		if q.BitsDiffer > 0 {
			fmt.Fprintf(w, "          logits differ in %d of %d steps, first at %d\n", q.BitsDiffer, q.Bits, q.FirstBits)
		}
		if len(q.Differences) > 0 {
			printDifference(w, p, i, &all[i], &q.Differences[0], v.setOf(i).Judge(&q.Differences[0], r.Options()))
		}
	}
	if report.Margins > 0 {
		fmt.Fprintf(w, "largest difference to a stored margin: %.3g over %d tokens\n", report.MarginError, report.Margins)
	}
}

func printDifference(w io.Writer, p *packOf, index int, t *identity.Trajectory, d *identity.Difference, verdict identity.Verdict) {
	fmt.Fprintf(w, "          first at token %d: %s instead of %s; our margin %.3g", d.Step, p.tokenText(d.Got), p.tokenText(d.Want), d.Margin)
	if !math.IsNaN(d.Stored) {
		fmt.Fprintf(w, ", stored %.3g", d.Stored)
	}
	fmt.Fprintf(w, ", behind by %.3g\n", d.Behind())
	fmt.Fprintf(w, "          %s\n", verdict)
	fmt.Fprintf(w, "          prompt %d of the trajectories: %s, then %d equal tokens\n", index+1, cli.OneLine(strconv.Quote(t.PromptText)), d.Step)
}

// tokenText is an id with its text, if the model has a tokenizer.
func (p *packOf) tokenText(id int32) string {
	if tok, err := p.Tokenizer(); err == nil {
		text, _ := tok.Token(id)
		return fmt.Sprintf("%d %s", id, cli.OneLine(strconv.Quote(text)))
	}
	return strconv.Itoa(int(id))
}

// setOf is the file from which prompt i of all comes.
func (v *verifier) setOf(i int) *set {
	for k := range v.sets {
		if i -= len(v.sets[k].Trajectories); i < 0 {
			return &v.sets[k]
		}
	}
	panic("more prompts than trajectories")
}

// short is a text's beginning in quotes, for a table.
func short(s string) string {
	r := []rune(s)
	if len(r) > 40 {
		r = append(r[:40], '…')
	}
	return cli.OneLine(strconv.Quote(string(r)))
}

// verifications is the JSON form where several models or backends were
// compared.
type verifications struct {
	Runs       []*verification `json:"runs"`
	Tokens     int             `json:"tokens"`
	Differ     int             `json:"differ"`
	Bits       int             `json:"bits"`
	BitsDiffer int             `json:"bits_differ"`
}

// verification is the JSON form of a report. Fields are only ever added.
type verification struct {
	Model       string               `json:"model"`
	Backend     string               `json:"backend"`
	Activations string               `json:"activations"`
	KV          string               `json:"kv"`
	Threads     int                  `json:"threads"`
	Kernels     string               `json:"kernels,omitempty"`   // of the processor
	SelfTest    bool                 `json:"self_test,omitempty"` // whether they passed one
	Tokens      int                  `json:"tokens"`
	Differ      int                  `json:"differ"`
	Bits        int                  `json:"bits"` // steps whose logits were compared bit by bit
	BitsDiffer  int                  `json:"bits_differ"`
	MarginError *float64             `json:"largest_margin_error"` // null if no margins are stored
	Prompts     []verificationPrompt `json:"prompts"`
}

type verificationPrompt struct {
	File        string                   `json:"file"`
	Class       string                   `json:"class,omitempty"`
	Prompt      string                   `json:"prompt,omitempty"`
	Tokens      int                      `json:"tokens"`
	MinMargin   float64                  `json:"min_margin"`
	FreeMatch   bool                     `json:"free_match"`
	Divergence  int                      `json:"first_divergence"`  // of the free run, -1 if none
	FirstBits   int                      `json:"first_bits_differ"` // -1 if none
	Differences []verificationDifference `json:"differences"`       // teacher forced
}

type verificationDifference struct {
	Step         int              `json:"step"`
	Got          int32            `json:"got"`
	Want         int32            `json:"want"`
	GotText      string           `json:"got_text,omitempty"`
	WantText     string           `json:"want_text,omitempty"`
	GotLogit     float32          `json:"got_logit"`
	WantLogit    float32          `json:"want_logit"`
	Margin       float64          `json:"margin"`
	StoredMargin *float64         `json:"stored_margin"`
	Verdict      identity.Verdict `json:"verdict"`
}

func (v *verifier) newVerification(r *runner, rep *identity.Report) *verification {
	o := r.Options()
	out := &verification{Model: r.Name, Backend: r.Backend, Activations: o.Activations.String(), KV: o.KV.String(), Threads: o.Threads,
		Kernels: r.Kernels, SelfTest: r.Kernels != "", Tokens: rep.Tokens, Differ: rep.Differ, Bits: rep.Bits, BitsDiffer: rep.BitsDiffer}
	if rep.Margins > 0 {
		out.MarginError = &rep.MarginError
	}
	index := 0
	for k := range v.sets {
		for _, t := range v.sets[k].Trajectories {
			q := &rep.Prompts[index]
			index++
			vp := verificationPrompt{File: filepath.ToSlash(v.sets[k].name), Class: t.Class, Prompt: t.PromptText, Tokens: q.Tokens,
				MinMargin: finite(q.MinMargin), FreeMatch: len(q.Differences) == 0, Divergence: -1, FirstBits: q.FirstBits, Differences: []verificationDifference{}}
			for i := range q.Differences {
				d := &q.Differences[i]
				if i == 0 {
					vp.Divergence = d.Step
				}
				vp.Differences = append(vp.Differences, newDifference(r, d, v.sets[k].Judge(d, o)))
			}
			out.Prompts = append(out.Prompts, vp)
		}
	}
	return out
}

func newDifference(r *runner, d *identity.Difference, verdict identity.Verdict) verificationDifference {
	out := verificationDifference{Step: d.Step, Got: d.Got, Want: d.Want, GotLogit: d.GotLogit, WantLogit: d.WantLogit, Margin: finite(d.Margin), Verdict: verdict}
	if tok, err := r.Tokenizer(); err == nil {
		out.GotText, _ = tok.Token(d.Got)
		out.WantText, _ = tok.Token(d.Want)
	}
	if !math.IsNaN(d.Stored) {
		out.StoredMargin = &d.Stored
	}
	return out
}

// finite bounds the margin of a vocabulary of one token, which JSON cannot say.
func finite(v float64) float64 { return min(v, math.MaxFloat64) }
