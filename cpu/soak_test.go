package cpu_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"npack/cpu"
	"npack/internal/simulation"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/testdata/story"
)

// TestSoak lets several chats go on for the time that NPACK_SOAK names ("20m"),
// or two seconds: turns of random length, resets, cancelled answers, instances
// that come and go with other threads, kernels and caches. At random points the
// logits must be the reference's, bit for bit, for the text so far. The process's
// memory must not grow. `make soak` runs it for 20 minutes.
func TestSoak(t *testing.T) {
	if err := (cpu.Backend{}).Check(); err != nil {
		t.Skip(err)
	}
	total := 2 * time.Second
	if s := os.Getenv("NPACK_SOAK"); s != "" {
		var err error
		if total, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	m := simulation.Open(t, story.Container)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &soak{t: t, m: m, rng: rand.New(rand.NewPCG(seed, 0)), judges: map[string]backend.Instance{}}
	var settled int64 // resident memory after a quarter of the time
	for start := time.Now(); time.Since(start) < total; {
		s.instance()
		if settled == 0 && time.Since(start) > total/4 {
			settled = resident(t)
		}
	}
	end := resident(t)
	t.Logf("%d turns, %d tokens, %d cancelled, %d logits vectors compared; resident memory %d KiB after a quarter, %d KiB at the end",
		s.turns, s.tokens, s.cancelled, s.compared, settled>>10, end>>10)
	if total > time.Minute && (s.compared == 0 || s.cancelled == 0) {
		t.Error("nothing was compared or cancelled")
	}
	// A leak of one buffer a turn would show; a garbage collector's mood must not.
	if total > time.Minute && float64(end) > 1.02*float64(settled) {
		t.Errorf("resident memory grew from %d to %d bytes", settled, end)
	}
	if n := runtime.NumGoroutine(); n > 50 {
		t.Errorf("%d goroutines are left", n)
	}
}

const window = 700 // tokens of a chat

type soak struct {
	t      *testing.T
	m      *ternary.Model
	rng    *rand.Rand
	judges map[string]backend.Instance // of the reference backend, by activations and KV

	turns, tokens, cancelled, compared int
}

// instance loads a backend by chance and holds a few chats with it.
func (s *soak) instance() {
	o := backend.Options{
		Activations: []backend.Activations{backend.Exact, backend.Int16, backend.Int8}[s.rng.IntN(3)],
		KV:          []backend.KV{backend.KVF16, backend.KVF32, backend.KVInt8}[s.rng.IntN(3)],
	}
	way := fmt.Sprint(o.Activations, o.KV)
	judge := s.judges[way]
	if judge == nil {
		judge = s.load(reference.Backend{}, o) // kept: it is no leak
		// Nor is its rotary table, which has all its size from here on.
		seq, err := judge.NewSequence(window)
		if err != nil {
			s.t.Fatal(err)
		}
		seq.Close()
		s.judges[way] = judge
	}
	o.Threads = 1 + s.rng.IntN(4)
	in := s.load(cpu.Backend{}, o)
	defer in.Close()
	e := engine.New(in, 1+s.rng.IntN(200))
	for range 2 {
		s.chat(e, in, judge)
	}
}

func (s *soak) load(b backend.Backend, o backend.Options) backend.Instance {
	in, err := b.Load(context.Background(), s.m, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return in
}

// chat is a few turns in one session, some of them cancelled.
func (s *soak) chat(e *engine.Engine, in, judge backend.Instance) {
	session, err := e.NewSession(window)
	if err != nil {
		s.t.Fatal(err)
	}
	defer session.Close()
	for range 1 + s.rng.IntN(4) {
		prompt := append([]int32(nil), session.Tokens()...)
		if s.rng.IntN(5) == 0 {
			prompt = prompt[:s.rng.IntN(len(prompt)+1)] // the user edits an earlier turn
		}
		for range 1 + s.rng.IntN(60) {
			prompt = append(prompt, int32(s.rng.IntN(s.m.Vocab)))
		}
		n := 1 + s.rng.IntN(60)
		if len(prompt)+n > session.Window() {
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		stopAt := -1
		if s.rng.IntN(4) == 0 {
			stopAt = s.rng.IntN(n + 1)
			if stopAt == n {
				cancel() // before it began
			}
		}
		said := 0
		res, err := session.Generate(ctx, engine.Request{Prompt: prompt, MaxTokens: n, Emit: func(engine.Chunk) error {
			if said++; said == stopAt {
				cancel()
			}
			return nil
		}})
		cancel()
		if err != nil {
			s.t.Fatal(err)
		}
		s.turns++
		s.tokens += len(res.IDs)
		if res.Finish == engine.FinishCancelled {
			s.cancelled++
		}
		if s.rng.IntN(8) == 0 {
			s.compare(session.Tokens(), len(prompt), in, judge)
		}
	}
}

// compare holds the answer, which came from a cache with a history, to the
// judge's choices, and both to the same logits for the whole text at once.
func (s *soak) compare(ids []int32, prompt int, in, judge backend.Instance) {
	if len(ids) < prompt { // cancelled in the prompt
		return
	}
	got, want := s.logits(in, ids, prompt), s.logits(judge, ids, prompt)
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			s.t.Fatalf("%+v, %d tokens: logit %d is %g, the reference's %g", in.Options(), len(ids), i, got[i], want[i])
		}
	}
	for i, id := range ids[prompt:] {
		if best := simulation.Argmax(want[i*s.m.Vocab:][:s.m.Vocab]); best != id {
			s.t.Fatalf("%+v, %d tokens: token %d is %d, the reference's %d", in.Options(), len(ids), prompt+i, id, best)
		}
	}
	s.compared++
}

// logits returns those after each token of ids from the prompt's last on.
func (s *soak) logits(in backend.Instance, ids []int32, prompt int) []float32 {
	seq, err := in.NewSequence(len(ids))
	if err != nil {
		s.t.Fatal(err)
	}
	defer seq.Close()
	r := backend.Run{Seq: seq, Tokens: ids}
	for i := prompt - 1; i < len(ids); i++ {
		r.Want = append(r.Want, i)
	}
	r.Logits = make([]float32, len(r.Want)*s.m.Vocab)
	if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
		s.t.Fatal(err)
	}
	return r.Logits
}

// resident is the process's memory once garbage is collected, 0 where the
// system does not tell.
func resident(t *testing.T) (n int64) {
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "VmRSS:") {
			fmt.Sscanf(line, "VmRSS: %d", &n)
		}
	}
	return n << 10
}
