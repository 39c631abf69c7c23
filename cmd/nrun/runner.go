package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/cpu"
	"npack/internal/cli"
	"npack/internal/machine"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/ternary"
)

// runFlags are the flags of every command that runs a model.
func runFlags() []urfave.Flag {
	return append(backendFlags(),
		&urfave.IntFlag{Name: "context", Aliases: []string{"c"}, Usage: "room for `N` tokens, prompt and answer together", DefaultText: "the model's, or what fits"},
		&urfave.IntFlag{Name: "threads", Aliases: []string{"t"}, Usage: "use `N` threads; never changes the text", DefaultText: "what this process may use"},
		&urfave.StringFlag{Name: "activations", Value: "exact", Usage: "`WIDTH` of activations: exact, int16 or int8"},
	)
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
	Kernels string // "" if the backend has but one set
	Device  string // the processor or card, as its maker calls it
	Window  window
	Draft   *draft        // nil without --draft
	Load    time.Duration // opening, checking and preparing the weights
}

// open checks the command's flags, then the weights, and loads the model as
// they say. The caller closes the runner, and the pack after it.
func (p *packOf) open(c *urfave.Context) (*runner, error) {
	x, err := readChoice(c)
	if err != nil {
		return nil, err
	}
	return p.openOn(c, x)
}

// openOn is open with a choice of its own.
func (p *packOf) openOn(c *urfave.Context, x choice) (*runner, error) {
	start := time.Now()
	o, err := runOptions(c)
	if err != nil {
		return nil, err
	}
	b, err := x.choose()
	if err != nil {
		return nil, err
	}
	b.note(c)
	if err := p.runnable(); err != nil {
		return nil, err
	}
	d, err := readDraft(c, p)
	if err != nil {
		return nil, err
	}
	r, err := p.openBoth(c, b, o, d)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	r.Load = time.Since(start)
	return r, nil
}

// openBoth makes room for the model and its draft, which may be nil, and loads
// them.
func (p *packOf) openBoth(c *urfave.Context, b *chosen, o backend.Options, d *draft) (*runner, error) {
	open := []*packOf{p}
	if d != nil {
		open = append(open, d.pack)
	}
	need, err := readNeed(c, b.backend, open...)
	if err != nil {
		return nil, err
	}
	need.draft = d
	w, err := need.window(b.backend, p.src.Model(), o)
	if err != nil {
		return nil, err
	}
	// What lives on Go's heap are a few buffers that grow with the text. As much
	// garbage again, which is the default, would be more than a plan may be off.
	debug.SetGCPercent(garbagePercent)
	inst, err := p.load(c, b, o)
	if err != nil {
		return nil, err
	}
	if err := d.load(c, b, o); err != nil {
		_ = inst.Close()
		return nil, fmt.Errorf("--draft: %w", err)
	}
	return &runner{packOf: p, Instance: inst, Engine: engine.New(inst, engine.ChunkOf(b.backend)), Backend: b.name, Kernels: runsOf(b.backend), Device: deviceOf(b.backend), Window: w, Draft: d}, nil
}

// runOptions reads the flags that say how a model is run.
func runOptions(c *urfave.Context) (o backend.Options, err error) {
	// A command without the flag runs what is proven.
	if o.Activations = backend.Exact; c.String("activations") != "" {
		o.Activations, err = backend.ParseActivations(c.String("activations"))
	}
	if err != nil {
		return o, cli.Usagef("", "--activations: %s", err)
	}
	if o.KV, err = backend.ParseKV(c.String("kv")); err != nil {
		return o, cli.Usagef("", "--kv: %s", err)
	}
	if o.Threads = c.Int("threads"); c.IsSet("threads") && (o.Threads < 1 || o.Threads > 1024) {
		return o, cli.Usagef("", "--threads %d is outside 1 to 1024", o.Threads)
	}
	if o.Threads == 0 {
		o.Threads = machine.ReadThreads().Use
	}
	return o, nil
}

// garbagePercent is how much garbage may pile up beside what is in use.
const garbagePercent = 20

// load loads the model, which is checked on the way: by the backend itself where
// it looks at every weight, so that a file is read once, else by a walk before.
func (p *packOf) load(c *urfave.Context, b *chosen, o backend.Options) (backend.Instance, error) {
	if !b.checks {
		if err := p.Validate(c, o.Threads); err != nil {
			return nil, err
		}
	}
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer bar.Done()
	o.Progress = func(done, total int64) { bar.Show("loading weights", done, total) }
	inst, err := b.backend.Load(c.Context, p.src.Model(), o)
	if err == nil {
		if _, ok := b.backend.(cpu.Backend); ok { // others may be more than a backend.Instance
			inst = &mapped{inst, p}
		}
		return inst, nil
	}
	// What is wrong with a file, and where, its walk says better.
	if b.checks && c.Context.Err() == nil && !errors.Is(err, ternary.ErrFault) && !errors.Is(err, cpu.ErrZeroCopy) {
		if err := p.Validate(c, o.Threads); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%q: %w", p.Name, p.src.Place(err))
}

// mapped is an instance that reads the map of p's file while it runs. What it finds
// there it tells of that file.
type mapped struct {
	backend.Instance
	p *packOf
}

func (m *mapped) Forward(ctx context.Context, runs []backend.Run) error {
	err := m.Instance.Forward(ctx, runs)
	switch {
	case errors.Is(err, ternary.ErrFault):
		return m.p.src.Place(err)
	case errors.Is(err, cpu.ErrInvalid):
		return fmt.Errorf("%q: %w", m.p.src.Name(), err)
	}
	return err
}

// Close unloads the model and its draft; the pack stays open.
func (r *runner) Close() error { return errors.Join(r.Draft.Close(), r.Instance.Close()) }

// holds refuses a text of so many tokens if the context, which -c or the memory
// decides, has less room.
func (r *runner) holds(tokens int, hint string) error {
	if tokens <= r.Window.Tokens {
		return nil
	}
	return cli.Usagef(hint, "the longest prompt and its answer have %d tokens; the context holds %d", tokens, r.Window.Tokens)
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
