package cpu_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
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

// judging is set for the process that TestSoak asks for the reference's logits.
// It is one of its own, since the memory of the other is watched: the reference
// leaves megabytes to the garbage collector with every text.
const judging = "NPACK_SOAK_JUDGE"

// question is a text of a soak; its answers are the logits after each token from
// the prompt's last on.
type question struct {
	Options backend.Options
	IDs     []int32
	Prompt  int // tokens
}

// answer is one of them: its checksum and the token chosen.
type answer struct {
	Sum  [sha256.Size]byte
	Best int32
}

// TestSoakJudge answers questions on standard input.
func TestSoakJudge(t *testing.T) {
	if os.Getenv(judging) == "" {
		t.Skip("is for TestSoak")
	}
	m := simulation.Open(t, story.Container)
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	instances := map[string]backend.Instance{}
	var logits []float32
	for {
		var q question
		if err := in.Decode(&q); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		way := fmt.Sprint(q.Options.Activations, q.Options.KV)
		if instances[way] == nil {
			instances[way] = load(t, m, reference.Backend{}, q.Options)
		}
		var answers []answer
		logits, answers = ask(t, instances[way], q, logits)
		if err := out.Encode(answers); err != nil {
			t.Fatal(err)
		}
	}
}

// startJudge returns a function that asks a new process of TestSoakJudge.
func startJudge(t *testing.T) func(q question) []answer {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^TestSoakJudge$")
	cmd.Env, cmd.Stderr = append(os.Environ(), judging+"=1"), os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	})
	to, from := gob.NewEncoder(stdin), gob.NewDecoder(stdout)
	return func(q question) (answers []answer) {
		if err := errors.Join(to.Encode(q), from.Decode(&answers)); err != nil {
			t.Fatal(err)
		}
		return answers
	}
}

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
	s := &soak{t: t, m: m, rng: rand.New(rand.NewPCG(seed, 0)), window: 700, judge: startJudge(t)}
	if testing.Short() {
		s.window = 100 // the reference takes long for more, and longer under the race detector
	}
	// The least resident memory in each quarter of the time: the runtime keeps half a
	// megabyte of free pages for each processor at one time and none at another.
	least := [4]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	var all int64
	var looked time.Time
	for start := time.Now(); time.Since(start) < total; {
		s.instance()
		if now := time.Since(start); total > time.Minute && now < total && time.Since(looked) > total/200 {
			var own int64
			own, all = resident(t)
			least[4*now/total] = min(least[4*now/total], own)
			looked = time.Now()
		}
	}
	t.Logf("%d turns, %d tokens, %d cancelled, %d logits vectors compared", s.turns, s.tokens, s.cancelled, s.compared)
	if total > time.Minute && (s.compared == 0 || s.cancelled == 0) {
		t.Error("nothing was compared or cancelled")
	}
	// In the first quarter it settles. A leak of one buffer a turn would show.
	if total > time.Minute && slices.Contains(least[:], math.MaxInt64) {
		t.Error("a quarter of the time went by without a look at the memory")
	} else if total > time.Minute {
		t.Logf("least resident memory in each quarter of the time %d KiB, with files %d KiB at last", []int64{least[0] >> 10, least[1] >> 10, least[2] >> 10, least[3] >> 10}, all>>10)
		if float64(least[3]-least[1]) > 0.02*float64(all) {
			t.Errorf("resident memory grew from %d to %d bytes, of %d with files", least[1], least[3], all)
		}
	}
	if n := runtime.NumGoroutine(); n > 50 {
		t.Errorf("%d goroutines are left", n)
	}
}

type soak struct {
	t      *testing.T
	m      *ternary.Model
	rng    *rand.Rand
	window int // tokens of a chat
	judge  func(q question) []answer
	logits []float32 // memory to use again

	turns, tokens, cancelled, compared int
}

// instance loads a backend by chance and holds a few chats with it.
func (s *soak) instance() {
	o := backend.Options{
		Activations: []backend.Activations{backend.Exact, backend.Int16, backend.Int8}[s.rng.IntN(3)],
		KV:          []backend.KV{backend.KVF16, backend.KVF32, backend.KVInt8}[s.rng.IntN(3)],
	}
	o.Threads = 1 + s.rng.IntN(4)
	in := load(s.t, s.m, cpu.Backend{}, o)
	defer in.Close()
	e := engine.New(in, 1+s.rng.IntN(200))
	for range 2 {
		s.chat(e, in)
	}
}

func load(t *testing.T, m *ternary.Model, b backend.Backend, o backend.Options) backend.Instance {
	in, err := b.Load(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// chat is a few turns in one session, some of them cancelled.
func (s *soak) chat(e *engine.Engine, in backend.Instance) {
	session, err := e.NewSession(s.window)
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
			s.compare(session.Tokens(), len(prompt), in)
		}
	}
}

// compare holds the answer, which came from a cache with a history, to the
// judge's choices, and both to the same logits for the whole text at once.
func (s *soak) compare(ids []int32, prompt int, in backend.Instance) {
	if len(ids) < prompt { // cancelled in the prompt
		return
	}
	q := question{in.Options(), ids, prompt}
	var got []answer
	s.logits, got = ask(s.t, in, q, s.logits)
	want := s.judge(q)
	if !slices.Equal(got, want) {
		s.t.Fatalf("%+v, %d tokens, %d of the prompt: logits and choices %v, the reference's %v", q.Options, len(ids), prompt, got, want)
	}
	for i, id := range ids[prompt:] {
		if want[i].Best != id {
			s.t.Fatalf("%+v, %d tokens: token %d is %d, the reference's %d", q.Options, len(ids), prompt+i, id, want[i].Best)
		}
	}
	s.compared++
}

// ask returns in's answers; logits is memory to use again.
func ask(t *testing.T, in backend.Instance, q question, logits []float32) ([]float32, []answer) {
	seq, err := in.NewSequence(len(q.IDs))
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	r := backend.Run{Seq: seq, Tokens: q.IDs}
	for i := q.Prompt - 1; i < len(q.IDs); i++ {
		r.Want = append(r.Want, i)
	}
	vocab := in.Config().Vocab
	logits = slices.Grow(logits[:0], len(r.Want)*vocab)[:len(r.Want)*vocab]
	r.Logits = logits
	if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
		t.Fatal(err)
	}
	answers := make([]answer, len(r.Want))
	var bits []byte
	for i := range answers {
		bits = bits[:0]
		for _, v := range logits[i*vocab:][:vocab] {
			bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(v))
		}
		answers[i] = answer{sha256.Sum256(bits), simulation.Argmax(logits[i*vocab:][:vocab])}
	}
	return logits, answers
}

// resident is the process's own memory once garbage is collected, and all that it
// has with pages of files, which the model and the code are in: the system drops those
// and reads them again as it likes. It is 0 where the system does not tell.
func resident(t *testing.T) (own, all int64) {
	own = math.MaxInt64
	for range 5 { // workers that were told to end still hold their memory for a moment
		debug.FreeOSMemory()
		time.Sleep(20 * time.Millisecond)
		data, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return 0, 0
		}
		for line := range strings.Lines(string(data)) {
			var n int64
			if _, err := fmt.Sscanf(line, "RssAnon: %d", &n); err == nil {
				own = min(own, n<<10)
			} else if _, err := fmt.Sscanf(line, "VmRSS: %d", &n); err == nil {
				all = n << 10
			}
		}
	}
	return own, all
}
