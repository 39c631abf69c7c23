package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	urfave "github.com/urfave/cli/v2"

	"npack/cpu"
	"npack/internal/cli"
	"npack/pack"
	"npack/runtime/engine"
	"npack/runtime/identity"
	"npack/ternary"
)

func verifyCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "verify",
		Usage:     "prove that the model makes the stored tokens, one by one",
		UsageText: "nrun verify [flags] [MODEL]",
		Description: "Every prompt of the trajectories is continued greedily and each token compared with\n" +
			"the stored one. At a difference both tokens are shown, with the margin by which the\n" +
			"first beat the second; the stored text then goes on, so that every token is judged.\n" +
			"Exit status 3 if any token differs.\n\n" + cli.Examples(
			"nrun verify",
			"nrun verify ~/models/pack",
			"nrun verify ~/models/pack --against one.json --against two.json --json"),
		Flags: slices.Concat([]urfave.Flag{
			&urfave.StringSliceFlag{Name: "against", Usage: "trajectories `FILE`; may be given again (default: trajectories.json beside the model)"},
		}, runFlags(), []urfave.Flag{quietFlag("print the last line alone"), jsonFlag()}),
		Action: verify,
	}
}

func verify(c *urfave.Context) error {
	p, err := openPack(c)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Model()
	if err != nil {
		return err
	}
	sets, err := trajectories(c, p, m)
	if err != nil {
		return err
	}
	if err := selfTest(c); err != nil {
		return err
	}
	r, err := p.open(c)
	if err != nil {
		return err
	}
	defer r.Close()

	var all []identity.Trajectory
	var files []string // of each of all
	for _, s := range sets {
		for range s.list {
			files = append(files, s.name)
		}
		all = append(all, s.list...)
	}
	total := 0
	for _, t := range all {
		total += len(t.IDs)
	}
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet")).Count("tokens")
	report, err := identity.Compare(c.Context, r.Instance, all, func(done int) {
		bar.Show("verifying", int64(done), int64(total))
	})
	bar.Done()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = cli.JSON(c.App.Writer, newVerification(r, files, report))
	} else {
		if !c.Bool("quiet") {
			fmt.Fprintf(c.App.Writer, "backend %s, %s, activations %s, KV %s%s\n", onBackend(r.Backend, r.Kernels),
				threadsText(r.Options().Threads), r.Options().Activations, r.Options().KV, tested(r))
		}
		printVerification(c.App.Writer, p, all, report, c.Bool("quiet"))
	}
	if err != nil || report.Differ == 0 {
		return err
	}
	return cli.WithHint(fmt.Errorf("%d of %d tokens differ from the stored ones: %w", report.Differ, report.Tokens, pack.ErrNotEqual),
		"a small margin is a near tie with another arithmetic; a large one is a fault of the file or the program")
}

// selfTest checks that the kernels that will run compute what they should on
// this processor, before anything is laid at the model's door.
func selfTest(c *urfave.Context) error {
	_, b, _, err := chooseBackend(c.String("backend"), c.String("cpu-kernel"))
	if err != nil {
		return err
	}
	if name := kernelsOf(b); name != "" {
		if err := cpu.SelfTest(name); err != nil {
			return cli.WithHint(fmt.Errorf("self-test: %w", err), "another set may be right: nrun info lists them, --cpu-kernel chooses; --backend reference needs none")
		}
	}
	return nil
}

// tested says that the self-test passed, where there is one.
func tested(r *runner) string {
	if r.Kernels == "" {
		return ""
	}
	return "; self-test of the kernels passed"
}

// set is a file of trajectories.
type set struct {
	name string
	list []identity.Trajectory
}

// trajectories reads the files that --against names, or the pack's own.
func trajectories(c *urfave.Context, p *packOf, m *ternary.Model) ([]set, error) {
	const own = "trajectories.json"
	files := c.StringSlice("against")
	if len(files) == 0 {
		data, err := p.file(own)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, cli.Usagef("give a file: --against FILE", "no %s beside %q", own, p.Name)
		}
		if err != nil {
			return nil, err
		}
		s, err := parseTrajectories(p.sidePath(own), data, m)
		return []set{s}, err
	}
	var sets []set
	for _, f := range files {
		data, err := pack.ReadFile(f, identity.MaxFile)
		if err != nil {
			return nil, err
		}
		s, err := parseTrajectories(f, data, m)
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	return sets, nil
}

func parseTrajectories(name string, data []byte, m *ternary.Model) (set, error) {
	list, err := identity.Parse(data, m.Vocab, engine.ModelContext(&m.Config))
	var e *identity.FormatError
	if errors.As(err, &e) {
		kind := pack.ErrCorrupt
		if e.Truncated {
			kind = pack.ErrTruncated
		}
		err = &pack.Error{Kind: kind, File: name, Place: e.Place, Offset: e.Offset, Found: e.Found, Expected: e.Expected,
			Hint: "are these the trajectories of this model?"}
	}
	return set{name, list}, err
}

// printVerification prints a line a prompt, one a difference, and the sum.
func printVerification(w io.Writer, p *packOf, all []identity.Trajectory, r *identity.Report, quiet bool) {
	token := func(id int32) string {
		if tok, err := p.Tokenizer(); err == nil {
			text, _ := tok.Token(id)
			return fmt.Sprintf("%d %s", id, cli.OneLine(strconv.Quote(text)))
		}
		return strconv.Itoa(int(id))
	}
	if !quiet {
		fmt.Fprintf(w, "%8s  %6s  %6s  %10s  prompt\n", "", "tokens", "differ", "min margin")
		for i, q := range r.Prompts {
			word := "ok"
			if len(q.Differences) > 0 {
				word = "DIFFERS"
			}
			fmt.Fprintf(w, "%-8s  %6d  %6d  %10.3g  %s\n", word, q.Tokens, len(q.Differences), q.MinMargin, short(all[i].PromptText))
			if len(q.Differences) > 0 {
				d := q.Differences[0]
				fmt.Fprintf(w, "          first at token %d: %s instead of %s; our margin %.3g", d.Step, token(d.Got), token(d.Want), d.Margin)
				if !math.IsNaN(d.Stored) {
					fmt.Fprintf(w, ", stored %.3g", d.Stored)
				}
				fmt.Fprintf(w, ", behind by %.3g\n", float64(d.GotLogit)-float64(d.WantLogit))
			}
		}
		if r.Margins > 0 {
			fmt.Fprintf(w, "largest difference to a stored margin: %.3g over %d tokens\n", r.MarginError, r.Margins)
		}
	}
	fmt.Fprintf(w, "verify: %d tokens, %d differ\n", r.Tokens, r.Differ)
}

// short is a text's beginning in quotes, for a table.
func short(s string) string {
	r := []rune(s)
	if len(r) > 40 {
		r = append(r[:40], '…')
	}
	return cli.OneLine(strconv.Quote(string(r)))
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
	MarginError *float64             `json:"largest_margin_error"` // null if no margins are stored
	Prompts     []verificationPrompt `json:"prompts"`
}

type verificationPrompt struct {
	File        string                   `json:"file"`
	Tokens      int                      `json:"tokens"`
	MinMargin   float64                  `json:"min_margin"`
	Differences []verificationDifference `json:"differences"`
}

type verificationDifference struct {
	Step         int      `json:"step"`
	Got          int32    `json:"got"`
	Want         int32    `json:"want"`
	GotLogit     float32  `json:"got_logit"`
	WantLogit    float32  `json:"want_logit"`
	Margin       float64  `json:"margin"`
	StoredMargin *float64 `json:"stored_margin"`
}

func newVerification(r *runner, files []string, rep *identity.Report) *verification {
	o := r.Options()
	v := &verification{Model: r.Name, Backend: r.Backend, Activations: o.Activations.String(), KV: o.KV.String(), Threads: o.Threads,
		Kernels: r.Kernels, SelfTest: r.Kernels != "", Tokens: rep.Tokens, Differ: rep.Differ}
	if rep.Margins > 0 {
		v.MarginError = &rep.MarginError
	}
	for i, q := range rep.Prompts {
		vp := verificationPrompt{File: filepath.ToSlash(files[i]), Tokens: q.Tokens, MinMargin: finite(q.MinMargin), Differences: []verificationDifference{}}
		for _, d := range q.Differences {
			vd := verificationDifference{Step: d.Step, Got: d.Got, Want: d.Want, GotLogit: d.GotLogit, WantLogit: d.WantLogit, Margin: finite(d.Margin)}
			if !math.IsNaN(d.Stored) {
				vd.StoredMargin = &d.Stored
			}
			vp.Differences = append(vp.Differences, vd)
		}
		v.Prompts = append(v.Prompts, vp)
	}
	return v
}

// finite bounds the margin of a vocabulary of one token, which JSON cannot say.
func finite(v float64) float64 { return min(v, math.MaxFloat64) }
