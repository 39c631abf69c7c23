package engine_test

import (
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

// BenchmarkDrafted compares drafted with plain decoding where a drafted token is
// right with a set probability: the draft model runs, and what it says is
// replaced. Beside the measured ratio stand the one that costs and probability
// give, (expected tokens of a pass) / (cost of a pass), and the one that costs and
// the passes that there were give. One thread, in its own time.
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

	// Costs, in the middle of the text.
	var pass [engine.MaxDraft + 1]float64
	for n := range pass {
		pass[n] = passTime(b, target, window/2, n+1)
	}
	token := passTime(b, draft, window/2, 1)
	b.Logf("passes of 1 to 8 tokens, in the time of the first, %v: %.2f; a drafted token: %.3f", time.Duration(pass[0]), ratios(pass[:], pass[0]), token/pass[0])

	plain := session(b, e, window)
	want, _ := ask(b, plain, engine.Request{Prompt: prompt, MaxTokens: tokens}) // also warms up
	text := slices.Concat(prompt, want.ids)
	for _, right := range []float64{0, 0.5, 0.8, 0.95, 1} {
		for _, length := range []int{0, 1, 3, 7} {
			if right == 0 && length > 0 {
				continue
			}
			expect := func(n int) float64 {
				tokens, reach := 1.0, 1.0
				for range n {
					reach *= right
					tokens += reach
				}
				return tokens * pass[0] / (pass[n] + float64(n)*token)
			}
			predicted, name := expect(length), strconv.Itoa(length)
			if length == 0 {
				name = "auto"
				for n := 1; n <= engine.MaxDraft; n++ {
					predicted = max(predicted, expect(n))
				}
			}
			b.Run(fmt.Sprintf("right=%v/length=%s", right, name), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var spent [2]time.Duration
				passes, steps, drafted := 0, 0, 0
				for b.Loop() {
					for i, s := range []*engine.Session{session(b, e, window), session(b, e, window)} {
						if i == 1 {
							by := &oracle{texts: [][]int32{text}, right: right, rng: rand.New(rand.NewPCG(uint64(b.N), 1)), first: model(b, draft, window, both)}
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
							passes, steps, drafted = passes+res.Passes, steps+res.Steps, drafted+res.Draft.Drafted
						}
					}
				}
				b.ReportMetric(float64(spent[0])/float64(spent[1]), "x-plain")
				b.ReportMetric(predicted, "x-predicted")
				if length > 0 { // what chance made of the probability
					costs := float64(passes)*pass[length] + float64(drafted)*token
					b.ReportMetric(float64(steps)*pass[0]/costs, "x-by-passes")
				}
				b.ReportMetric(512*float64(passes)/float64(steps), "passes/512")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// passTime is the shortest of some passes of n tokens at a depth, in ns.
func passTime(b *testing.B, in backend.Instance, depth, n int) float64 {
	seq, err := in.NewSequence(depth + n)
	if err != nil {
		b.Fatal(err)
	}
	defer seq.Close()
	ids, want := make([]int32, max(depth, n)), make([]int, n)
	for i := range want {
		want[i] = i
	}
	r := backend.Run{Seq: seq, Tokens: ids[:depth]}
	if err := in.Forward(b.Context(), []backend.Run{r}); err != nil {
		b.Fatal(err)
	}
	r = backend.Run{Seq: seq, Tokens: ids[:n], Want: want, Logits: make([]float32, n*in.Config().Vocab)}
	best := time.Hour
	for range 5 {
		start := threadTime()
		if err := in.Forward(b.Context(), []backend.Run{r}); err != nil {
			b.Fatal(err)
		}
		best = min(best, threadTime().Sub(start))
		if err := seq.Truncate(depth); err != nil {
			b.Fatal(err)
		}
	}
	return float64(best)
}

func ratios(x []float64, one float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / one
	}
	return out
}
