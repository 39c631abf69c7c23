package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/cpu"
	"npack/internal/cli"
	"npack/internal/machine"
	"npack/pack"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/runtime/reference"
	"npack/ternary"
)

// backends is the table of what can run a model, best first.
var backends = []backendEntry{
	{"cpu", "vector instructions of the processor", true, func(kernel string) (backend.Backend, error) {
		b := cpu.Backend{Kernel: kernel}
		return b, b.Check()
	}},
	{"reference", "plain Go, the definition of right; slow", false, func(kernel string) (backend.Backend, error) {
		if kernel != "" {
			return nil, errors.New("it has no --cpu-kernel")
		}
		return reference.Backend{}, nil
	}},
}

type backendEntry struct {
	name, about string
	checks      bool                                         // loading looks at all weights, also those still in a file
	make        func(kernel string) (backend.Backend, error) // an error says why this machine cannot
}

// chooseBackend returns the backend of that name, or for "" the first that
// this machine can run, and why it was chosen. kernel names the processor's
// kernels, "" being the best.
func chooseBackend(name, kernel string) (e *backendEntry, b backend.Backend, why string, err error) {
	var names []string
	for i := range backends {
		e := &backends[i]
		names = append(names, e.name)
		if name != "" && e.name != name {
			continue
		}
		if b, err = e.make(kernel); err == nil {
			if name != "" {
				return e, b, "asked for with --backend", nil
			}
			return e, b, "the fastest that this program has for this machine", nil
		}
		if name != "" || kernel != "" {
			return nil, nil, "", cli.Usagef("nrun info lists backends and kernels", "backend %q: %s", e.name, err)
		}
	}
	if name != "" {
		return nil, nil, "", cli.Usagef("backends: "+strings.Join(names, ", "), "unknown backend %q", name)
	}
	return nil, nil, "", err
}

// runFlags are the flags of every command that runs a model.
func runFlags() []urfave.Flag {
	return append(memoryFlags(),
		&urfave.StringFlag{Name: "backend", Usage: "`NAME` of what runs the model; see nrun info"},
		&urfave.StringFlag{Name: "cpu-kernel", Usage: "`NAME` of the processor's kernels; never changes the text", DefaultText: "the best"},
		&urfave.IntFlag{Name: "threads", Aliases: []string{"t"}, Usage: "use `N` threads; never changes the text", DefaultText: "what this process may use"},
		&urfave.StringFlag{Name: "activations", Value: "exact", Usage: "`WIDTH` of activations: exact, int16 or int8"},
	)
}

// memoryFlags are those that decide how much memory a run takes.
func memoryFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.IntFlag{Name: "context", Aliases: []string{"c"}, Usage: "room for `N` tokens, prompt and answer together", DefaultText: "the model's, or what fits"},
		&urfave.StringFlag{Name: "kv", Value: "f16", Usage: "`TYPE` of the key/value cache: f16, f32 or int8"},
	}
}

// jsonFlag and quietFlag are shared by all commands.
func jsonFlag() urfave.Flag { return &urfave.BoolFlag{Name: "json", Usage: "print one JSON object"} }
func quietFlag(usage string) urfave.Flag {
	return &urfave.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: usage}
}

// runner is a model that is ready to run.
type runner struct {
	*packOf
	backend.Instance
	Engine  *engine.Engine
	Backend string
	Window  window
	Load    time.Duration // opening, checking and preparing the weights
}

// open checks the command's flags, then the weights, and loads the model as
// they say. The caller closes the runner, and the pack after it.
func (p *packOf) open(c *urfave.Context) (*runner, error) {
	start := time.Now()
	var o backend.Options
	var err error
	if o.Activations, err = backend.ParseActivations(c.String("activations")); err != nil {
		return nil, cli.Usagef("", "--activations: %s", err)
	}
	if o.KV, err = backend.ParseKV(c.String("kv")); err != nil {
		return nil, cli.Usagef("", "--kv: %s", err)
	}
	if o.Threads = c.Int("threads"); c.IsSet("threads") && (o.Threads < 1 || o.Threads > 1024) {
		return nil, cli.Usagef("", "--threads %d is outside 1 to 1024", o.Threads)
	}
	asked, err := askedContext(c)
	if err != nil {
		return nil, err
	}
	if o.Threads == 0 {
		o.Threads = machine.ReadThreads().Use
	}
	e, b, _, err := chooseBackend(c.String("backend"), c.String("cpu-kernel"))
	if err != nil {
		return nil, err
	}
	m, err := p.Model()
	if err != nil {
		return nil, err
	}
	w, err := chooseWindow(asked, &m.Config, engine.WeightBytes(m), o.KV, machine.ReadMemory().Available)
	if err != nil {
		return nil, err
	}
	inst, err := p.load(c, e, b, o)
	if err != nil {
		return nil, err
	}
	return &runner{packOf: p, Instance: inst, Engine: engine.New(inst, 0), Backend: b.Name(), Window: w, Load: time.Since(start)}, nil
}

// load loads the model, which is checked on the way: by the backend itself where
// it looks at every weight, so that a file is read once, else by a walk before.
func (p *packOf) load(c *urfave.Context, e *backendEntry, b backend.Backend, o backend.Options) (backend.Instance, error) {
	if err := p.runnable(); err != nil {
		return nil, err
	}
	if !e.checks {
		if err := p.Validate(c, o.Threads); err != nil {
			return nil, err
		}
	}
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer bar.Done()
	o.Progress = func(done, total int64) { bar.Show("loading weights", done, total) }
	inst, err := b.Load(c.Context, p.src.Model(), o)
	if err == nil {
		return inst, nil
	}
	// What is wrong with a file, and where, its walk says better.
	if e.checks && c.Context.Err() == nil && !errors.Is(err, ternary.ErrFault) {
		if err := p.Validate(c, o.Threads); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%q: %w", p.Name, p.src.Place(err))
}

// Close unloads the model; the pack stays open.
func (r *runner) Close() error { return r.Instance.Close() }

// window is the context that was chosen, and why.
type window struct {
	Tokens int    `json:"tokens"`
	Why    string `json:"why"`
}

// usable is the part of free memory that a run may plan with; a tenth is left
// to others and to what the plan does not know of.
func usable(free int64) int64 { return free - free/10 }

// askedContext reads -c; 0 means that it was not given.
func askedContext(c *urfave.Context) (int, error) {
	n := c.Int("context")
	if c.IsSet("context") && n < 1 {
		return 0, cli.Usagef("", "-c %d: a context has at least 1 token", n)
	}
	return n, nil
}

// chooseWindow returns the context asked for, which must be possible, or, for
// 0, one that fits: all the model was made for or, where memory is short, less.
// weights and free are in bytes; free is 0 if unknown.
func chooseWindow(asked int, cfg *ternary.Config, weights int64, kv backend.KV, free int64) (window, error) {
	most := engine.ModelContext(cfg)
	largest, why := most, "all that the model was made for"
	if free > 0 {
		if n := engine.LargestContext(cfg, weights, kv, usable(free)); n < largest {
			largest = n
			why = fmt.Sprintf("what fits into 9/10 of the free memory, %s, beside %s of weights; the model was made for %d", cli.Size(free), cli.Size(weights), most)
		}
	}
	needs := func(context int) string { return cli.Size(engine.NewPlan(cfg, weights, kv, context).Total()) }
	switch {
	case asked > most:
		return window{}, cli.Usagef(fmt.Sprintf("use -c %d or less", most), "-c %d: the model was made for %d tokens", asked, most)
	case largest == 0:
		return window{}, cli.WithHint(fmt.Errorf("the model needs %s of memory; %s free, of which %s may be used: %w", needs(max(asked, 1)), cli.Size(free), cli.Size(usable(free)), pack.ErrNoSpace),
			"nrun plan shows what needs it")
	case asked > largest:
		return window{}, cli.WithHint(fmt.Errorf("a context of %d tokens needs %s of memory; %s free, of which %s may be used: %w", asked, needs(asked), cli.Size(free), cli.Size(usable(free)), pack.ErrNoSpace),
			fmt.Sprintf("use -c %d or less, or a smaller cache: --kv int8", largest))
	case asked > 0:
		return window{asked, "asked for with -c"}, nil
	}
	return window{largest, why}, nil
}

// contextHint adds the next thing to type to the error for a prompt that does
// not fit.
func contextHint(err error, m *ternary.Config) error {
	var e *engine.ContextError
	if !errors.As(err, &e) {
		return err
	}
	most := engine.ModelContext(m)
	if e.Prompt < most {
		return cli.WithHint(err, fmt.Sprintf("raise it with -c %d (at most %d), or shorten the prompt", min(most, e.Prompt+256), most))
	}
	return cli.WithHint(err, fmt.Sprintf("the model was made for %d tokens: shorten the prompt", most))
}
