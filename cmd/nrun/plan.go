package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"npack/cpu"
	"npack/internal/cli"
	"npack/internal/machine"
	"npack/pack"
	"npack/runtime/engine"
	"npack/ternary"
)

func planCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "plan",
		Usage:     "show how much memory the model and a context take",
		UsageText: "nrun plan [flags] [MODEL]",
		Description: "Nothing is run, and no weights are read: the answer comes at once. Only a coded transport\n" +
			"(.tv4z) is decoded into memory, as for a run. The flags are those of a run; the total is what\n" +
			"a run that fills the context takes at its peak.\n\n" + cli.Examples(
			"nrun plan", "nrun plan ~/models/pack -c 32768 --kv int8", "nrun plan ~/models/pack --memory-limit 6GB",
			"nrun plan ~/models/8b --draft ~/models/0.6b -c 4096 --memory-limit 6GiB"),
		Flags:  slices.Concat(runFlags(), draftFlags()[:1], []urfave.Flag{jsonFlag()}),
		Action: plan,
	}
}

// planned is the JSON form of a plan, in bytes and tokens. Fields are only
// ever added.
type planned struct {
	Model          string         `json:"model"`
	KV             string         `json:"kv"`
	Context        int            `json:"context"`
	ContextWhy     string         `json:"context_why"`
	Weights        int64          `json:"weights"`
	KVBytes        int64          `json:"kv_bytes"`
	KVPerToken     int64          `json:"kv_bytes_per_token"`
	Scratch        int64          `json:"scratch"`
	Draft          int64          `json:"draft,omitempty"` // all that --draft takes beside the model
	Total          int64          `json:"total"`
	Memory         machine.Memory `json:"memory"`
	Card           *plannedCard   `json:"card,omitempty"` // whose memory all but program is
	Fits           bool           `json:"fits"`
	LargestContext int            `json:"largest_context"` // that fits; 0 if not even the weights do
	ModelContext   int            `json:"model_context"`
	Backend        string         `json:"backend"`
	Kernels        string         `json:"kernels,omitempty"`
	Activations    string         `json:"activations"`
	Threads        int            `json:"threads"`
	Program        int64          `json:"program"`
	MemoryLimit    int64          `json:"memory_limit,omitempty"` // that was given
}

// plannedCard is the card that a model is planned for.
type plannedCard struct {
	Name  string `json:"name"`
	Total int64  `json:"memory"`
	Free  int64  `json:"memory_free"`
}

func plan(c *urfave.Context) error {
	o, err := runOptions(c)
	if err != nil {
		return err
	}
	chosen, err := chooseBackend(c)
	if err != nil {
		return err
	}
	chosen.note(c)
	b := chosen.backend
	p, err := openPack(c)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Model()
	if err != nil {
		return err
	}
	if err := p.runnable(); err != nil {
		return err
	}
	if b, ok := b.(cpu.Backend); ok {
		if err := b.Suits(m); err != nil {
			return fmt.Errorf("%q: %w", p.Name, err)
		}
	}
	_, _ = p.Tokenizer() // a part of the program's memory, where there is one
	need, err := readNeed(c, b, p)
	if err != nil {
		return err
	}
	if need.draft, err = readDraft(c, p); err != nil {
		return err
	}
	if need.draft != nil {
		defer need.draft.Close()
	}
	w, err := need.window(b, m, o)
	tooLarge := errors.Is(err, pack.ErrNoSpace)
	if tooLarge { // to see why is what the plan is for
		w = window{need.asked, "asked for with -c"}
		if need.asked == 0 {
			w = window{engine.ModelContext(&m.Config), "all that the model was made for"}
		}
	} else if err != nil {
		return err
	}
	e := engine.NewPlan(b, m, o, w.Tokens)
	out := planned{
		Model: p.Name, KV: o.KV.String(), Context: w.Tokens, ContextWhy: w.Why,
		Weights: e.Weights, KVBytes: e.Cache, KVPerToken: o.KV.BytesPerToken(&m.Config), Scratch: e.Scratch,
		Draft: need.draft.bytes(b, o, m.Vocab, w.Tokens), Program: need.program,
		Memory: machine.ReadMemory(), MemoryLimit: need.limit, Fits: !tooLarge,
		LargestContext: need.largest(b, m, o), ModelContext: engine.ModelContext(&m.Config),
		Backend: b.Name(), Kernels: runsOf(b), Activations: o.Activations.String(), Threads: o.Threads,
	}
	out.Total = e.Total() + out.Draft + out.Program
	if card, ok := b.(*card); ok {
		i := card.Info()
		out.Card = &plannedCard{i.Name, i.Total, i.Free}
	}
	if c.Bool("json") {
		err = cli.JSON(c.App.Writer, out)
	} else {
		err = printPlan(c.App.Writer, m, &out, need.draft)
	}
	// With a limit that was given the command answers as a run would.
	if err == nil && tooLarge && need.limit > 0 {
		_, err = need.window(b, m, o)
	}
	return err
}

func printPlan(w io.Writer, m *ternary.Model, p *planned, d *draft) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, bytes int64, note string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\t%s\t  %s\n", name, cli.Group(bytes), cli.Size(bytes), fmt.Sprintf(note, args...))
	}
	fmt.Fprintf(w, "%s: %s, %d layers, context of %d tokens (%s)\n", p.Model, m.Arch, m.Config.Layers, p.Context, p.ContextWhy)
	row("weights", p.Weights, "%s", onBackend(p.Backend, p.Kernels))
	row("KV cache", p.KVBytes, "%s, %s bytes a token", p.KV, cli.Group(p.KVPerToken))
	row("scratch", p.Scratch, "activations, logits, rotary table")
	if d != nil {
		note := "from the text itself: logits of its guesses"
		if d.pack != nil {
			note = d.name + ": weights, cache, scratch and logits of its guesses"
		}
		row("draft", p.Draft, "%s", note)
	}
	if p.Program > 0 {
		row("program", p.Program, "with its tokenizer")
	}
	row("total", p.Total, "")
	if p.MemoryLimit > 0 {
		row("limit", p.MemoryLimit, "--memory-limit")
	}
	if p.Card != nil {
		row("free memory", p.Card.Free, "of %s, %s", cli.Size(p.Card.Total), p.Card.Name)
	} else if p.Memory.Available > 0 {
		row("free memory", p.Memory.Available, "%s", memoryNote(p.Memory))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	switch {
	case p.LargestContext == 0:
		fmt.Fprintf(w, "does not fit\n")
	case !p.Fits:
		fmt.Fprintf(w, "does not fit; the largest context that does has %d tokens\n", p.LargestContext)
	default:
		fmt.Fprintf(w, "fits; the largest context that does has %d tokens (the model was made for %d)\n", p.LargestContext, p.ModelContext)
	}
	return nil
}

// onBackend names what runs a model: "cpu (avx2)".
func onBackend(backend, kernels string) string {
	if kernels == "" {
		return backend
	}
	return fmt.Sprintf("%s (%s)", backend, kernels)
}

func memoryNote(m machine.Memory) string {
	if m.Limit > 0 {
		return fmt.Sprintf("within a limit of %s of this control group", cli.Size(m.Limit))
	}
	return fmt.Sprintf("of %s", cli.Size(m.Total))
}
