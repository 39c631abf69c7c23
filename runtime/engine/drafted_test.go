package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"npack/cpu"
	"npack/internal/simulation"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/runtime/tokenizer"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/story"
	"npack/testdata/storydraft"
)

// fastest is the cpu backend.
var fastest = cpu.Backend{}

// load uses one thread: the models are small, and tests of other packages run
// beside these.
func load(t testing.TB, m *ternary.Model, o backend.Options) backend.Instance {
	t.Helper()
	if err := fastest.Check(); err != nil {
		t.Skip("many tokens: ", err)
	}
	o.Threads = 1
	in, err := fastest.Load(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// shared compares the two models' tokenizers, as a command does.
func shared(t testing.TB) int {
	t.Helper()
	var vocabularies [2]*tokenizer.Tokenizer
	for i, data := range [][]byte{story.TokenizerJSON, storydraft.TokenizerJSON} {
		var err error
		if vocabularies[i], err = tokenizer.Load(data, ""); err != nil {
			t.Fatal(err)
		}
	}
	n, err := engine.SharedVocabulary(vocabularies[0], vocabularies[1])
	if err != nil || n != 4096 {
		t.Fatalf("%d shared tokens, %v", n, err)
	}
	return n
}

// answers is everything about an answer that a draft must not change.
type answers struct {
	ids    []int32
	emits  []string
	finish engine.Finish
	stopID int32
	stop   string
	cached int
	held   []int32 // the session's tokens afterwards
}

func ask(t testing.TB, s *engine.Session, r engine.Request) (answers, *engine.Result) {
	t.Helper()
	var a answers
	r.Emit = func(c engine.Chunk) error {
		a.emits = append(a.emits, fmt.Sprintf("%d %q", c.ID, c.Text))
		return nil
	}
	res, err := s.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	a.ids, a.finish, a.stopID, a.stop, a.cached, a.held = res.IDs, res.Finish, res.StopID, res.StopText, res.Cached, slices.Clone(s.Tokens())
	return a, &res
}

func (a *answers) diverges(b *answers) string {
	for i := range min(len(a.ids), len(b.ids)) {
		if a.ids[i] != b.ids[i] {
			return fmt.Sprintf("token %d is %d, plain %d", i, a.ids[i], b.ids[i])
		}
	}
	switch {
	case len(a.ids) != len(b.ids) || a.finish != b.finish || a.stopID != b.stopID || a.stop != b.stop || a.cached != b.cached:
		return fmt.Sprintf("%d tokens, %s, stop id %d, stop text %q, %d cached; plain %d, %s, %d, %q, %d",
			len(a.ids), a.finish, a.stopID, a.stop, a.cached, len(b.ids), b.finish, b.stopID, b.stop, b.cached)
	case !slices.Equal(a.emits, b.emits):
		return "the calls of Emit differ"
	case !slices.Equal(a.held, b.held):
		return "the session holds other tokens"
	}
	return ""
}

// counted compares the answers of a session with a drafter with those without.
type counted struct {
	tokens, divergences, passes int
	stats                       engine.DraftStats
}

func (c *counted) add(t testing.TB, name string, plain, drafted *answers, res *engine.Result) {
	t.Helper()
	c.tokens += len(plain.ids)
	c.passes += res.Passes
	d := res.Draft
	c.stats.Drafted += d.Drafted
	c.stats.Accepted += d.Accepted
	if d.Err != nil {
		t.Errorf("%s: drafting ended: %v", name, d.Err)
	}
	kept := d.Plain
	for _, n := range d.Kept {
		kept += n
	}
	if kept != res.Passes || d.Accepted > d.Drafted || res.Passes+d.Accepted < res.Steps {
		t.Errorf("%s: the sums are wrong: %+v, %d passes, %d steps", name, *d, res.Passes, res.Steps)
	}
	if why := drafted.diverges(plain); why != "" {
		c.divergences++
		t.Errorf("%s: %s", name, why)
	}
}

func prompts(t testing.TB) [][]int32 {
	var out [][]int32
	for _, data := range [][]byte{story.Trajectories, storydraft.Trajectories} {
		for _, tr := range simulation.Trajectories(t, data) {
			if !slices.ContainsFunc(out, func(p []int32) bool { return slices.Equal(p, tr.PromptIDs) }) {
				out = append(out, tr.PromptIDs)
			}
		}
	}
	return out
}

func session(t testing.TB, e *engine.Engine, window int) *engine.Session {
	t.Helper()
	s, err := e.NewSession(window)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func model(t testing.TB, in backend.Instance, window, shared int) *engine.DraftModel {
	t.Helper()
	d, err := engine.NewDraftModel(in, window, shared)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// whole is whether to compare all there is, a minute's work: with -v, as make
// certify does. Else it is a few seconds'.
func whole() bool { return testing.Verbose() && !testing.Short() }

// TestDrafted: all prompts of the two models, 256 tokens each, are the same with
// the draft model at every length and with the controller, with a draft that is
// always wrong, with one of another geometry and untrained, and with lookup.
// Sessions are kept, so a trace that one answer left would show in the next.
func TestDrafted(t *testing.T) {
	tokens := 256
	target, draft := load(t, simulation.Open(t, story.Container), backend.Options{}), load(t, simulation.Open(t, storydraft.Container), backend.Options{})
	other := ternarytest.All()[1].Spec // odd, untied; only the vocabulary is made to fit
	other.Vocab, other.MaxPosition = 4000, 300
	stranger := load(t, ternarytest.Model(other), backend.Options{})
	list := prompts(t)
	if len(list) < 24 {
		t.Fatalf("%d prompts", len(list))
	}
	if !whole() {
		list, tokens = list[4:8], 40
	}
	const window = 512
	e := engine.New(target, 0)
	plain := make([]answers, len(list))
	s := session(t, e, window)
	for i, p := range list {
		plain[i], _ = ask(t, s, engine.Request{Prompt: p, MaxTokens: tokens})
	}
	var total, model8 int
	run := func(name string, list [][]int32, by engine.Drafter, length int) {
		t.Run(name, func(t *testing.T) {
			s := session(t, e, window)
			if err := s.Draft(by, length); err != nil {
				t.Fatal(err)
			}
			var c counted
			for i, p := range list {
				got, res := ask(t, s, engine.Request{Prompt: p, MaxTokens: tokens})
				c.add(t, fmt.Sprintf("prompt %d", i), &plain[i], &got, res)
			}
			t.Logf("%d tokens compared, %d divergences; %.0f passes per 512 tokens, %d of %d drafted tokens accepted (%.1f %%)",
				c.tokens, c.divergences, 512*float64(c.passes)/float64(c.tokens), c.stats.Accepted, c.stats.Drafted, 100*c.stats.Acceptance())
			total += c.tokens
			if strings.HasPrefix(name, "model") {
				model8 += c.tokens
			}
			switch {
			case strings.HasPrefix(name, "wrong") && (c.stats.Accepted != 0 || c.stats.Drafted == 0),
				name == "model-7" && c.stats.Acceptance() < 0.3:
				t.Errorf("%d of %d accepted", c.stats.Accepted, c.stats.Drafted)
			}
		})
	}
	for n := 1; n <= engine.MaxDraft; n++ {
		run(fmt.Sprintf("model-%d", n), list, model(t, draft, window, shared(t)), n)
	}
	run("model-auto", list, model(t, draft, window, shared(t)), 0)
	few := list[:4]
	wrong := &oracle{wrong: true}
	for i, p := range list {
		wrong.texts = append(wrong.texts, slices.Concat(p, plain[i].ids))
	}
	run("wrong-1", few, wrong, 1)
	run("wrong-7", few, wrong, 7)
	run("wrong-auto", few, wrong, 0)
	run("stranger-4", few, model(t, stranger, window, 4000), 4)
	run("lookup-7", few, engine.Lookup{}, 7)
	run("lookup-auto", few, engine.Lookup{}, 0)
	t.Logf("drafted decode: %d tokens compared, %d of them at the draft model's fixed lengths 1 to 7 and the controller", total, model8)
	if whole() && model8 < 27648 {
		t.Errorf("%d tokens were compared with the draft model, want 27,648 or more", model8)
	}
}

// TestDraftedAcceptance: cycles are what the model card counted: from where the
// draft's likeliest token is the model's, by another implementation in float64,
// follow the passes, the tokens drafted and those accepted, for each length.
func TestDraftedAcceptance(t *testing.T) {
	target, draft := load(t, simulation.Open(t, story.Container), backend.Options{}), load(t, simulation.Open(t, storydraft.Container), backend.Options{})
	var stored struct {
		Trajectories []struct {
			PromptIDs  []int32 `json:"prompt_ids"`
			IDs        []int32 `json:"ids"`
			DraftMatch []int   `json:"draft_match"`
		}
	}
	if err := json.Unmarshal(story.Trajectories, &stored); err != nil {
		t.Fatal(err)
	}
	lengths := []int{2, 7}
	if whole() {
		lengths = []int{1, 2, 3, 4, 5, 6, 7}
	} else {
		stored.Trajectories = stored.Trajectories[:8]
	}
	for _, length := range lengths {
		var drafted, accepted, passes int
		s := session(t, engine.New(target, 0), 256)
		if err := s.Draft(model(t, draft, 256, 4096), length); err != nil {
			t.Fatal(err)
		}
		for i, tr := range stored.Trajectories {
			want := engine.DraftStats{}
			wantPasses := 0
			for at := 1; at < len(tr.IDs); wantPasses++ { // the first token is the prompt's
				n := min(length, len(tr.IDs)-at-1)
				kept := 0
				for kept < n && tr.DraftMatch[at+kept] == 1 {
					kept++
				}
				if n > 0 {
					want.Kept[kept]++
				} else {
					want.Plain++
				}
				want.Drafted += n
				want.Accepted += kept
				at += kept + 1
			}
			got, res := ask(t, s, engine.Request{Prompt: tr.PromptIDs, MaxTokens: len(tr.IDs)})
			want.Read, want.Time = res.Draft.Read, res.Draft.Time
			if *res.Draft != want || res.Passes != wantPasses || !slices.Equal(got.ids, tr.IDs) {
				t.Errorf("prompt %d, length %d: %d passes, %+v; want %d, %+v", i, length, res.Passes, *res.Draft, wantPasses, want)
			}
			drafted, accepted, passes = drafted+want.Drafted, accepted+want.Accepted, passes+wantPasses
		}
		t.Logf("length %d: %d of %d accepted (%.1f %%), %d passes", length, accepted, drafted, 100*float64(accepted)/float64(drafted), passes)
	}
}

// oracle knows the texts, and drafts their next tokens: each right with
// probability right, or never.
type oracle struct {
	texts [][]int32
	wrong bool
	right float64
	rng   *rand.Rand
}

func (o *oracle) Propose(ctx context.Context, dst, text []int32, n int, s *engine.Sampler) ([]int32, error) {
	for _, t := range o.texts {
		if len(t) > len(text) && slices.Equal(t[:len(text)], text) {
			for i := len(text); i < len(t) && n > 0; i++ {
				id := t[i]
				if o.wrong || o.right < 1 && o.rng.Float64() >= o.right {
					id = 5 - min(id, 5) + min(id, 1) // some other token
				}
				dst = append(dst, id)
				n--
			}
			return dst, nil
		}
	}
	return dst, nil
}

// samplings are settings that look at the text, at random numbers, at both.
var samplings = []struct {
	name string
	engine.Sampling
}{
	{"temperature", engine.Sampling{Temperature: 1}},
	{"top-k", engine.Sampling{Temperature: 0.8, TopK: 20}},
	{"top-p", engine.Sampling{Temperature: 0.9, TopP: 0.8}},
	{"min-p", engine.Sampling{Temperature: 1.2, MinP: 0.05}},
	{"repetition", engine.Sampling{Temperature: 0.7, Repetition: 1.2, PenaltyWindow: 16}},
	{"presence and frequency", engine.Sampling{Temperature: 0.7, Presence: 0.5, Frequency: 0.3}},
	{"greedy with penalties", engine.Sampling{Repetition: 1.1, Frequency: 0.2, PenaltyWindow: 64}},
	{"DRY", engine.Sampling{DRY: engine.DRY{Multiplier: 0.8, Base: 1.75, AllowedLength: 2, Breakers: []int32{10, 198, 4094}}}},
	{"all", engine.Sampling{Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.02, Repetition: 1.1, Presence: 0.1, Frequency: 0.1, PenaltyWindow: 64,
		DRY: engine.DRY{Multiplier: 0.8, Base: 1.75, AllowedLength: 2, Window: 128, Breakers: []int32{10}}}},
}

// TestDraftedSampling: the text at a seed is the same with a draft, for all
// options of the sampler, activations and caches, with stops and without.
func TestDraftedSampling(t *testing.T) {
	tm, dm := simulation.Open(t, story.Container), simulation.Open(t, storydraft.Container)
	both := shared(t)
	list := prompts(t)
	tok, err := tokenizer.Load(story.TokenizerJSON, "")
	if err != nil {
		t.Fatal(err)
	}
	tokens, seeds := 96, uint64(4)
	if !whole() {
		tokens, seeds = 24, 2
	}
	var c counted
	for i, o := range []backend.Options{
		{}, {KV: backend.KVInt8}, {KV: backend.KVF32, Activations: backend.Int8}, {Activations: backend.Int16},
	} {
		e, draft := engine.New(load(t, tm, o), 0), load(t, dm, o)
		plain := session(t, e, 256)
		for j, p := range samplings {
			for seed := range seeds {
				r := engine.Request{Prompt: list[(i*len(samplings)+j+int(seed))%len(list)], MaxTokens: tokens, Sampling: p.Sampling, Text: tok.NewStream(false)}
				r.Sampling.Seed = seed
				if seed%2 == 1 {
					r.Stop, r.StopIDs = []string{" the", ". And"}, []int32{4093, 4095}
				}
				want, _ := ask(t, plain, r)
				for k, by := range []engine.Drafter{model(t, draft, 256, both), engine.Lookup{}} {
					s := session(t, e, 256)
					length := []int{0, 3, 7}[(j+k+int(seed))%3]
					if err := s.Draft(by, length); err != nil {
						t.Fatal(err)
					}
					got, res := ask(t, s, r)
					want := want
					want.cached = got.cached
					c.add(t, fmt.Sprintf("%s, %v, seed %d, %T %d", p.name, o, seed, by, length), &want, &got, res)
				}
			}
		}
	}
	t.Logf("%d sampled tokens compared, %d divergences; %d of %d drafted tokens accepted", c.tokens, c.divergences, c.stats.Accepted, c.stats.Drafted)
	if c.stats.Acceptance() < 0.1 {
		t.Error("hardly any token was accepted: not much was tested")
	}
}

// TestDraftSampled: a draft that draws with the same random numbers guesses
// better than its likeliest tokens would.
func TestDraftSampled(t *testing.T) {
	target, draft := load(t, simulation.Open(t, story.Container), backend.Options{}), load(t, simulation.Open(t, storydraft.Container), backend.Options{})
	both := shared(t)
	var got [2]engine.DraftStats
	for i, by := range []engine.Drafter{model(t, draft, 512, both), greedy{model(t, draft, 512, both)}} {
		s := session(t, engine.New(target, 0), 512)
		if err := s.Draft(by, 3); err != nil {
			t.Fatal(err)
		}
		for j, p := range prompts(t)[:4] {
			_, res := ask(t, s, engine.Request{Prompt: p, MaxTokens: 64, Sampling: engine.Sampling{Temperature: 1, Seed: uint64(j)}})
			got[i].Drafted += res.Draft.Drafted
			got[i].Accepted += res.Draft.Accepted
		}
	}
	t.Logf("temperature 1: %.1f %% of the tokens drawn alike accepted, %.1f %% of the likeliest", 100*got[0].Acceptance(), 100*got[1].Acceptance())
	if got[0].Acceptance() <= got[1].Acceptance() {
		t.Error("drawing with the same numbers does not help")
	}
}

// greedy hides the sampler from a drafter.
type greedy struct{ engine.Drafter }

func (g greedy) Propose(ctx context.Context, dst, text []int32, n int, _ *engine.Sampler) ([]int32, error) {
	var s engine.Sampler
	return g.Drafter.Propose(ctx, dst, text, n, &s)
}

// words is a vocabulary.
type words []string

func (w words) Len() int                      { return len(w) }
func (w words) Token(id int32) (string, bool) { return w[id], strings.HasPrefix(w[id], "<") }

func TestSharedVocabulary(t *testing.T) {
	long := words{"a", "b", "<end>", "", ""}
	for _, c := range []struct {
		a, b words
		n    int
		err  string
	}{
		{long, long, 5, ""},
		{long, long[:3], 3, ""},
		{long[:2], long, 2, ""},
		{long, words{"a", "c", "<end>"}, 0, `token 1 is "b" in the model, "c" in the draft`},
		{long, words{}, 0, "the draft's vocabulary has nothing in common with the model's"},
	} {
		n, err := engine.SharedVocabulary(c.a, c.b)
		var v *engine.VocabularyError
		if n != c.n || (err != nil) != (c.err != "") || err != nil && (err.Error() != c.err || !errors.As(err, &v)) {
			t.Errorf("%q and %q: %d, %v; want %d, %s", c.a, c.b, n, err, c.n, c.err)
		}
	}
}
