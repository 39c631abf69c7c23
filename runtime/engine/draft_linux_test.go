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
	"npack/ternary"
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
	f, err := formats.Open(path)
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

// BenchmarkDrafted compares drafted with plain decoding where a drafted token is
// right with a set probability. Beside the measured ratio stand the one that costs and
// probability give, (expected tokens of a pass) / (cost of a pass), and the one that
// costs and the passes that there were give. A pass of n drafted tokens costs n steps of
// the draft, the first with one token more if all before were right.
//
// One thread does all, in its own time. As a machine's speed changes within seconds,
// plain and drafted decoding and the passes that tell costs take turns, token by token.
//
// NPACK_DRAFT_TARGET and NPACK_DRAFT_MODEL name other models than story and its
// draft, NPACK_DRAFT_TOKENS how many tokens to make, NPACK_DRAFT_ACTIVATIONS
// their width:
//
//	NPACK_DRAFT_TARGET=dist/synth-8b-random.bin NPACK_DRAFT_MODEL=dist/synth-0.6b-random.bin \
//	  go test ./runtime/engine -run '^$' -bench Drafted -benchtime 1x
func BenchmarkDrafted(b *testing.B) {
	runtime.LockOSThread()
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
	request := engine.Request{Prompt: []int32{10, 20, 30, 40, 50, 60, 70, 80}, MaxTokens: many}
	window := len(request.Prompt) + many
	both := min(target.Config().Vocab, draft.Config().Vocab)
	e := engine.New(target, 0)

	passes, steps := newTimer(b, target, window/2), newTimer(b, draft, window/2)
	want, _ := ask(b, session(b, e, window), request) // also warms up
	text := slices.Concat(request.Prompt, want.ids)
	for _, right := range []float64{0, 0.5, 0.8, 0.95, 1} {
		for _, length := range []int{0, 1, 3, 7} {
			if right == 0 && length > 0 {
				continue
			}
			name, lengths := strconv.Itoa(length), []int{0, length}
			if length == 0 {
				name, lengths = "auto", []int{0, 1, 2, 3, 4, 5, 6, 7}
			}
			b.Run(fmt.Sprintf("right=%v/length=%s", right, name), func(b *testing.B) {
				runtime.LockOSThread() // for the answers, too, which iter.Pull starts
				defer runtime.UnlockOSThread()
				passes.reset()
				steps.reset()
				var spent [2]time.Duration
				var sum engine.Timings
				var stats engine.DraftStats
				for b.Loop() {
					s := []*engine.Session{session(b, e, window), session(b, e, window)}
					by := model(b, &guided{draft, text, right, rand.New(rand.NewPCG(uint64(b.N), 1))}, window, both)
					if err := s[1].Draft(by, length); err != nil {
						b.Fatal(err)
					}
					s[1].SetDraftClock(threadTime)
					var res [2]engine.Result
					var next [2]func() (int32, bool)
					for i := range next {
						var stop func()
						next[i], stop = iter.Pull(tokens(b, s[i], request, &res[i]))
						defer stop()
						next[i]() // when the prompt has been read
					}
					for step := range many {
						passes.time(b, 1+lengths[step%len(lengths)])
						steps.time(b, 1+step%2)
						for i := range next {
							i ^= step % 2
							from := threadTime()
							next[i]()
							spent[i] += threadTime().Sub(from)
						}
					}
					for i := range res {
						if !slices.Equal(res[i].IDs, want.ids) {
							b.Fatal("another text")
						}
					}
					sum.Passes, sum.Steps = sum.Passes+res[1].Passes, sum.Steps+res[1].Steps
					stats.Add(res[1].Draft)
				}
				plain, token, pair := passes.cost(1), steps.cost(1), steps.cost(2)
				expect := func(n int) float64 {
					tokens, reach := 1.0, 1.0
					for range n {
						reach *= right
						tokens += reach
					}
					return tokens * plain / (passes.cost(n+1) + float64(n)*token + reach*(pair-token))
				}
				predicted := 0.0
				var costs []float64
				for _, n := range lengths {
					costs = append(costs, passes.cost(n+1)/plain)
					if n > 0 {
						predicted = max(predicted, expect(n))
					}
				}
				b.Logf("passes of %d tokens more, in the time of the first: %.2f; a step of the draft: %.3f, with two tokens %.3f", lengths, costs, token/plain, pair/plain)
				b.ReportMetric(float64(spent[0])/float64(spent[1]), "x-plain")
				b.ReportMetric(predicted, "x-predicted")
				if length > 0 { // what chance made of the probability
					drafting := float64(stats.Drafted)*token + float64(stats.Kept[length])*(pair-token)
					b.ReportMetric(float64(sum.Steps)*plain/(float64(sum.Passes)*passes.cost(length+1)+drafting), "x-by-passes")
				}
				b.ReportMetric(512*float64(sum.Passes)/float64(sum.Steps), "passes/512")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// timer times passes in the middle of a text.
type timer struct {
	in    backend.Instance
	run   backend.Run
	spent [engine.MaxDraft + 2]time.Duration // by tokens of a pass
	n     [engine.MaxDraft + 2]int
}

func newTimer(b *testing.B, in backend.Instance, depth int) *timer {
	seq, err := in.NewSequence(depth + engine.MaxDraft + 1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { seq.Close() })
	t := &timer{in: in, run: backend.Run{Seq: seq, Tokens: make([]int32, depth)}}
	if err := in.Forward(b.Context(), []backend.Run{t.run}); err != nil {
		b.Fatal(err)
	}
	t.run.Logits = make([]float32, (engine.MaxDraft+1)*in.Config().Vocab)
	for i := range engine.MaxDraft + 1 {
		t.run.Want = append(t.run.Want, i)
	}
	return t
}

func (t *timer) reset() {
	clear(t.spent[:])
	clear(t.n[:])
}

// time does a pass of n tokens.
func (t *timer) time(b *testing.B, n int) {
	depth := t.run.Seq.Len()
	r := backend.Run{Seq: t.run.Seq, Tokens: t.run.Tokens[:n], Want: t.run.Want[:n], Logits: t.run.Logits[:n*t.in.Config().Vocab]}
	start := threadTime()
	if err := t.in.Forward(b.Context(), []backend.Run{r}); err != nil {
		b.Fatal(err)
	}
	t.spent[n] += threadTime().Sub(start)
	t.n[n]++
	if err := r.Seq.Truncate(depth); err != nil {
		b.Fatal(err)
	}
}

// cost is the mean time of a pass of n tokens, in ns.
func (t *timer) cost(n int) float64 { return float64(t.spent[n]) / float64(t.n[n]) }
