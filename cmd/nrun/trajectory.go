package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/pack"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/runtime/identity"
	"npack/ternary"
	"npack/testdata/battery"
)

func trajectoryCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "trajectory",
		Usage:     "record what a model says greedily, for verify to compare with",
		UsageText: "nrun trajectory [flags] [MODEL]",
		Description: "Every prompt of the battery is continued greedily, and ids, margins and the sha256 of all\n" +
			"logits are written with what made them: digests of the weights, numerics version, backend.\n" +
			"Stop tokens do not stop. --battery takes a file, \"story\" or \"general\", which are part of this\n" +
			"program, or a file of token ids, a line a prompt, as the fork's greedy tool reads.\n\n" + cli.Examples(
			"nrun trajectory -o story.json",
			"nrun trajectory ~/models/pack --battery general -o pack.json",
			"nrun trajectory ~/models/pack --battery prompts.txt --fork-receipt --ref ref.txt -o receipt.json"),
		Flags: slices.Concat([]urfave.Flag{
			batteryFlag(), stepsFlag(),
			&urfave.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "-", Usage: "write to this `FILE`, - is standard output"},
			&urfave.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace a file that is there"},
			&urfave.BoolFlag{Name: "no-bits", Usage: "leave the sums of logits out, two thirds of the file"},
			&urfave.BoolFlag{Name: "fork-receipt", Usage: "write the JSON receipt of llama-fermion-greedy instead"},
			&urfave.StringFlag{Name: "ref", Usage: "references for the receipt: `FILE` with a line of token ids a prompt"},
		}, runFlags(), []urfave.Flag{quietFlag("no progress, no word on success")}),
		Action: trajectory,
	}
}

func batteryFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "battery", Usage: "prompts: a `FILE`, story or general", DefaultText: "battery.json beside the model, else story for the embedded model and general for others"}
}

func stepsFlag() urfave.Flag {
	return &urfave.IntFlag{Name: "steps", Aliases: []string{"n"}, Usage: "make `N` tokens for each prompt", DefaultText: "what the battery says"}
}

// forkSteps is how many tokens the fork's tool makes of each prompt.
const forkSteps = 128

func trajectory(c *urfave.Context) error {
	p, err := openPack(c)
	if err != nil {
		return err
	}
	defer p.Close()
	if c.IsSet("ref") && !c.Bool("fork-receipt") {
		return cli.Usagef("add --fork-receipt", "--ref has no effect without --fork-receipt")
	}
	out := c.String("output")
	if out != "-" {
		if err := outfile.Check(out); err != nil {
			return err
		}
		if _, err := os.Stat(out); err == nil && !c.Bool("force") {
			return cli.Usagef("--force replaces it", "%q is there", out)
		}
	}
	m, err := p.Model()
	if err != nil {
		return err
	}
	b, name, err := p.battery(c)
	if err != nil {
		return err
	}
	steps, err := batterySteps(c, b)
	if err != nil {
		return err
	}
	prompts, err := p.encodeBattery(b, name, b.Shard(0, 1), steps)
	if err != nil {
		return err
	}
	if n := identity.EncodedSize(len(prompts), steps, !c.Bool("no-bits")); n > identity.MaxFile && !c.Bool("fork-receipt") {
		return cli.Usagef("record fewer prompts or steps, or leave the bits out: --no-bits",
			"%d prompts of %d steps make a file of about %s, and no reader takes more than %s", len(prompts), steps, cli.Size(int64(n)), cli.Size(identity.MaxFile))
	}
	x, err := readChoice(c)
	if err == nil {
		err = selfTest(x)
	}
	if err != nil {
		return err
	}
	if c.Bool("fork-receipt") {
		return p.receipt(c, m, prompts, steps)
	}
	digests, err := p.digests(c)
	if err != nil {
		return err
	}
	r, err := p.open(c)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.holds(longest(prompts)+steps-1, hintRoom); err != nil {
		return err
	}
	total := int64(len(prompts) * steps)
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet")).Count("tokens")
	list, err := identity.Record(c.Context, r.Instance, prompts, steps, !c.Bool("no-bits"), func(done int) { bar.Show("recording", int64(done), total) })
	bar.Done()
	if err != nil {
		return err
	}
	f := identity.File{Header: r.header(digests), Trajectories: list}
	f.Battery, f.BatterySHA256, f.Steps = b.Name, b.SHA256, steps
	data, err := f.Encode()
	if err != nil {
		return err
	}
	if err := writeResult(c, out, data); err != nil {
		return err
	}
	if !c.Bool("quiet") && out != "-" {
		fmt.Fprintf(c.App.Writer, "wrote %q: %d prompts, %s tokens by %s, model %.16s…\n", out, len(list), cli.Group(total), onBackend(r.Backend, r.Kernels), f.ModelSHA256)
	}
	return nil
}

// header says what a runner's trajectories come from.
func (r *runner) header(d *ternary.Digests) identity.Header {
	o := r.Options()
	return identity.Header{Model: r.Name, ModelSHA256: d.Model.String(), Tensors: identity.Tensors(d),
		Numerics: backend.NumericsVersion, Activations: o.Activations.String(), KV: o.KV.String(),
		Backend: r.Backend, Kernels: r.Kernels, Device: r.Device, StopRule: identity.StopNone}
}

// digests reads all weights.
func (p *packOf) digests(c *urfave.Context) (*ternary.Digests, error) {
	m, err := p.Model()
	if err != nil {
		return nil, err
	}
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer bar.Done()
	d, err := m.Digests(c.Context, ternary.WalkOptions{Threads: c.Int("threads"), Progress: func(done, total int64) { bar.Show("sha256 of the weights", done, total) }})
	return d, p.src.Place(err)
}

// longest is the length in tokens of the longest prompt.
func longest(prompts []identity.Trajectory) (n int) {
	for i := range prompts {
		n = max(n, len(prompts[i].Prompt))
	}
	return n
}

// receipt does what the fork's greedy tool does, and writes what it writes. A
// flip is told after the receipt is written.
func (p *packOf) receipt(c *urfave.Context, m *ternary.Model, prompts []identity.Trajectory, steps int) error {
	ids := make([][]int32, len(prompts))
	total := int64(0)
	for i := range prompts {
		ids[i] = prompts[i].Prompt
		total += int64(steps)
	}
	var refs [][]int32
	if c.IsSet("ref") {
		name := c.String("ref")
		data, err := pack.ReadFile(name, identity.MaxFile)
		if err != nil {
			return err
		}
		if refs, err = identity.ParseIDs(data, m.Vocab, engine.ModelContext(&m.Config)); err != nil {
			return fileError(name, err, hintTrajectories)
		}
		if len(refs) != len(ids) {
			return cli.Usagef("the files must have as many lines", "%d prompts and %d references", len(ids), len(refs))
		}
		for i, ref := range refs {
			refs[i] = ref[:min(len(ref), steps)]
			total += int64(len(refs[i]))
		}
	}
	r, err := p.open(c)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.holds(longest(prompts)+steps-1, hintRoom); err != nil {
		return err
	}
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet")).Count("tokens")
	receipt, err := identity.MakeReceipt(c.Context, r.Instance, ids, refs, steps, func(done int) { bar.Show("recording", int64(done), total) })
	bar.Done()
	if err != nil {
		return err
	}
	receipt.Model, receipt.Load = p.Name, identity.Fixed3(r.Load.Seconds())
	if err := writeResult(c, c.String("output"), receipt.Encode()); err != nil {
		return err
	}
	if !receipt.Passed() {
		return cli.WithHint(fmt.Errorf("%d teacher-forced tokens differ from the references: %w", receipt.Totals.MismatchTotal, pack.ErrNotEqual),
			"the receipt lists them with their margins")
	}
	return nil
}

// battery reads what --battery names, or the model's own, and how to call it.
func (p *packOf) battery(c *urfave.Context) (*identity.Battery, string, error) {
	const own = "battery.json"
	name := c.String("battery")
	var data []byte
	var err error
	switch name {
	case "":
		if data, err = p.optional(own); err != nil {
			return nil, "", err
		}
		switch {
		case data != nil:
			name = p.sidePath(own)
		case p.path == "":
			name, data = "story", battery.Story
		default:
			name, data = "general", battery.General
		}
	case "story":
		data = battery.Story
	case "general":
		data = battery.General
	default:
		if data, err = pack.ReadFile(name, identity.MaxFile); err != nil {
			return nil, "", cli.WithHint(err, "--battery takes a file, story or general")
		}
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		b, err := p.idsBattery(data)
		return b, name, fileError(name, err, hintBattery)
	}
	b, err := identity.ParseBattery(data)
	return b, name, fileError(name, err, hintBattery)
}

// idsBattery makes a battery of the fork's lines of ids.
func (p *packOf) idsBattery(data []byte) (*identity.Battery, error) {
	m, err := p.Model()
	if err != nil {
		return nil, err
	}
	lines, err := identity.ParseIDs(data, m.Vocab, engine.ModelContext(&m.Config))
	if err != nil {
		return nil, err
	}
	return identity.NewBattery("ids", data, lines, forkSteps), nil
}

func batterySteps(c *urfave.Context, b *identity.Battery) (int, error) {
	if !c.IsSet("steps") {
		return b.Steps, nil
	}
	if n := c.Int("steps"); n >= 1 && n <= engine.MaxContext {
		return n, nil
	}
	return 0, cli.Usagef("", "--steps %d: 1 to %d tokens", c.Int("steps"), engine.MaxContext)
}

// encodeBattery turns prompts of a battery into this model's ids.
func (p *packOf) encodeBattery(b *identity.Battery, name string, indices []int, steps int) ([]identity.Trajectory, error) {
	m, err := p.Model()
	if err != nil {
		return nil, err
	}
	var encode func(string) []int32
	if slices.ContainsFunc(b.Prompts, func(q identity.BatteryPrompt) bool { return q.Text != "" }) {
		tok, err := p.Tokenizer()
		switch {
		case err == nil:
			encode = func(text string) []int32 { return tok.Encode(nil, text) }
		case !errors.Is(err, pack.ErrTruncated): // one that is there and broken
			return nil, err
		}
	}
	context := engine.ModelContext(&m.Config)
	list, err := b.Encode(indices, steps, encode, m.Vocab, context)
	if err != nil && steps > b.Steps {
		if _, own := b.Encode(indices, b.Steps, encode, m.Vocab, context); own == nil { // the battery is not at fault
			return nil, cli.Usagef("a smaller -n, or the one that the battery has: leave it out", "-n %d: %q: %s", steps, name, err)
		}
	}
	return list, fileError(name, err, hintBattery)
}

const (
	hintRoom         = "give more with -c, or with --memory-limit"
	hintTrajectories = "are these the trajectories of this model?"
	hintBattery      = "is this battery for this model? --battery general suits every tokenizer"
)

// fileError places an error of package identity in its file.
func fileError(name string, err error, hint string) error {
	var e *identity.FormatError
	if !errors.As(err, &e) {
		return err
	}
	kind := pack.ErrCorrupt
	switch {
	case e.Truncated:
		kind = pack.ErrTruncated
	case e.Unsupported:
		kind = pack.ErrUnsupported
	}
	return &pack.Error{Kind: kind, File: name, Place: e.Place, Offset: e.Offset, Found: e.Found, Expected: e.Expected, Hint: hint}
}

// writeResult writes a whole file, or to standard output.
func writeResult(c *urfave.Context, path string, data []byte) error {
	if path == "-" {
		_, err := c.App.Writer.Write(data)
		return err
	}
	f, err := outfile.Create(path, int64(len(data)))
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}
