package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/cpu"
	"npack/cuda"
	"npack/internal/cli"
	"npack/pack"
	"npack/runtime/engine"
	"npack/runtime/identity"
	"npack/ternary"
)

func verifyCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "verify",
		Usage:     "prove that models make the stored tokens, one by one",
		UsageText: "nrun verify [flags] [MODEL…]",
		Description: "Every prompt of the trajectories is continued greedily and each token compared with\n" +
			"the stored one. At a difference both tokens are shown, with the margin by which the\n" +
			"first beat the second; the stored text then goes on, so that every token is judged.\n" +
			"Several models, formats and backends are compared one after the other. --against takes\n" +
			"files of nrun trajectory and receipts of the fork's greedy tool.\n" +
			"Exit status 3 if any token differs, or any bit with --bits.\n\n" + cli.Examples(
			"nrun verify",
			"nrun verify ~/models/pack",
			"nrun verify pack/model.bin pack/model.gguf --against t.json --bits --backend cpu,reference",
			"nrun verify ~/models/pack --against one.json --against two.json --json"),
		Flags: slices.Concat([]urfave.Flag{
			&urfave.StringSliceFlag{Name: "against", Usage: "trajectories `FILE`; may be given again (default: trajectories.json beside the first model)"},
			&urfave.BoolFlag{Name: "bits", Usage: "compare all logits too, by their sha256: with the stored ones of the same arithmetic, and with the first model's"},
		}, runFlags(), []urfave.Flag{quietFlag("print the last line alone"), jsonFlag()}),
		Action: verify,
	}
}

func verify(c *urfave.Context) error {
	packs, err := openPacks(c)
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range packs {
			p.Close()
		}
	}()
	v := &verifier{Context: c, bits: c.Bool("bits")}
	specs, err := choices(c)
	if err != nil {
		return err
	}
	for _, s := range specs { // all of them, before one has worked for hours
		if err := selfTest(s); err != nil {
			return err
		}
	}
	v.several = len(packs)*len(specs) > 1
	for _, p := range packs {
		m, err := p.Model()
		if err != nil {
			return err
		}
		// Each model checks the ids against its own vocabulary.
		if v.sets, err = trajectories(c, packs[0], m); err != nil {
			return err
		}
		for _, s := range specs {
			if err := v.one(p, s); err != nil {
				return err
			}
		}
		if len(packs) > 1 {
			if err := p.Close(); err != nil { // the next one may need the memory
				return err
			}
			p.src = nil
		}
	}
	return v.finish()
}

// openPacks takes any number of MODELs, or the embedded one.
func openPacks(c *urfave.Context) ([]*packOf, error) {
	args, err := cli.Positionals(c, 0, maxModels)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return []*packOf{{Name: embeddedName}}, nil
	}
	var packs []*packOf
	for _, a := range args {
		p, err := packAt(c.Context, a)
		if err != nil {
			return nil, err
		}
		packs = append(packs, p)
	}
	return packs, nil
}

// maxModels is how many models one verify takes.
const maxModels = 100

// choices reads --backend where it is a list: names, or name:kernels.
func choices(c *urfave.Context) ([]choice, error) {
	x, err := readChoice(c)
	if err != nil {
		return nil, err
	}
	var list []choice
	several := strings.Contains(x.name, ",")
	for s := range strings.SplitSeq(x.name, ",") {
		y := x
		name, kernel, own := strings.Cut(strings.TrimSpace(s), ":")
		// What is said for one backend is not for the others of a list.
		if y.name = name; own || several && (name == "reference" || name == "cuda") {
			y.kernel = kernel
			y.zeroCopy = x.zeroCopy && name != "reference" && name != "cuda"
		}
		if several && (name == "cpu" || name == "reference") {
			y.device = cuda.Any
		}
		list = append(list, y)
	}
	return list, nil
}

// selfTest checks that the kernels that will run compute what they should on
// this processor, before anything is laid at the model's door. A card is tested
// when it is opened.
func selfTest(x choice) error {
	b, err := x.choose()
	if err != nil {
		return err
	}
	if b, ok := b.backend.(cpu.Backend); ok {
		if err := cpu.SelfTest(b.Kernels()); err != nil {
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
	*identity.File
}

// trajectories reads the files that --against names, or the pack's own.
func trajectories(c *urfave.Context, p *packOf, m *ternary.Model) ([]set, error) {
	const own = "trajectories.json"
	files := c.StringSlice("against")
	if len(files) == 0 {
		data, err := p.file(own)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, cli.Usagef("give a file: --against FILE; nrun trajectory makes one", "no %s beside %q", own, p.Name)
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
	f, err := identity.ParseFile(data, m.Vocab, engine.ModelContext(&m.Config))
	return set{name, f}, fileError(name, err, hintTrajectories)
}
