package engine_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"npack/internal/simulation"
	"npack/pack/formats"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/runtime/identity"
	"npack/ternary"
	"npack/testdata/battery"
	"npack/testdata/story"
	"npack/testdata/storydraft"
)

// threadTime is what this thread has run, so that other programs do not count.
func threadTime() time.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Unix(t.Unix())
}

// modelFrom opens the model that an environment variable names, or data.
func modelFrom(b *testing.B, variable string, data []byte) *ternary.Model {
	path := os.Getenv(variable)
	if path == "" {
		return simulation.Open(b, data)
	}
	f, err := formats.Open(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f.Model()
}

// guided is a draft model whose likeliest token is, with a probability, the one that
// follows in text.
type guided struct {
	backend.Instance
	text  []int32
	right float64
	rng   *rand.Rand
}

func (g *guided) Forward(ctx context.Context, runs []backend.Run) error {
	from := make([]int, len(runs))
	for i, r := range runs {
		from[i] = r.Seq.Len()
	}
	if err := g.Instance.Forward(ctx, runs); err != nil {
		return err
	}
	for i, r := range runs {
		for j, at := range r.Want {
			id := g.text[min(from[i]+at+1, len(g.text)-1)]
			if g.rng.Float64() >= g.right {
				id = 5 - min(id, 5) + min(id, 1) // some other token
			}
			r.Logits[j*g.Config().Vocab+int(id)] = 1e9
		}
	}
	return nil
}

// contest lets plain and drafted decoding take turns, token by token, with passes that
// tell what these cost: a machine's speed changes within seconds. One thread does all,
// in its own time.
type contest struct {
	target, draft *aside
	length        int // of a draft, 0 for the controller

	plain, drafted time.Duration
	steps, passes  int // of drafted decoding
	stats          engine.DraftStats

	pass  mean    // a plain pass
	cycle [2]mean // a draft and a pass over it; with one token more for the draft to read
}

type mean struct {
	sum time.Duration
	n   int
}

func (m *mean) add(d time.Duration) { m.sum, m.n = m.sum+d, m.n+1 }
func (m *mean) of() float64         { return float64(m.sum) / float64(m.n) }

// aside does passes in the middle of a text of its own.
type aside struct {
	in  backend.Instance
	run backend.Run
}

func newAside(b *testing.B, in backend.Instance, depth int) *aside {
	seq, err := in.NewSequence(depth + engine.MaxDraft + 1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { seq.Close() })
	a := &aside{in, backend.Run{Seq: seq, Tokens: make([]int32, depth)}}
	if err := in.Forward(b.Context(), []backend.Run{a.run}); err != nil {
		b.Fatal(err)
	}
	a.run.Logits = make([]float32, (engine.MaxDraft+1)*in.Config().Vocab)
	for i := range engine.MaxDraft + 1 {
		a.run.Want = append(a.run.Want, i)
	}
	return a
}

// pass does one over n tokens.
func (a *aside) pass(b *testing.B, n int) {
	depth := a.run.Seq.Len()
	r := backend.Run{Seq: a.run.Seq, Tokens: a.run.Tokens[:n], Want: a.run.Want[:n], Logits: a.run.Logits[:n*a.in.Config().Vocab]}
	if err := a.in.Forward(b.Context(), []backend.Run{r}); err != nil {
		b.Fatal(err)
	}
	if err := r.Seq.Truncate(depth); err != nil {
		b.Fatal(err)
	}
}

// sample measures costs, in turns too.
func (c *contest) sample(b *testing.B, turn int) {
	start := threadTime()
	if turn%2 == 0 || c.length == 0 {
		c.target.pass(b, 1)
		c.pass.add(threadTime().Sub(start))
		return
	}
	more := turn / 2 % 2
	for i := range c.length {
		c.draft.pass(b, 1+more*max(0, 1-i))
	}
	c.target.pass(b, c.length+1)
	c.cycle[more].add(threadTime().Sub(start))
}

// run answers r plainly and drafted by d.
func (c *contest) run(b *testing.B, e *engine.Engine, d engine.Drafter, r engine.Request) []int32 {
	window := len(r.Prompt) + r.MaxTokens
	var res [2]engine.Result
	var next [2]func() (int32, bool)
	for i := range next {
		s := session(b, e, window)
		if i == 1 {
			if err := s.Draft(d, c.length); err != nil {
				b.Fatal(err)
			}
			s.SetDraftClock(threadTime)
		}
		var stop func()
		next[i], stop = iter.Pull(tokens(b, s, r, &res[i]))
		defer stop()
		next[i]() // when the prompt has been read
	}
	for turn := range r.MaxTokens {
		c.sample(b, turn)
		for i := range next {
			i ^= turn % 2
			from := threadTime()
			next[i]()
			if t := threadTime().Sub(from); i == 0 {
				c.plain += t
			} else {
				c.drafted += t
			}
		}
	}
	if !slices.Equal(res[0].IDs, res[1].IDs) {
		b.Fatal("another text")
	}
	c.steps, c.passes = c.steps+res[1].Steps, c.passes+res[1].Passes
	c.stats.Add(res[1].Draft)
	return res[0].IDs
}

// tokens is the answer of s to r, token by token; it is res at the end.
func tokens(b *testing.B, s *engine.Session, r engine.Request, res *engine.Result) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		r.Emit = func(c engine.Chunk) error {
			if !yield(c.ID) {
				return context.Canceled
			}
			return nil
		}
		var err error
		if *res, err = s.Generate(b.Context(), r); err != nil {
			b.Error(err)
		}
	}
}

// report tells how drafted decoding did beside plain, and how by the costs and the
// passes that there were it should have: a pass whose draft had to be shorter, at an
// answer's end, counts as a cycle in part.
func (c *contest) report(b *testing.B) {
	b.ReportMetric(float64(c.plain)/float64(c.drafted), "x-plain")
	if c.length > 0 {
		cycles := float64(c.stats.Drafted) / float64(c.length)
		more := float64(c.stats.Kept[c.length]) * (c.cycle[1].of() - c.cycle[0].of())
		expected := float64(c.steps) * c.pass.of() / ((float64(c.passes)-cycles)*c.pass.of() + cycles*c.cycle[0].of() + more)
		b.ReportMetric(expected, "x-by-passes")
		b.ReportMetric(100*(float64(c.plain)/float64(c.drafted)/expected-1), "%off")
		b.ReportMetric(c.cycle[0].of()/c.pass.of(), "cycle/plain")
	}
	b.ReportMetric(float64(c.steps)/float64(c.passes), "tokens/pass")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDrafted compares drafted with plain decoding where a drafted token is
// right with a set probability.
//
// NPACK_DRAFT_TARGET and NPACK_DRAFT_MODEL name other models than story and its
// draft, NPACK_DRAFT_TOKENS how many tokens to make, NPACK_DRAFT_ACTIVATIONS
// their width:
//
//	NPACK_DRAFT_TARGET=dist/synth-8b-random.bin NPACK_DRAFT_MODEL=dist/synth-0.6b-random.bin \
//	  go test ./runtime/engine -run '^$' -bench Drafted/right -benchtime 1x
//
// With the story models also each class of the battery is drafted as it is.
func BenchmarkDrafted(b *testing.B) {
	runtime.LockOSThread() // for the answers, too, which iter.Pull starts
	defer runtime.UnlockOSThread()
	var o backend.Options
	var err error
	if s := os.Getenv("NPACK_DRAFT_ACTIVATIONS"); s != "" {
		if o.Activations, err = backend.ParseActivations(s); err != nil {
			b.Fatal(err)
		}
	}
	many := 256
	if s := os.Getenv("NPACK_DRAFT_TOKENS"); s != "" {
		if many, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	target := load(b, modelFrom(b, "NPACK_DRAFT_TARGET", story.Container), o)
	draft := load(b, modelFrom(b, "NPACK_DRAFT_MODEL", storydraft.Container), o)
	both := min(target.Config().Vocab, draft.Config().Vocab)
	e := engine.New(target, 0)

	bench := func(name string, depth, length int, run func(b *testing.B, c *contest)) {
		label := strconv.Itoa(length)
		if length == 0 {
			label = "auto"
		}
		b.Run(name+"/length="+label, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			c := contest{target: newAside(b, target, depth), draft: newAside(b, draft, depth), length: length}
			for b.Loop() {
				run(b, &c)
			}
			c.report(b)
		})
	}

	r := engine.Request{Prompt: []int32{10, 20, 30, 40, 50, 60, 70, 80}, MaxTokens: many}
	window := len(r.Prompt) + many
	want, _ := ask(b, session(b, e, window), r) // also warms up
	text := slices.Concat(r.Prompt, want.ids)
	for _, right := range []float64{0, 0.5, 0.8, 0.95, 1} {
		for _, length := range []int{0, 1, 3, 7} {
			if right == 0 && length > 0 {
				continue
			}
			bench(fmt.Sprintf("right=%v", right), window/2, length, func(b *testing.B, c *contest) {
				g := &guided{draft, text, right, rand.New(rand.NewPCG(uint64(c.passes), 1))}
				if ids := c.run(b, e, model(b, g, window, both), r); !slices.Equal(ids, want.ids) {
					b.Fatal("another text")
				}
			})
		}
	}
	if os.Getenv("NPACK_DRAFT_TARGET")+os.Getenv("NPACK_DRAFT_MODEL") != "" {
		return
	}
	prompts, err := identity.ParseBattery(battery.Story)
	if err != nil {
		b.Fatal(err)
	}
	for _, class := range identity.Classes {
		for _, length := range []int{0, 1, 3, 7} {
			bench("class="+class, 64, length, func(b *testing.B, c *contest) {
				for _, p := range prompts.Prompts {
					if p.Class == class {
						c.run(b, e, model(b, draft, len(p.IDs)+many, both), engine.Request{Prompt: p.IDs, MaxTokens: many})
					}
				}
			})
		}
	}
}
