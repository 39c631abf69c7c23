package race

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/internal/machine"
	"npack/pack"
)

// runner is a contestant that a test makes up: token i of the answer to a prompt
// is the prompt's first token plus i.
type runner struct {
	name   string
	log    *[]string
	rates  []float64 // of its turns: tokens a second
	turns  int
	answer func(turn, prompt int, ids []int32) []int32 // changes an answer
	fail   func(turn int) error
	judged []int32
	silent bool // tells no tokens
}

func (r *runner) Turn(ctx context.Context, prompts []Prompt, tokens int) (*Turn, error) {
	*r.log = append(*r.log, r.name)
	turn := r.turns
	r.turns++
	if r.fail != nil {
		if err := r.fail(turn); err != nil {
			return nil, err
		}
	}
	t, err := PerPrompt(answerer{r, turn}).Turn(ctx, prompts, tokens)
	if r.silent {
		t.Answers = nil
	}
	return t, err
}

func (r *runner) Close() error {
	*r.log = append(*r.log, r.name+" closes")
	return nil
}

func (r *runner) Judge(_ context.Context, prompt, answer []int32) (margin, behind float64, err error) {
	r.judged = append(append([]int32{}, prompt...), answer...)
	return 0.25, 0.5, nil
}

type answerer struct {
	*runner
	turn int
}

func (a answerer) Answer(_ context.Context, prompt []int32, tokens int) ([]int32, Work, error) {
	var ids []int32
	for i := range int32(tokens) {
		ids = append(ids, prompt[0]+i)
	}
	if a.answer != nil {
		ids = a.answer(a.turn, int(prompt[0])/100, ids)
	}
	rate := 1.0
	if len(a.rates) > 0 {
		rate = a.rates[a.turn%len(a.rates)]
	}
	return ids, Work{Prompts: 1, PromptTokens: len(prompt), PrefillSeconds: float64(len(prompt)) / (10 * rate), Tokens: len(ids) - 1, DecodeSeconds: float64(len(ids)-1) / rate}, nil
}

// newRace describes a race of these, 3 prompts of 2 classes and 4 tokens.
func newRace(rounds int, runners ...*runner) ([]Contestant, *Report, *[]string) {
	log := &[]string{}
	r := &Report{Schema: Schema, Machine: Machine{OS: "plan9"}, Wanted: rounds, Tokens: 4,
		Prompts: []Prompt{{"chat", []int32{0, 7}}, {"code", []int32{100}}, {"chat", []int32{200}}}}
	var list []Contestant
	for _, x := range runners {
		x.log = log
		c := Contestant{Definition: Definition{Name: x.name}}
		c.Start = func(context.Context) (Runner, error) {
			*log = append(*log, x.name+" starts")
			return x, nil
		}
		r.Contestants = append(r.Contestants, c.Definition)
		list = append(list, c)
	}
	return list, r, log
}

// The first contestant changes from round to round, the warm-up is not among the
// samples, and everyone is started once.
func TestRun(t *testing.T) {
	list, r, log := newRace(3, &runner{name: "a", rates: []float64{1000, 20, 30, 22}}, &runner{name: "b", rates: []float64{0.001, 10, 10, 12}}, &runner{name: "c"})
	var told, saved []int
	o := Options{
		Compared: func(id *Identity) {
			if len(told) > 0 || id.Reference != "a" || id.Tokens != 12 {
				t.Errorf("%v, %+v", told, id)
			}
		},
		Sampled: func(n int, _ *machine.Clock, _ *Sample) { told = append(told, n) },
		Save:    func(r *Report) error { saved = append(saved, len(r.Rounds)); return nil },
	}
	if err := Run(t.Context(), list, r, o); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields("a-starts a b-starts b c-starts c a b c b c a c a b a-closes b-closes c-closes")
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "-", " ")
	}
	if diff := cmp.Diff(want, *log); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(told, []int{1, 1, 1, 2, 2, 2, 3, 3, 3}) || !slices.Equal(saved, []int{1, 2, 3}) || !r.Complete {
		t.Errorf("told %v, saved %v", told, saved)
	}
	if want := (Range{22, 20, 30}); !near(r.Summaries[0].Decode, want) {
		t.Errorf("decode of a: %+v, want %+v", r.Summaries[0].Decode, want)
	}
	if want := (Range{100, 100, 120}); !near(r.Summaries[1].Prefill, want) {
		t.Errorf("prefill of b: %+v, want %+v", r.Summaries[1].Prefill, want)
	}
	if got := r.Rounds[1].Samples[0].Classes; len(got) != 2 || got[0].Class != "chat" || got[0].Prompts != 2 || got[0].Tokens != 6 || got[1].Tokens != 3 || r.Rounds[1].Samples[0].Total.Prompts != 3 {
		t.Errorf("%+v", got)
	}
	// Of 3 pairs: decode, prefill, and decode of 2 classes.
	if len(r.Comparisons) != 12 || r.Comparisons[0].Overlap || !near(r.Comparisons[0].Ratio, Range{2, 22.0 / 12, 3}) || r.Comparisons[0].Faster != 3 {
		t.Errorf("%d: %+v", len(r.Comparisons), r.Comparisons[0])
	}
}

func near(a, b Range) bool {
	close := func(x, y float64) bool { return x > y*(1-1e-9) && x < y*(1+1e-9) }
	return close(a.Median, b.Median) && close(a.Min, b.Min) && close(a.Max, b.Max)
}

// wrong changes token 2 of the answers to prompt 1.
func wrong(_, prompt int, ids []int32) []int32 {
	if prompt == 1 {
		ids[2] = 77
	}
	return ids
}

// Tokens are compared before a rate counts; the reference is the first of ours
// that has to be equal, and says how near it was.
func TestIdentity(t *testing.T) {
	a, b, c, d := &runner{name: "a"}, &runner{name: "b"}, &runner{name: "c", answer: wrong}, &runner{name: "d", silent: true}
	list, r, _ := newRace(2, a, b, c, d)
	list[0].URL, list[3].Bench, list[3].SpeedOnly = "u", "b", true
	err := Run(t.Context(), list, r, Options{Sampled: func(int, *machine.Clock, *Sample) { t.Error("something was measured") }})
	if !errors.Is(err, pack.ErrNotEqual) || !strings.Contains(err.Error(), `contestant "c" makes other tokens than "b"`) || len(r.Rounds) != 0 {
		t.Errorf("%v, %d rounds", err, len(r.Rounds))
	}
	margin, behind := 0.25, 0.5
	want := Identity{Reference: "b", Tokens: 12, Results: []Compared{
		{Contestant: "a", Status: Equal, Tokens: 12, Differences: []Difference{}},
		{Contestant: "b", Status: Reference, Tokens: 12, Differences: []Difference{}},
		{Contestant: "c", Status: Differs, Tokens: 11, Differences: []Difference{{Prompt: 1, Class: "code", Position: 2, Got: 77, Want: 102, Margin: &margin, Behind: &behind}}},
		{Contestant: "d", Status: NotCompared, Differences: []Difference{}, SpeedOnly: true},
	}}
	for i := range r.Identity.Results {
		if s := &r.Identity.Results[i].SHA256; (*s == "") != (i == 3) {
			t.Errorf("digest %d: %q", i, *s)
		} else {
			*s = ""
		}
	}
	if diff := cmp.Diff(want, r.Identity); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(b.judged, []int32{100, 100, 101, 77}) {
		t.Errorf("judged %v", b.judged)
	}
}

func TestSpeedOnly(t *testing.T) {
	list, r, _ := newRace(1, &runner{name: "a", answer: wrong}, &runner{name: "b"})
	list[0].SpeedOnly = true
	if err := Run(t.Context(), list, r, Options{}); err != nil {
		t.Fatal(err)
	}
	if id := r.Identity; id.Reference != "b" || id.Results[0].Status != Differs || len(r.Rounds) != 1 {
		t.Errorf("%+v", id)
	}
	list, r, _ = newRace(1, &runner{name: "a", answer: wrong}, &runner{name: "b"})
	if err := Run(t.Context(), list, r, Options{NoIdentity: true}); err != nil || r.Identity.Reference != "" || r.Identity.Results[0].Status != NotCompared {
		t.Errorf("%v, %+v", err, r.Identity)
	}
}

// An external answer may end where the model ends the text, at once too; one of
// ours does not.
func TestShort(t *testing.T) {
	list, r, _ := newRace(1, &runner{name: "a"}, &runner{name: "b", answer: func(_, prompt int, ids []int32) []int32 { return ids[:4-prompt] }})
	list[1].URL = "u"
	if err := Run(t.Context(), list, r, Options{}); err != nil {
		t.Fatal(err)
	}
	if c := r.Identity.Results[1]; c.Status != Equal || c.Short != 2 || c.Tokens != 4+3+2 {
		t.Errorf("%+v", c)
	}
	list[1].URL = ""
	if err := Run(t.Context(), list, r, Options{}); !errors.Is(err, pack.ErrNotEqual) {
		t.Errorf("ours: %v", err)
	}
}

// Tokens that change during the race end it.
func TestFickle(t *testing.T) {
	list, r, _ := newRace(5, &runner{name: "a"}, &runner{name: "b", answer: func(turn, _ int, ids []int32) []int32 {
		if turn == 2 {
			ids[3]++
		}
		return ids
	}})
	err := Run(t.Context(), list, r, Options{})
	if !errors.Is(err, pack.ErrNotEqual) || !strings.Contains(err.Error(), `"b" answers prompt 0 otherwise than before, from token 3 on`) || len(r.Rounds) != 1 {
		t.Errorf("%v after %d rounds", err, len(r.Rounds))
	}
}

// Errors name the contestant; a race that ends early keeps its whole rounds and
// goes on from them.
func TestResume(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	list, r, _ := newRace(4, &runner{name: "a", rates: []float64{1, 2, 3, 4, 5}}, &runner{name: "b", fail: func(turn int) error {
		if turn == 3 { // of round 2, after the warm-up
			cancel()
			return ctx.Err()
		}
		return nil
	}})
	path := filepath.Join(t.TempDir(), "race.json")
	save := Options{Save: func(r *Report) error { return write(path, r) }}
	if err := Run(ctx, list, r, save); !errors.Is(err, context.Canceled) || len(r.Rounds) != 2 || r.Complete {
		t.Fatalf("%v after %d rounds", err, len(r.Rounds))
	}
	again, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, again); diff != "" {
		t.Fatal(diff)
	}
	kept := slices.Clone(again.Rounds)
	list, _, log := newRace(4, &runner{name: "a", rates: []float64{9}}, &runner{name: "b"})
	if err := Run(t.Context(), list, again, save); err != nil || !again.Complete || len(again.Rounds) != 4 || !cmp.Equal(again.Rounds[:2], kept) {
		t.Errorf("%v, %d rounds", err, len(again.Rounds))
	}
	if s := strings.Join(*log, " "); s != "a starts a b starts b a b b a a closes b closes" {
		t.Errorf("turns %q", s)
	}
	// Other tokens than before are another race.
	again.Rounds, again.Wanted = again.Rounds[:2], 4
	list, _, _ = newRace(4, &runner{name: "a", answer: wrong}, &runner{name: "b", answer: wrong})
	if err := Run(t.Context(), list, again, Options{}); !errors.Is(err, pack.ErrNotEqual) || !strings.Contains(err.Error(), "than in the rounds before") {
		t.Errorf("%v", err)
	}
	list, r, _ = newRace(4, &runner{name: "a"}, &runner{name: "b", fail: func(int) error { return errors.New("out of order") }})
	if err := Run(t.Context(), list, r, Options{}); err == nil || err.Error() != `contestant "b": out of order` {
		t.Errorf("%v", err)
	}
}

func TestOneByOne(t *testing.T) {
	list, r, log := newRace(1, &runner{name: "a"}, &runner{name: "b", answer: wrong})
	list[1].SpeedOnly = true
	if err := Run(t.Context(), list, r, Options{OneByOne: true}); err != nil {
		t.Fatal(err)
	}
	// The reference comes back to judge; each start of a round has a turn to warm up.
	want := "a starts a a closes b starts b b closes a starts a closes a starts a a a closes b starts b b b closes"
	if s := strings.Join(*log, " "); s != want {
		t.Errorf("turns %q, want %q", s, want)
	}
}

// A turn without a rate is an error, not an infinite one.
func TestNoRate(t *testing.T) {
	list, r, _ := newRace(1, &runner{name: "a"}, &runner{name: "b", answer: func(_, _ int, ids []int32) []int32 { return ids[:1] }})
	list[1].URL = "u"
	if err := Run(t.Context(), list, r, Options{}); err == nil || !strings.Contains(err.Error(), `contestant "b": 0 tokens behind the first ones`) {
		t.Errorf("%v", err)
	}
	// Of one class alone it may be.
	list, r, _ = newRace(1, &runner{name: "a"}, &runner{name: "b", answer: func(_, prompt int, ids []int32) []int32 {
		if prompt == 1 {
			return ids[:1]
		}
		return ids
	}})
	list[1].URL = "u"
	if err := Run(t.Context(), list, r, Options{}); err != nil || len(r.Comparisons) != 3 {
		t.Errorf("%v, %d comparisons", err, len(r.Comparisons))
	}
}

func TestSame(t *testing.T) {
	describe := func(change func(*Report)) *Report {
		_, r, _ := newRace(3, &runner{name: "a"}, &runner{name: "b"})
		change(r)
		return r
	}
	r := describe(func(*Report) {})
	for want, change := range map[string]func(*Report){
		"":                            func(r *Report) { r.Wanted, r.LoadBefore = 9, 3 },
		"another version of nrun: ":   func(r *Report) { r.Version = "v9" },
		"another machine: ":           func(r *Report) { r.Machine.Threads++ },
		"another tokens: 4, now 5":    func(r *Report) { r.Tokens++ },
		"another prompts: ":           func(r *Report) { r.Prompts[1].IDs = []int32{5} },
		"another number of contestan": func(r *Report) { r.Contestants = append(r.Contestants, Definition{Name: "c"}) },
		"another contestant: b:, now b: kernel=x":             func(r *Report) { r.Contestants[1].Kernel = "x" },
		"another contestant: b:, now b: (native, 17 bytes)":   func(r *Report) { r.Contestants[1].Format, r.Contestants[1].Bytes = "native", 17 },
		"another contestant: b:, now b: url=u speed-only=yes": func(r *Report) { r.Contestants[1].URL, r.Contestants[1].SpeedOnly = "u", true },
	} {
		if err := r.Same(describe(change)); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func ExampleDefinition_Text() {
	d, _ := ParseDefinition(`llama: server='llama-server -m "a b.gguf" --port {port}'`)
	fmt.Println(d.Text())
	// Output: llama: server='llama-server -m "a b.gguf" --port {port}' url=http://127.0.0.1:{port}
}
