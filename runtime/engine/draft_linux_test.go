package engine_test

import (
	"context"
	"fmt"
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

// BenchmarkDrafted compares drafted with plain decoding where a drafted token is
// right with a set probability. Beside the measured ratio stand the one that costs and
// probability give, (expected tokens of a pass) / (cost of a pass), and the one that
// costs and the passes that there were give. A pass of n drafted tokens costs n steps of
// the draft, the first with one token more if all before were right. One thread, in its own time; costs are measured
// before, between and after the two, as a machine's speed changes within minutes.
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
	tokens := 256
	if s := os.Getenv("NPACK_DRAFT_TOKENS"); s != "" {
		if tokens, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	target := load(b, modelFrom(b, "NPACK_DRAFT_TARGET", story.Container), o)
	draft := load(b, modelFrom(b, "NPACK_DRAFT_MODEL", storydraft.Container), o)
	prompt := []int32{10, 20, 30, 40, 50, 60, 70, 80}
	window := len(prompt) + tokens
	both := min(target.Config().Vocab, draft.Config().Vocab)
	e := engine.New(target, 0)

	targetTimer, draftTimer := newTimer(b, target, window/2), newTimer(b, draft, window/2)
	plain := session(b, e, window)
	want, _ := ask(b, plain, engine.Request{Prompt: prompt, MaxTokens: tokens}) // also warms up
	text := slices.Concat(prompt, want.ids)
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
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var spent [2]time.Duration
				passes, steps := 0, 0
				var stats engine.DraftStats
				var pass [engine.MaxDraft + 1]float64 // the sum of as many passes as of each length
				var token, pair float64               // of the draft, likewise
				costs := func() {
					for _, n := range lengths {
						pass[n] += targetTimer.time(b, n+1)
					}
					token += draftTimer.time(b, 1)
					pair += draftTimer.time(b, 2)
				}
				for b.Loop() {
					costs()
					for i, s := range []*engine.Session{session(b, e, window), session(b, e, window)} {
						if i == 1 {
							costs()
							by := model(b, &guided{draft, text, right, rand.New(rand.NewPCG(uint64(b.N), 1))}, window, both)
							if err := s.Draft(by, length); err != nil {
								b.Fatal(err)
							}
							s.SetDraftClock(threadTime)
						}
						// The first token is chosen when the prompt has been read.
						var from time.Time
						res, err := s.Generate(b.Context(), engine.Request{Prompt: prompt, MaxTokens: tokens, Emit: func(c engine.Chunk) error {
							if from.IsZero() {
								from = threadTime()
							}
							return nil
						}})
						spent[i] += threadTime().Sub(from)
						if err != nil || !slices.Equal(res.IDs, want.ids) {
							b.Fatalf("another text: %v", err)
						}
						if i == 1 {
							passes, steps = passes+res.Passes, steps+res.Steps
							stats.Add(res.Draft)
						}
					}
					costs()
				}
				expect := func(n int) float64 {
					tokens, reach := 1.0, 1.0
					for range n {
						reach *= right
						tokens += reach
					}
					return tokens * pass[0] / (pass[n] + float64(n)*token + reach*(pair-token))
				}
				predicted := 0.0
				for _, n := range lengths[1:] {
					predicted = max(predicted, expect(n))
				}
				b.Logf("passes of %d tokens more, in the time of the first: %.2f; a step of the draft: %.3f, with two tokens %.3f", lengths, ratios(pass[:], pass[0]), token/pass[0], pair/pass[0])
				b.ReportMetric(float64(spent[0])/float64(spent[1]), "x-plain")
				b.ReportMetric(predicted, "x-predicted")
				if length > 0 { // what chance made of the probability
					drafting := float64(stats.Drafted)*token + float64(stats.Kept[length])*(pair-token)
					b.ReportMetric(float64(steps)*pass[0]/(float64(passes)*pass[length]+drafting), "x-by-passes")
				}
				b.ReportMetric(512*float64(passes)/float64(steps), "passes/512")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// timer times passes in the middle of a text.
type timer struct {
	in  backend.Instance
	run backend.Run
}

func newTimer(b *testing.B, in backend.Instance, depth int) timer {
	seq, err := in.NewSequence(depth + engine.MaxDraft + 1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { seq.Close() })
	t := timer{in, backend.Run{Seq: seq, Tokens: make([]int32, depth)}}
	if err := in.Forward(b.Context(), []backend.Run{t.run}); err != nil {
		b.Fatal(err)
	}
	t.run.Logits = make([]float32, (engine.MaxDraft+1)*in.Config().Vocab)
	for i := range engine.MaxDraft + 1 {
		t.run.Want = append(t.run.Want, i)
	}
	return t
}

// time is that of some passes of n tokens, in ns.
func (t timer) time(b *testing.B, n int) float64 {
	depth := t.run.Seq.Len()
	r := backend.Run{Seq: t.run.Seq, Tokens: t.run.Tokens[:n], Want: t.run.Want[:n], Logits: t.run.Logits[:n*t.in.Config().Vocab]}
	var spent time.Duration
	for i := range 4 {
		start := threadTime()
		if err := t.in.Forward(b.Context(), []backend.Run{r}); err != nil {
			b.Fatal(err)
		}
		if i > 0 { // the first warms up
			spent += threadTime().Sub(start)
		}
		if err := r.Seq.Truncate(depth); err != nil {
			b.Fatal(err)
		}
	}
	return float64(spent)
}

func ratios(x []float64, one float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / one
	}
	return out
}
