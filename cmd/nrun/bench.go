package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/machine"
	"npack/internal/membw"
	"npack/pack"
	"npack/runtime/backend"
	"npack/runtime/engine"
)

func benchCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "bench",
		Usage:     "measure how fast the model reads prompts and makes tokens here",
		UsageText: "nrun bench [flags] [MODEL]",
		Description: "Prefill and decode are measured at each depth, that is with so many tokens in the cache\n" +
			"before, for each width of activations and number of threads. The measurements take turns,\n" +
			"in rounds, and so does a measurement of how fast the same number of threads reads memory:\n" +
			"decode can be no faster than its weights and cache are read.\n\n" + cli.Examples(
			"nrun bench",
			"nrun bench ~/models/pack --activations exact,int8 --threads 1,2",
			"nrun bench ~/models/pack --prefill 512 --depth 0,1024,8192 --plot speed.png"),
		Flags: slices.Concat([]urfave.Flag{
			&urfave.StringFlag{Name: "prefill", Value: "128,512", Usage: "read prompts of `N,…` tokens; 0: none"},
			&urfave.IntFlag{Name: "tokens", Aliases: []string{"n"}, Value: 64, Usage: "make `N` tokens, one by one; 0: none"},
			&urfave.StringFlag{Name: "depth", Value: "0", Usage: "do so behind `N,…` tokens"},
			&urfave.IntFlag{Name: "rounds", Value: 3, Usage: "do everything `N` times"},
			&urfave.StringFlag{Name: "activations", Value: "exact", Usage: "`WIDTH,…` of activations: exact, int16 or int8"},
			&urfave.StringFlag{Name: "threads", Aliases: []string{"t"}, Usage: "use `N,…` threads", DefaultText: "what this process may use"},
			&urfave.StringFlag{Name: "plot", Usage: "draw tokens/s by depth into `FILE`, .png or .svg"},
		}, backendFlags(), []urfave.Flag{quietFlag("no progress"), jsonFlag()}),
		Action: bench,
	}
}

// benchTest is one thing to measure.
type benchTest struct {
	decode        bool // else prefill
	tokens, depth int
}

// cached is the number of positions whose keys and values the test reads, one
// by one: those before each token, and its own.
func (t *benchTest) cached() int64 {
	n := int64(t.tokens)
	return n*int64(t.depth) + n*(n+1)/2
}

// benchConfig is one way to run the model.
type benchConfig struct {
	backend.Instance
	token int64              // bytes of weights that a token needs
	seqs  []backend.Sequence // by depth, so many tokens long
}

// benchmark is a run of the command.
type benchmark struct {
	tests   []benchTest
	depths  []int
	rounds  int
	options []backend.Options // of the configurations
	chunk   int               // tokens of a prompt that go through at once
	card    *card             // nil: the processor

	configs []benchConfig
	ids     []int32 // text for the longest sequence; what it says is all the same
	logits  []float32
	best    [1]backend.Ranked
	step    func() // tells the progress that a measurement is done
}

// yardstick is how long memory is read in each round and for each number of
// threads.
const yardstick = 150 * time.Millisecond

func bench(c *urfave.Context) error {
	x, err := newBenchmark(c)
	if err != nil {
		return err
	}
	if err := plotName(c); err != nil {
		return err
	}
	p, err := openPack(c)
	if err != nil {
		return err
	}
	defer p.Close()
	defer x.close()
	r, err := x.load(c, p)
	if err != nil {
		return err
	}
	if err := x.run(c, r); err != nil {
		return err
	}
	if plot := c.String("plot"); plot != "" {
		if err := writeBenchPlot(plot, r); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, r)
	}
	return printBench(c.App.Writer, r)
}

// newBenchmark reads the flags.
func newBenchmark(c *urfave.Context) (*benchmark, error) {
	x := &benchmark{rounds: c.Int("rounds")}
	if x.rounds < 1 {
		return nil, cli.Usagef("", "--rounds %d: there is at least 1", x.rounds)
	}
	if c.Int("tokens") < 0 {
		return nil, cli.Usagef("", "--tokens %d is negative", c.Int("tokens"))
	}
	prefill, err := intList(c, "prefill", 0, engine.MaxContext)
	if err != nil {
		return nil, err
	}
	if x.depths, err = intList(c, "depth", 0, engine.MaxContext); err != nil {
		return nil, err
	}
	for _, d := range x.depths {
		for _, n := range prefill {
			if n > 0 {
				x.tests = append(x.tests, benchTest{false, n, d})
			}
		}
		if n := c.Int("tokens"); n > 0 {
			x.tests = append(x.tests, benchTest{true, n, d})
		}
	}
	if len(x.tests) == 0 {
		return nil, cli.Usagef("give --prefill or --tokens above 0", "nothing to measure")
	}

	kv, err := backend.ParseKV(c.String("kv"))
	if err != nil {
		return nil, cli.Usagef("", "--kv: %s", err)
	}
	threads := []int{machine.ReadThreads().Use}
	if c.IsSet("threads") {
		if threads, err = intList(c, "threads", 1, 1024); err != nil {
			return nil, err
		}
	}
	for _, n := range threads {
		for _, s := range list(c, "activations") {
			a, err := backend.ParseActivations(s)
			if err != nil {
				return nil, cli.Usagef("", "--activations: %s", err)
			}
			x.options = append(x.options, backend.Options{Activations: a, KV: kv, Threads: n})
		}
	}
	return x, nil
}

// list returns the parts of a flag such as "exact,int8", each once.
func list(c *urfave.Context, name string) []string {
	var parts []string
	for s := range strings.SplitSeq(c.String(name), ",") {
		if s = strings.TrimSpace(s); !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	return parts
}

func intList(c *urfave.Context, name string, least, most int) ([]int, error) {
	var numbers []int
	for _, s := range list(c, name) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return nil, cli.Usagef("", "--%s: %q is no number from %d to %d", name, s, least, most)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// room is the number of tokens of the sequence of a depth.
func (x *benchmark) room(depth int) int {
	most := 0
	for _, t := range x.tests {
		most = max(most, t.tokens) // the tests are the same at each depth
	}
	return depth + most
}

// longest is the number of tokens of the longest sequence.
func (x *benchmark) longest() int { return x.room(slices.Max(x.depths)) }

// load loads the model in all configurations, and says so in a report.
func (x *benchmark) load(c *urfave.Context, p *packOf) (*benchReport, error) {
	chosen, err := chooseBackend(c)
	if err != nil {
		return nil, err
	}
	chosen.note(c)
	b := chosen.backend
	x.chunk = engine.ChunkOf(b)
	x.card, _ = b.(*card)
	need, err := readNeed(c, b)
	if err != nil {
		return nil, err
	}
	m, err := p.Model()
	if err != nil {
		return nil, err
	}
	if err := p.runnable(); err != nil {
		return nil, err
	}
	if most := engine.ModelContext(&m.Config); x.longest() > most {
		return nil, cli.Usagef("choose a smaller --depth, --prefill or --tokens", "a text of %d tokens: the model was made for %d", x.longest(), most)
	}

	r := newBenchReport(p.Name, b, x)
	total := int64(0)
	if x.card == nil {
		total = membw.DefaultSize
	}
	for _, o := range x.options {
		plan := engine.NewPlan(b, m, o, x.longest())
		total += plan.Total() - plan.Cache
		for _, d := range x.depths {
			total += engine.NewPlan(b, m, o, x.room(d)).Cache
		}
	}
	if need.most >= 0 && total > need.most {
		return nil, cli.WithHint(fmt.Errorf("%d configurations at %d depths need %s of memory at once; %s: %w",
			len(x.options), len(x.depths), cli.Size(total), need.room, pack.ErrNoSpace), "measure less at a time: fewer --activations, --threads or --depth")
	}

	for _, o := range x.options {
		inst, err := p.load(c, chosen, o)
		if err != nil {
			return nil, err
		}
		config := benchConfig{Instance: inst, token: engine.WeightBytes(m)}
		if planner, ok := b.(backend.Planner); ok {
			config.token = planner.Plan(m, o, 1, 1).Token
		}
		x.configs = append(x.configs, config)
	}
	r.KVPerToken = x.options[0].KV.BytesPerToken(&m.Config)

	rng := rand.New(rand.NewPCG(1, 2))
	x.ids, x.logits = make([]int32, x.longest()), make([]float32, m.Vocab)
	for i := range x.ids {
		x.ids[i] = rng.Int32N(int32(m.Vocab))
	}
	return r, nil
}

func (x *benchmark) close() {
	for _, config := range x.configs {
		for _, s := range config.seqs {
			_ = s.Close()
		}
		_ = config.Close()
	}
}

// run measures everything and fills the report.
func (x *benchmark) run(c *urfave.Context, r *benchReport) error {
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet")).Count("measurements")
	defer bar.Done()
	done, total := 0, int64(len(x.configs)*(len(x.depths)+x.rounds*len(x.tests)))
	x.step = func() { done++; bar.Show("measuring", int64(done), total) }

	r.LoadBefore = machine.LoadAverage()
	for i := range x.configs {
		if err := x.fill(c.Context, &x.configs[i]); err != nil {
			return err
		}
	}
	var memory *membw.Buffer
	if x.card == nil {
		memory = membw.New(membw.DefaultSize)
		defer memory.Close()
	}
	for round := range x.rounds + 1 {
		for i := range r.Bandwidth {
			if x.card != nil {
				r.Bandwidth[i].Rate.Samples = append(r.Bandwidth[i].Rate.Samples, x.card.Bandwidth())
				continue
			}
			s := memory.Read(r.Bandwidth[i].Threads, yardstick)
			r.Bandwidth[i].Rate.Samples = append(r.Bandwidth[i].Rate.Samples, s.BytesPerSecond)
		}
		if round == x.rounds { // memory is read before, between and after
			break
		}
		n := 0
		for _, t := range x.tests {
			for i := range x.configs {
				d, err := x.measure(c.Context, &x.configs[i], t)
				if err != nil {
					return err
				}
				r.Results[n].Rate.Samples = append(r.Results[n].Rate.Samples, float64(t.tokens)/d.Seconds())
				n++
				x.step()
			}
		}
	}
	r.LoadAfter = machine.LoadAverage()
	r.finish(x)
	return nil
}

// fill makes the sequences of a configuration, one for each depth. A first
// token goes through each, so that none is measured that has to make room.
func (x *benchmark) fill(ctx context.Context, config *benchConfig) error {
	for _, depth := range x.depths {
		room := x.room(depth)
		s, err := config.NewSequence(room)
		if err != nil {
			return err
		}
		config.seqs = append(config.seqs, s)
		if err := x.forward(ctx, config, s, x.ids[:room], false); err != nil {
			return err
		}
		if err := s.Truncate(depth); err != nil {
			return err
		}
		x.step()
	}
	return nil
}

// measure returns how long a test takes.
func (x *benchmark) measure(ctx context.Context, config *benchConfig, t benchTest) (time.Duration, error) {
	s := config.seqs[slices.Index(x.depths, t.depth)]
	ids := x.ids[t.depth:][:t.tokens]
	start := time.Now()
	err := x.forward(ctx, config, s, ids, t.decode)
	took := time.Since(start)
	return took, errors.Join(err, s.Truncate(t.depth))
}

// forward appends tokens, one by one or in chunks as the engine does, with the
// logits behind the last of each call that someone would look at.
func (x *benchmark) forward(ctx context.Context, config *benchConfig, s backend.Sequence, ids []int32, decode bool) error {
	chunk := x.chunk
	if decode {
		chunk = 1
	}
	run := []backend.Run{{Seq: s}}
	want := []int{0}
	for at := 0; at < len(ids); at += chunk {
		part := ids[at:min(at+chunk, len(ids))]
		run[0].Tokens, run[0].Want, run[0].Logits = part, nil, nil
		if at+len(part) == len(ids) || decode {
			want[0] = len(part) - 1
			run[0].Want, run[0].Logits = want, x.logits
		}
		if r, ok := config.Instance.(backend.Ranker); ok && run[0].Logits != nil { // as greedy choices are made
			run[0].Logits = nil
			if err := r.ForwardRanked(ctx, run, 1, x.best[:]); err != nil {
				return err
			}
			continue
		}
		if err := config.Forward(ctx, run); err != nil {
			return err
		}
	}
	return nil
}
