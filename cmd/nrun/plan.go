package main

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/machine"
	"npack/pack"
	"npack/runtime/backend"
	"npack/runtime/engine"
)

func planCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "plan",
		Usage:     "show how much memory the model and a context take",
		UsageText: "nrun plan [flags] [MODEL]",
		Description: "Nothing is run, and no weights are read: the answer comes at once.\n\n" + cli.Examples(
			"nrun plan", "nrun plan ~/models/pack -c 32768 --kv int8"),
		Flags:  slices.Concat(memoryFlags(), []urfave.Flag{jsonFlag()}),
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
	Total          int64          `json:"total"`
	Memory         machine.Memory `json:"memory"`
	Fits           bool           `json:"fits"`
	LargestContext int            `json:"largest_context"` // that fits; 0 if not even the weights do
	ModelContext   int            `json:"model_context"`
}

func plan(c *urfave.Context) error {
	kv, err := backend.ParseKV(c.String("kv"))
	if err != nil {
		return cli.Usagef("", "--kv: %s", err)
	}
	asked, err := askedContext(c)
	if err != nil {
		return err
	}
	p, err := openPack(c)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Model()
	if err != nil {
		return err
	}
	mem, weights := machine.ReadMemory(), engine.WeightBytes(m)
	w, err := chooseWindow(asked, &m.Config, weights, kv, mem.Available)
	tooLarge := errors.Is(err, pack.ErrNoSpace)
	if tooLarge { // to see why is what the plan is for
		w = window{asked, "asked for with -c"}
		if asked == 0 {
			w = window{engine.ModelContext(&m.Config), "all that the model was made for"}
		}
	} else if err != nil {
		return err
	}
	e := engine.NewPlan(&m.Config, weights, kv, w.Tokens)
	out := planned{
		Model: p.Name, KV: kv.String(), Context: w.Tokens, ContextWhy: w.Why,
		Weights: e.Weights, KVBytes: e.Cache, KVPerToken: kv.BytesPerToken(&m.Config), Scratch: e.Scratch, Total: e.Total(),
		Memory: mem, Fits: !tooLarge, LargestContext: engine.ModelContext(&m.Config), ModelContext: engine.ModelContext(&m.Config),
	}
	if mem.Available > 0 {
		out.LargestContext = engine.LargestContext(&m.Config, weights, kv, usable(mem.Available))
	}
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, out)
	}
	tw := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, bytes int64, note string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\t%s\t  %s\n", name, cli.Group(bytes), cli.Size(bytes), fmt.Sprintf(note, args...))
	}
	fmt.Fprintf(c.App.Writer, "%s: %s, %d layers, context of %d tokens (%s)\n", p.Name, m.Arch, m.Config.Layers, w.Tokens, w.Why)
	row("weights", e.Weights, "")
	row("KV cache", e.Cache, "%s, %s bytes a token", kv, cli.Group(out.KVPerToken))
	row("scratch", e.Scratch, "about: activations, logits, rotary table")
	row("total", e.Total(), "")
	if mem.Available > 0 {
		row("free memory", mem.Available, "%s", memoryNote(mem))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	switch {
	case out.LargestContext == 0:
		fmt.Fprintf(c.App.Writer, "does not fit\n")
	case tooLarge:
		fmt.Fprintf(c.App.Writer, "does not fit; the largest context that does has %d tokens\n", out.LargestContext)
	default:
		fmt.Fprintf(c.App.Writer, "fits; the largest context that does has %d tokens (the model was made for %d)\n", out.LargestContext, out.ModelContext)
	}
	return nil
}

func memoryNote(m machine.Memory) string {
	if m.Limit > 0 {
		return fmt.Sprintf("within a limit of %s of this control group", cli.Size(m.Limit))
	}
	return fmt.Sprintf("of %s", cli.Size(m.Total))
}
