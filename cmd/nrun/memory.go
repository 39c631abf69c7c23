package main

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/machine"
	"npack/pack"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/ternary"
)

func memoryLimitFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "memory-limit", Usage: "refuse what would take more than `SIZE` (\"6GB\", \"6GiB\", bytes) of memory in all", DefaultText: "9/10 of what is free"}
}

// window is the context that was chosen, and why.
type window struct {
	Tokens int    `json:"tokens"`
	Why    string `json:"why"`
}

// need is what decides how long a context is: what is asked for, and what there
// is to take.
type need struct {
	asked   int    // tokens; 0: as many as fit
	limit   int64  // bytes, of --memory-limit; 0 without
	program int64  // bytes that this process takes without a model
	most    int64  // bytes that a model may take; below 0: unknown
	draft   *draft // that has to fit beside the model, or nil
	expand  string // what to do about a coded transport that is open; "" if none is

	of           string // whose memory it is: a card's name, "" for the machine's
	room, source string // of most, to people
}

// runPages is about what a run touches of the program's own pages that planning
// has not, in bytes: code and tables of the forward pass (linux/amd64).
const runPages = 2 << 20

// usable is the part of free memory that a run may plan with; a tenth is left
// to others and to what the plan does not know of.
func usable(free int64) int64 { return free - free/10 }

// readNeed reads -c and --memory-limit, and asks the machine, or the card that b
// is, how much there is. What the models that are open already have in memory is
// planned as weights: it counts neither as the program's nor as taken.
func readNeed(c *urfave.Context, b backend.Backend, open ...*packOf) (need, error) {
	n := need{asked: c.Int("context"), most: -1}
	var decoded int64
	for _, p := range open {
		if d := p.decoded(); d > 0 {
			decoded += d
			n.expand = fmt.Sprintf("npack expand %q makes a container, which is mapped and takes about %s less", p.src.Name(), cli.Size(d))
		}
	}
	if decoded > 0 { // what the decoder worked with goes; its pools with the second collection
		debug.FreeOSMemory()
		debug.FreeOSMemory()
	}
	card, onCard := b.(*card)
	if c.IsSet("context") && n.asked < 1 {
		return n, cli.Usagef("", "-c %d: a context has at least 1 token", n.asked)
	}
	if n.program, _ = machine.ProcessMemory(); n.program > 0 {
		n.program = max(0, n.program-decoded) + runPages
	}
	if onCard { // where the program takes nothing
		n.of, n.program = card.String(), 0
	}
	if c.IsSet("memory-limit") {
		var err error
		if n.limit, err = parseSize(c.String("memory-limit")); err != nil {
			return n, cli.Usagef("", "--memory-limit: %s", err)
		}
		n.within()
	} else if onCard {
		n.free(card.Info().Free)
	} else if free := machine.ReadMemory().Available; free > 0 {
		n.free(free + decoded)
	}
	return n, nil
}

// within sets most to what --memory-limit leaves beside the program.
func (n *need) within() {
	n.source = fmt.Sprintf("--memory-limit %s", cli.Size(n.limit))
	if n.program > 0 {
		n.source += fmt.Sprintf(", of which the program takes %s", cli.Size(n.program))
	}
	n.room = n.source
	n.most = max(0, n.limit-n.program)
}

// free sets most to what may be taken of free bytes of memory.
func (n *need) free(bytes int64) {
	on := ""
	if n.of != "" {
		on = " on the card"
	}
	n.source = fmt.Sprintf("9/10 of the free memory%s, %s", on, cli.Size(bytes))
	n.room = fmt.Sprintf("%s free%s, of which %s may be used", cli.Size(bytes), on, cli.Size(usable(bytes)))
	n.most = usable(bytes)
}

// largest is the longest context that fits; 0 if none does.
func (n *need) largest(b backend.Backend, m *ternary.Model, o backend.Options) int {
	if n.most < 0 {
		return engine.ModelContext(&m.Config)
	}
	return engine.LargestContext(&m.Config, func(context int) bool { return n.takes(b, m, o, context) <= n.most })
}

// takes is what the model and its draft take with a context.
func (n *need) takes(b backend.Backend, m *ternary.Model, o backend.Options, context int) int64 {
	return engine.NewPlan(b, m, o, context).Total() + n.draft.bytes(b, o, m.Vocab, context)
}

// window returns the context asked for, which must be possible, or one that
// fits: all the model was made for or, where memory is short, less.
func (n *need) window(b backend.Backend, m *ternary.Model, o backend.Options) (window, error) {
	most, largest := engine.ModelContext(&m.Config), n.largest(b, m, o)
	takes := func(context int) string { return cli.Size(n.takes(b, m, o, context)) }
	switch {
	case n.asked > most:
		return window{}, cli.Usagef(fmt.Sprintf("use -c %d or less", most), "-c %d: the model was made for %d tokens", n.asked, most)
	case largest == 0:
		return window{}, cli.WithHint(fmt.Errorf("%s %s of memory; %s: %w", n.draft.needs(), takes(max(n.asked, 1)), n.room, pack.ErrNoSpace),
			orElse(n.expand, "nrun plan shows what needs it"))
	case n.asked > largest:
		hint := fmt.Sprintf("use -c %d or less", largest)
		if o.KV != backend.KVInt8 {
			hint += ", or a smaller cache: --kv int8"
		}
		if n.expand != "" {
			hint += "; " + n.expand
		}
		return window{}, cli.WithHint(fmt.Errorf("a context of %d tokens needs %s of memory; %s; the largest context that fits has %d tokens: %w",
			n.asked, takes(n.asked), n.room, largest, pack.ErrNoSpace), hint)
	case n.asked > 0:
		return window{n.asked, "asked for with -c"}, nil
	case largest < most:
		return window{largest, fmt.Sprintf("what fits into %s, beside %s of weights; the model was made for %d", n.source, cli.Size(engine.NewPlan(b, m, o, 0).Weights), most)}, nil
	}
	return window{most, "all that the model was made for"}, nil
}

// parseSize reads a number of bytes with an optional unit: "6GB", "1.5 GiB",
// "800M". Units without an i are decimal, as all that this program prints.
func parseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.ToLower(strings.TrimSpace(s[len(digits):]))
	unit = strings.TrimSuffix(unit, "b")
	base := 1000.0
	if binary, ok := strings.CutSuffix(unit, "i"); ok && binary != "" {
		unit, base = binary, 1024
	}
	power := map[string]int{"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
	p, known := power[unit]
	v, err := strconv.ParseFloat(digits, 64)
	if v *= math.Pow(base, float64(p)); err != nil || !known || !(v >= 1 && v < 1<<62) {
		return 0, errors.New("want a size such as 6GB, 1.5GiB, 800M or a number of bytes, found " + strconv.Quote(s))
	}
	return int64(v), nil
}
