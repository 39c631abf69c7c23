package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	urfave "github.com/urfave/cli/v2"

	"npack/cpu"
	"npack/cuda"
	"npack/gpu"
	"npack/internal/cli"
	"npack/internal/machine"
	"npack/pack"
	"npack/runtime/backend"
	"npack/runtime/reference"
)

// backends is the table of what can run a model, best first.
var backends = []backendEntry{
	{"cuda", "an NVIDIA card, through its driver", true, openCUDA},
	{"cpu", "vector instructions of the processor", true, func(c choice) (backend.Backend, error) {
		if err := c.notCard(); err != nil {
			return nil, err
		}
		b := cpu.Backend{Kernel: c.kernel, ZeroCopy: c.zeroCopy}
		return b, b.Check()
	}},
	{"reference", "plain Go, the definition of right; slow", false, func(c choice) (backend.Backend, error) {
		return reference.Backend{}, cmp.Or(c.notProcessor(), c.notCard())
	}},
}

type backendEntry struct {
	name, about string
	checks      bool                                    // loading looks at all weights, also those still in a file
	make        func(c choice) (backend.Backend, error) // an error says why this machine cannot
}

// choice is what was asked for.
type choice struct {
	name   string // of a backend; "" or auto: the first that this machine can run
	kernel string // of the processor's kernels, "" being the best
	device int    // a card, or cuda.Any
	limit  int64  // bytes of a card's memory, 0 being what there is

	zeroCopy bool // the processor's kernels work on weights as they lie in the file
}

// notProcessor is the error of a backend without the flags of backend cpu, notCard of
// one without those of cuda.
func (c choice) notProcessor() error {
	switch {
	case c.kernel != "":
		return cli.Usagef("", "it has no --cpu-kernel")
	case c.zeroCopy:
		return cli.Usagef("", "it has no --zero-copy")
	}
	return nil
}

func (c choice) notCard() error {
	if c.device != cuda.Any {
		return cli.Usagef("", "it has no --device")
	}
	return nil
}

// auto is the name of the first backend that works.
const auto = "auto"

// backendFlags are those of [runFlags] of which there is one value in a run.
func backendFlags() []urfave.Flag {
	return append(choiceFlags(),
		&urfave.StringFlag{Name: "kv", Value: "f16", Usage: "`TYPE` of the key/value cache: f16, f32 or int8"},
		memoryLimitFlag())
}

// choiceFlags are those of a [choice].
func choiceFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "backend", Value: auto, Usage: "`NAME` of what runs the model: auto, cuda, cpu or reference; see nrun info"},
		&urfave.IntFlag{Name: "device", Usage: "use card `N` of backend cuda", DefaultText: "the only one"},
		&urfave.StringFlag{Name: "cpu-kernel", Usage: "`NAME` of the processor's kernels; never changes the text", DefaultText: "the best"},
		&urfave.BoolFlag{Name: "zero-copy", Usage: "use weights where the file is mapped, keep no copy; never changes the text; see nrun info for kernels that can"},
	}
}

// readChoice reads [choiceFlags] and --memory-limit.
func readChoice(c *urfave.Context) (choice, error) {
	x := choice{name: c.String("backend"), kernel: c.String("cpu-kernel"), zeroCopy: c.Bool("zero-copy"), device: cuda.Any}
	if c.IsSet("device") {
		if x.device = c.Int("device"); x.device < 0 {
			return x, cli.Usagef("nrun info lists cards", "--device %d is negative", x.device)
		}
	}
	if c.IsSet("memory-limit") {
		var err error
		if x.limit, err = parseSize(c.String("memory-limit")); err != nil {
			return x, cli.Usagef("", "--memory-limit: %s", err)
		}
	}
	return x, nil
}

// chooseBackend returns the backend that a command's flags ask for.
func chooseBackend(c *urfave.Context) (*chosen, error) {
	x, err := readChoice(c)
	if err != nil {
		return nil, err
	}
	return x.choose()
}

// chosen is a backend that this machine can run.
type chosen struct {
	*backendEntry
	backend backend.Backend
	why     string
	not     string // a better backend that was not asked for and cannot run, and why; or ""
}

// choose returns what was asked for, or the first backend that this machine can
// run. A flag that only one backend has asks for that one.
func (c choice) choose() (*chosen, error) {
	out := &chosen{why: "asked for with --backend"}
	if c.name == "" || c.name == auto {
		c.name, out.why = "", "the fastest that this program has for this machine"
		switch {
		case c.device != cuda.Any:
			c.name, out.why = "cuda", "asked for with --device"
		case c.kernel != "":
			c.name, out.why = "cpu", "asked for with --cpu-kernel"
		case c.zeroCopy:
			c.name, out.why = "cpu", "asked for with --zero-copy"
		}
	}
	names := []string{auto}
	for i := range backends {
		e := &backends[i]
		names = append(names, e.name)
		if c.name != "" && e.name != c.name {
			continue
		}
		b, err := e.make(c)
		if err == nil {
			out.backend, out.backendEntry = b, e
			return out, nil
		}
		if c.name != "" {
			if e.name == "cuda" || errors.Is(err, cpu.ErrZeroCopy) {
				return nil, fmt.Errorf("backend %q: %w", e.name, err)
			}
			return nil, cli.Usagef("nrun info lists backends and kernels", "backend %q: %s", e.name, err)
		}
		// A program that cannot drive a card has nothing to say about it.
		if out.not == "" && (e.name != "cuda" || cuda.Built) {
			out.not = fmt.Sprintf("backend %s: %s", e.name, err)
		}
	}
	return nil, cli.Usagef("backends: "+strings.Join(names, ", "), "unknown backend %q", c.name)
}

// note says on which backend a model runs although a better one was built in.
func (c *chosen) note(x *urfave.Context) {
	if c.not != "" && !x.Bool("quiet") {
		fmt.Fprintf(x.App.ErrWriter, "%s: note: %s; %s runs instead\n", x.App.Name, cli.OneLine(c.not), c.name)
	}
}

// opened are the cards that were asked for. They stay open until the program ends, so
// that a command may choose its backend more than once and each card is proven once.
var opened struct {
	sync.Mutex
	list []*openedCard
}

// openedCard is what came of opening a card.
type openedCard struct {
	device int
	limit  int64 // of its memory
	card   *card
	err    error // why there is none
}

// card is a card as a backend.
type card struct {
	*gpu.Backend
	cuda.Card
}

// openCUDA opens a card and compares what it computes with the reference.
func openCUDA(c choice) (backend.Backend, error) {
	if err := c.notProcessor(); err != nil {
		return nil, err
	}
	if cards, _ := cuda.Cards(); len(cards) == 1 && c.device == cuda.Any {
		c.device = cards[0].Index
	}
	opened.Lock()
	defer opened.Unlock()
	i := slices.IndexFunc(opened.list, func(o *openedCard) bool { return o.device == c.device && o.limit == c.limit })
	if i < 0 {
		i = len(opened.list)
		o := &openedCard{device: c.device, limit: c.limit}
		o.card, o.err = openCard(c)
		opened.list = append(opened.list, o)
	}
	if o := opened.list[i]; o.err != nil {
		return nil, o.err
	}
	return opened.list[i].card, nil
}

func openCard(c choice) (*card, error) {
	d, err := cuda.Open(c.device)
	if err != nil {
		return nil, err
	}
	b, err := gpu.New("cuda", d, gpu.Options{MemoryLimit: c.limit})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &card{b, d.Card()}, nil
}

// Kernels names the processor that the kernels in use are compiled for.
func (c *card) Kernels() string { return fmt.Sprintf("sm_%d", c.Capability) }

// Name returns "cuda".
func (c *card) Name() string { return c.Backend.Name() }

// kernelsOf returns the name of the kernels that b runs, "" if it has but one set.
func kernelsOf(b backend.Backend) string {
	if b, ok := b.(interface{ Kernels() string }); ok {
		return b.Kernels()
	}
	return ""
}

// runsOf is kernelsOf for reports, which say that weights are used in place.
func runsOf(b backend.Backend) string {
	if b, ok := b.(cpu.Backend); ok && b.ZeroCopy {
		return b.Kernels() + ", zero-copy"
	}
	return kernelsOf(b)
}

// deviceOf names what b runs on.
func deviceOf(b backend.Backend) string {
	if c, ok := b.(*card); ok {
		return c.Card.Name
	}
	return machine.ReadCPU().Model
}

// deviceError gives an error of a backend, which internal/cli knows nothing of,
// its kind and what the user can do.
func deviceError(err error) error {
	var kind error
	switch {
	case errors.Is(err, gpu.ErrMemory):
		kind = pack.ErrNoSpace
	case errors.Is(err, cuda.ErrUnavailable), errors.Is(err, gpu.ErrDiffers):
		kind = pack.ErrUnsupported
	case errors.Is(err, cpu.ErrZeroCopy):
		return cli.WithHint(&kinded{err, pack.ErrUnsupported}, "leave out --zero-copy, which takes a native container and kernels that nrun info says can do it")
	case errors.Is(err, cpu.ErrInvalid):
		return cli.WithHint(&kinded{err, pack.ErrCorrupt}, "npack verify names the place; fetch the file again")
	}
	hint := cli.Hint(err)
	var driver *cuda.Error
	var several *cuda.ChoiceError
	switch {
	case errors.As(err, &driver) && driver.Advice() != "":
		hint = driver.Advice()
	case errors.As(err, &several):
		return cli.Usagef("choose one with --device N", "%s", err)
	case errors.Is(err, gpu.ErrDiffers):
		hint = "please report this line, all of it; --backend cpu gives the right bits"
	case kind == pack.ErrUnsupported && hint == "":
		hint = "--backend auto takes what there is; nrun info lists backends"
	}
	if kind == nil && hint == "" {
		return err
	}
	if kind == nil {
		kind = err
	}
	return cli.WithHint(&kinded{err, kind}, hint)
}

// kinded is an error with a kind that its text does not show.
type kinded struct {
	error
	kind error
}

func (k *kinded) Unwrap() []error { return []error{k.error, k.kind} }
