package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/internal/race"
	"npack/pack"
)

func raceCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "race",
		Usage:     "measure backends, formats, drafts and other programs against each other",
		UsageText: "nrun race [flags] [MODEL] --run 'NAME: key=value …' --run …",
		Description: "Contestants answer the same prompts, greedily, taking turns in rounds of one run. In a\n" +
			"warm-up, which is not measured, their tokens are compared: a contestant that makes\n" +
			"others ends the race (exit status 3) before a rate counts. Then come medians, ranges,\n" +
			"and whether the sets of rates overlap. docs/race.md describes protocol and file.\n\n" +
			"Keys of a contestant that nrun runs: model (default: MODEL), backend, kernel, zero-copy,\n" +
			"activations, kv, threads, draft (a model, or lookup) and draft-length (1 to 7, or auto).\n" +
			"Of another program: server, a command that starts what speaks llama.cpp's /completion,\n" +
			"with {port} for a free port; url, where it listens, or one that runs already; request,\n" +
			"a JSON object with more fields for it; bench, the beginning of a llama-bench command.\n" +
			"Of all: speed-only=yes lets a rate count although the tokens differ, and says so.\n\n" + cli.Examples(
			"nrun race --run 'vector: backend=cpu' --run 'plain: kernel=generic'",
			"nrun race models/pack --run 'plain:' --run 'drafted: draft=models/small' -o race.json --plot race.png",
			"nrun race ~/models/pack --run 'pack:' --run 'gguf: model=model.gguf' --rounds 9",
			"nrun race ~/models/pack --run 'nrun:' --run 'llama: server=\"llama-server -m model.gguf --port {port}\"'",
			"nrun race ~/models/pack --run 'nrun:' --run 'llama: bench=\"llama-bench -m model.gguf -t 8\"'",
			"nrun race --resume race.json"),
		Flags: slices.Concat([]urfave.Flag{
			&urfave.StringSliceFlag{Name: "run", KeepSpace: true, Usage: "a contestant, `'NAME: key=value …'`; may be given again"},
			&urfave.StringFlag{Name: "contestants", Usage: "read contestants from `FILE`, a JSON list of objects with name and these keys"},
			&urfave.IntFlag{Name: "rounds", Value: 5, Usage: "let everyone have `N` turns"},
		}, promptFlags(), []urfave.Flag{
			&urfave.BoolFlag{Name: "one-by-one", Usage: "have one contestant in memory at a time (default: if they do not fit together)"},
			&urfave.BoolFlag{Name: "no-identity", Usage: "compare no tokens; all contestants must be speed-only"},
			&urfave.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the race into `FILE`, which is not there yet, after every round"},
			&urfave.StringFlag{Name: "resume", Usage: "go on with the race in `FILE`, on the same machine"},
			&urfave.StringFlag{Name: "plot", Usage: "draw the rates into `FILE`, .png or .svg"},
			memoryLimitFlag(), quietFlag("print what it comes to alone"), jsonFlag(),
		}),
		Action: runRace,
	}
}

func runRace(c *urfave.Context) error {
	if err := plotName(c); err != nil {
		return err
	}
	if err := raceOutput(c); err != nil {
		return err
	}
	r, before, err := newRace(c)
	if err != nil {
		return err
	}
	field, err := newField(c, r)
	if err != nil {
		return err
	}
	defer field.close()
	if err := field.prompts(c, r, before); err != nil {
		return err
	}
	if before != nil {
		if err := before.Same(r); err != nil {
			return cli.Usagef("begin a race of its own: leave --resume out", "--resume %q: %s", c.String("resume"), err)
		}
		r.Rounds, r.Identity, r.LoadBefore = before.Rounds, before.Identity, before.LoadBefore
	}
	oneByOne, why, err := field.fit(c, r)
	if err != nil {
		return err
	}

	out := &racePrinter{w: c.App.Writer, r: r, silent: c.Bool("json"), quiet: c.Bool("quiet"), token: field.token}
	out.head(why)
	o := race.Options{OneByOne: oneByOne, NoIdentity: c.Bool("no-identity"), Compared: out.compared, Sampled: out.sampled}
	if path := c.String("output"); path != "" {
		o.Save = func(r *race.Report) error { return saveRace(path, r) }
	} else if before != nil {
		o.Save = func(r *race.Report) error { return saveRace(c.String("resume"), r) }
	}
	err = race.Run(c.Context, field.contestants, r, o)
	if err != nil && !errors.Is(err, pack.ErrNotEqual) {
		if errors.Is(err, context.Canceled) && o.Save != nil && len(r.Rounds) > 0 {
			err = cli.WithHint(err, fmt.Sprintf("go on with: nrun race --resume %s", orElse(c.String("output"), c.String("resume"))))
		}
		return err
	}
	if err == nil && o.Save != nil { // also where there was no round to hold
		err = o.Save(r)
	}
	if plot := c.String("plot"); plot != "" && err == nil {
		err = writeRacePlot(plot, r)
	}
	if c.Bool("json") {
		return errors.Join(err, cli.JSON(c.App.Writer, r))
	}
	if err != nil {
		return err
	}
	return out.summary()
}

// newRace reads the flags and, with --resume, the file. In the report there are
// definitions, rounds and tokens, as far as they were given; the file's take
// their place if they were not.
func newRace(c *urfave.Context) (r, before *race.Report, err error) {
	r = &race.Report{Schema: race.Schema, Version: cli.Build(), Machine: race.ReadMachine(), Wanted: c.Int("rounds")}
	if r.Wanted < 1 || r.Wanted > race.MaxRounds {
		return nil, nil, cli.Usagef("", "--rounds %d is outside 1 to %d", r.Wanted, race.MaxRounds)
	}
	if r.Contestants, err = definitions(c); err != nil {
		return nil, nil, err
	}
	if c.IsSet("resume") {
		path := c.String("resume")
		if before, err = race.Read(path); err != nil {
			return nil, nil, err
		}
		if !c.IsSet("rounds") {
			r.Wanted = before.Wanted
		}
		if len(r.Contestants) == 0 {
			// A file is data, which others may have made: it starts no program.
			for _, d := range before.Contestants {
				if d.Server != "" || d.Bench != "" {
					return nil, nil, cli.Usagef("if that is meant, give all contestants again: --run "+shellQuote(d.Text())+" …",
						"--resume %q: contestant %q starts a program", path, d.Name)
				}
			}
			r.Contestants = slices.Clone(before.Contestants)
		}
	}
	switch n := len(r.Contestants); {
	case n == 0:
		return nil, nil, cli.Usagef("nrun race --run 'vector: backend=cpu' --run 'plain: kernel=generic'", "no contestants: give --run, two times or more")
	case n == 1:
		return nil, nil, cli.Usagef("give a second --run", "one contestant alone is no race; nrun bench measures it")
	}
	for i, d := range r.Contestants {
		if slices.ContainsFunc(r.Contestants[:i], func(e race.Definition) bool { return e.Name == d.Name }) {
			return nil, nil, cli.Usagef("", "two contestants are called %q", d.Name)
		}
		if c.Bool("no-identity") && !d.SpeedOnly {
			return nil, nil, cli.Usagef("a rate of other tokens is the rate of something else; if it is meant: speed-only=yes in each --run",
				"--no-identity: contestant %q is not declared speed-only", d.Name)
		}
	}
	return r, before, nil
}

// definitions reads --run and --contestants.
func definitions(c *urfave.Context) ([]race.Definition, error) {
	var list []race.Definition
	for _, s := range c.StringSlice("run") {
		d, err := race.ParseDefinition(s)
		if err != nil {
			hint := "keys: " + strings.Join(race.Keys(), ", ")
			if e := (*race.KeyError)(nil); errors.As(err, &e) {
				if near := cli.Closest(e.Key, race.Keys()); near != "" {
					hint = fmt.Sprintf("did you mean %q?", near)
				}
			}
			return nil, cli.Usagef(hint, "--run %s", err)
		}
		list = append(list, d)
	}
	if !c.IsSet("contestants") {
		return list, nil
	}
	path := c.String("contestants")
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	more, err := race.ReadDefinitions(f)
	if err != nil {
		return nil, &pack.Error{Kind: pack.ErrCorrupt, File: path, Offset: -1, Found: err.Error(),
			Expected: "a JSON list of contestants", Hint: `[{"name": "plain"}, {"name": "drafted", "draft": "lookup"}]`}
	}
	return append(list, more...), nil
}

// raceOutput checks -o before anything is measured. A race that is there took
// long: it is gone on with, not begun anew by the same command typed again.
func raceOutput(c *urfave.Context) error {
	path := c.String("output")
	if path == "" {
		return nil
	}
	if err := outfile.Check(path); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil && path != c.String("resume") {
		return cli.Usagef(fmt.Sprintf("nrun race --resume %s goes on with it; remove it for a race of its own", path), "%q is there", path)
	}
	return nil
}

func saveRace(path string, r *race.Report) error {
	f, err := outfile.Create(path, 0)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := cli.JSON(f, r); err != nil {
		return err
	}
	return f.Commit()
}

// shellQuote quotes s for a shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
