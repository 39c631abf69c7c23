package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"npack/runtime/backend"
)

// scripted drafts from a text: what follows there, by position.
type scripted struct {
	text  []int32
	err   error
	after int // calls before err
	lie   func(at int) bool
	asked []int
}

func (s *scripted) Propose(_ context.Context, dst, text []int32, n int, _ *Sampler) ([]int32, error) {
	if s.asked = append(s.asked, n); s.err != nil && len(s.asked) > s.after {
		return append(dst, 1, 2, 3), s.err
	}
	for i := len(text); i < min(len(text)+n, len(s.text)); i++ {
		id := s.text[i]
		if s.lie != nil && s.lie(i) {
			id = 'x'
		}
		dst = append(dst, id)
	}
	return dst, nil
}

// events are all that a caller can see of an answer.
func events(t *testing.T, s *Session, r Request, stopAt int) []string {
	t.Helper()
	var out []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broken := errors.New("emit failed")
	tokens := 0
	r.Text = &letters{}
	r.Emit = func(c Chunk) error {
		out = append(out, fmt.Sprintf("%d %q", c.ID, c.Text))
		if tokens++; stopAt > 0 && tokens == stopAt {
			cancel()
		}
		if -stopAt == tokens {
			return broken
		}
		return nil
	}
	res, err := s.Generate(ctx, r)
	return append(out, fmt.Sprintf("%v %s %d %q %v %d %v", res.IDs, res.Finish, res.StopID, res.StopText, err, res.Steps, s.Tokens()),
		fmt.Sprintf("%d in the cache", s.seq.Len()))
}

// TestDraftEnds: stop ids, stop strings, limits, cancellation and errors of Emit
// in the middle of accepted tokens look as they do without a draft, to the
// caller and in the cache. So do the answers that follow in the session.
func TestDraftEnds(t *testing.T) {
	const says = "so beta gamma delta\x01 and more né日😀 than that"
	prompt := bytesAsIDs("say:")
	text := append(slices.Clone(prompt), bytesAsIDs(says)...)
	lies := map[string]func(int) bool{
		"right": nil, "wrong": func(int) bool { return true }, "every third": func(i int) bool { return i%3 == 0 }, "from 12 on": func(i int) bool { return i >= 12 },
	}
	requests := map[string]Request{
		"length": {MaxTokens: 11}, "one": {MaxTokens: 1}, "two": {MaxTokens: 2}, "stop id": {StopIDs: []int32{1}},
		"stop string": {Stop: []string{"ta gam", "zzz"}}, "held": {Stop: []string{"delta!"}, StopIDs: []int32{1}}, "context": {}, "characters": {MaxTokens: 33},
	}
	compared := 0
	for lie, f := range lies {
		for name, r := range requests {
			for length := 0; length <= MaxDraft; length++ {
				for stopAt := -11; stopAt <= 11; stopAt += 2 { // below 0 Emit fails, above 0 the context ends
					r.Prompt = prompt
					var got [2][]string
					for i := range got {
						s := newSession(t, newFake(256, script(len(prompt), says)), 3, 44)
						if i == 1 {
							if err := s.Draft(&scripted{text: text, lie: f}, length); err != nil {
								t.Fatal(err)
							}
						}
						got[i] = append(events(t, s, r, stopAt), events(t, s, Request{Prompt: prompt, MaxTokens: 15}, 0)...)
					}
					if !slices.Equal(got[0], got[1]) {
						t.Fatalf("%s, draft %s, length %d, stop at %d:\n%s\nplain:\n%s", name, lie, length, stopAt, strings.Join(got[1], "\n"), strings.Join(got[0], "\n"))
					}
					compared++
				}
			}
		}
	}
	t.Logf("%d answers compared", compared)
}

// TestDraftCancelledPass: a context that ends during a pass leaves the text as it
// was before it.
func TestDraftCancelledPass(t *testing.T) {
	prompt := bytesAsIDs("say:")
	text := append(slices.Clone(prompt), bytesAsIDs("hello world, hello")...)
	for at := 1; at <= 5; at++ {
		f := newFake(256, script(len(prompt), "hello world, hello"))
		s := newSession(t, f, 0, 100)
		if err := s.Draft(&scripted{text: text}, 3); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		f.hook = func() {
			if calls++; calls == at {
				cancel()
			}
		}
		res, err := s.Generate(ctx, Request{Prompt: prompt, MaxTokens: 18})
		want := max(0, 1+4*(at-2)) // the prompt, then 4 tokens a pass
		if at == 1 {
			want = 0
		}
		if err != nil || res.Finish != FinishCancelled || len(res.IDs) != want || s.seq.Len() != len(s.ids) {
			t.Errorf("at call %d: %v, %v, %d tokens, want %d; %d in the cache, %d in the text", at, res.Finish, err, len(res.IDs), want, s.seq.Len(), len(s.ids))
		}
	}
}

// TestDraftErrors: a drafter that fails, or proposes what is no token, changes
// nothing but the speed.
func TestDraftErrors(t *testing.T) {
	prompt := bytesAsIDs("say:")
	const says = "hello world"
	text := append(slices.Clone(prompt), bytesAsIDs(says)...)
	broken := errors.New("broken")
	for after := range 4 {
		s := newSession(t, newFake(256, script(len(prompt), says)), 0, 100)
		d := &scripted{text: text, err: broken, after: after}
		if err := s.Draft(d, 2); err != nil {
			t.Fatal(err)
		}
		res, err := s.Generate(t.Context(), Request{Prompt: prompt, MaxTokens: len(says)})
		if err != nil || !slices.Equal(res.IDs, bytesAsIDs(says)) || !errors.Is(res.Draft.Err, broken) || len(d.asked) != after+1 {
			t.Errorf("error after %d calls: %v, %v, %d calls, %v", after, res.IDs, err, len(d.asked), res.Draft.Err)
		}
	}
	for _, tokens := range [][]int32{{-1}, {256, 1}, {'e', 1 << 30}, make([]int32, 100)} {
		s := newSession(t, newFake(256, script(len(prompt), says)), 0, 100)
		if err := s.Draft(proposes(tokens), 7); err != nil {
			t.Fatal(err)
		}
		res, err := s.Generate(t.Context(), Request{Prompt: prompt, MaxTokens: len(says)})
		if err != nil || !slices.Equal(res.IDs, bytesAsIDs(says)) {
			t.Errorf("%v: %v, %v", tokens, res.IDs, err)
		}
	}
	s := newSession(t, newFake(256, nil), 0, 100)
	for _, n := range []int{-1, MaxDraft + 1} {
		if s.Draft(Lookup{}, n) == nil {
			t.Errorf("length %d was accepted", n)
		}
	}
}

type proposes []int32

func (p proposes) Propose(_ context.Context, dst, _ []int32, n int, _ *Sampler) ([]int32, error) {
	if n == 0 {
		return dst, nil
	}
	return append(dst, p...), nil
}

// overflows fails for the tokens that a model cannot run.
type overflows struct{ *fake }

func (o overflows) Forward(ctx context.Context, runs []backend.Run) error {
	if slices.Contains(runs[0].Tokens, 'x') {
		return backend.Overflow(3, "ffn_down")
	}
	return o.fake.Forward(ctx, runs)
}

// TestDraftOverflow: a drafted token that the model cannot run is none of its
// text; one that it chose itself is.
func TestDraftOverflow(t *testing.T) {
	prompt := bytesAsIDs("say:")
	for _, says := range []string{"hello world", "hellox world"} {
		text := append(slices.Clone(prompt), bytesAsIDs(says)...)
		s, err := New(overflows{newFake(256, script(len(prompt), says))}, 0).NewSession(100)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Draft(&scripted{text: text, lie: func(i int) bool { return i%2 == 0 }}, 3); err != nil {
			t.Fatal(err)
		}
		res, err := s.Generate(t.Context(), Request{Prompt: prompt, MaxTokens: len(says)})
		want, wantErr := says, strings.Contains(says, "x")
		if wantErr {
			want = "hellox"
		}
		if errors.Is(err, backend.ErrOverflow) != wantErr || !slices.Equal(res.IDs, bytesAsIDs(want)) {
			t.Errorf("%q: %v, %v", says, res.IDs, err)
		}
	}
}

// TestDraftAllocatesNothing: neither a cycle nor a rejected token allocates.
func TestDraftAllocatesNothing(t *testing.T) {
	draft := newFake(300, nil)
	for name, length := range map[string]int{"auto": 0, "1": 1, "5": 5} {
		for _, kind := range []string{"model", "lookup"} {
			s := newSession(t, newFake(256, func(ids []int32) int32 { return int32(len(ids) % 7) }), 0, 2000)
			var by Drafter = Lookup{}
			if kind == "model" {
				d, err := NewDraftModel(draft, 2000, 256)
				if err != nil {
					t.Fatal(err)
				}
				by = d
			}
			if err := s.Draft(by, length); err != nil {
				t.Fatal(err)
			}
			allocs := func(n int) float64 {
				req := Request{Prompt: []int32{1, 2, 3}, MaxTokens: n, Sampling: Sampling{Temperature: 1, TopP: 0.9, Repetition: 1.1}}
				return testing.AllocsPerRun(2, func() {
					if _, err := s.Generate(context.Background(), req); err != nil {
						t.Fatal(err)
					}
				})
			}
			allocs(510) // buffers grow with the text
			if few, many := allocs(10), allocs(510); many > few {
				t.Errorf("%s, %s: %v allocations for 10 tokens, %v for 510", kind, name, few, many)
			}
		}
	}
}

// TestDraftModelFollows: the draft holds the text, cut back where it was wrong,
// and reads no token twice.
func TestDraftModelFollows(t *testing.T) {
	prompt := bytesAsIDs("say:")
	const says = "hello world, hello world, hello"
	target := newFake(256, script(len(prompt), says))
	draft := newFake(256, func(ids []int32) int32 {
		if len(ids)%5 == 0 {
			return 'x'
		}
		return script(len(prompt), says)(ids)
	})
	draft.log = true
	s := newSession(t, target, 0, 100)
	d, err := NewDraftModel(draft, 100, 256)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Draft(d, 3); err != nil {
		t.Fatal(err)
	}
	res, err := s.Generate(t.Context(), Request{Prompt: prompt, MaxTokens: len(says)})
	if err != nil || !slices.Equal(res.IDs, bytesAsIDs(says)) {
		t.Fatalf("%v, %v", res.IDs, err)
	}
	// The prompt but for its last token is read at once; a cycle begins with one
	// or two tokens, of which the second is there if all were accepted.
	read := 0
	for i, n := range draft.sizes {
		if i > 0 && n > 2 {
			t.Errorf("call %d of the draft has %d tokens: %v", i, n, draft.sizes)
		}
		read += n
	}
	if most := len(prompt) + len(says) + res.Draft.Drafted; draft.sizes[0] != len(prompt) || read > most {
		t.Errorf("the draft read %d tokens for a text of %d, %d drafted: %v", read, len(prompt)+len(says), res.Draft.Drafted, draft.sizes)
	}
	if n := d.seq.Len(); n > len(s.ids)+3 || !slices.Equal(d.ids[:len(prompt)], prompt) || n != len(d.ids) {
		t.Errorf("%d tokens in the draft's cache, %d in its list", n, len(d.ids))
	}
	if a := res.Draft.Acceptance(); a < 0.5 {
		t.Errorf("acceptance %v", a)
	}
}

// TestDraftModelWindow: a draft with a shorter context than the model's, one
// that lags far behind, and tokens that it does not have.
func TestDraftModelWindow(t *testing.T) {
	long := make([]int32, 600)
	for i := range long {
		long[i] = int32(i*7%50) + 1
	}
	next := func(ids []int32) int32 { return (ids[len(ids)-1]-1+7)%50 + 1 }
	for _, c := range []struct {
		name           string
		window, shared int
		text           []int32
		n, want        int
		held           int // in the cache afterwards
	}{
		{"all", 1000, 256, long[:draftLag], 7, 7, draftLag + 6},
		{"far behind", 1000, 256, long, 7, 7, draftTail + 6},
		{"short context", 100, 256, long, 7, 7, draftTail + 6},
		{"shorter context", 40, 256, long, 7, 7, 20 + 6},
		{"tiny context", 4, 256, long, 7, 2, 2 + 1},
		{"one token", 1, 256, long, 7, 0, 1},
		{"the last is unknown", 1000, 51, append(slices.Clone(long[:100]), 60), 3, 0, 0},
		{"an unknown one before", 1000, 51, append(slices.Clone(long[:100]), 60, 1, 8, 15), 3, 3, 3 + 2},
	} {
		f := newFake(256, next)
		d, err := NewDraftModel(f, c.window, c.shared)
		if err != nil {
			t.Fatal(err)
		}
		var s Sampler
		got, err := d.Propose(t.Context(), nil, c.text, c.n, &s)
		if err != nil || len(got) != c.want || d.seq.Len() != c.held {
			t.Errorf("%s: %d drafted, %d in the cache, %v; want %d, %d", c.name, len(got), d.seq.Len(), err, c.want, c.held)
		}
		for i, id := range got {
			if want := next(append(slices.Clone(c.text), got[:i]...)); id != want {
				t.Errorf("%s: token %d is %d, want %d", c.name, i, id, want)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""}, {"a", 3, ""}, {"ab", 3, ""}, {"abab", 0, ""},
		{"abcdefab", 3, "cde"},
		{"abcdefab", 7, "cdefabc"},
		{"one two three. one two", 5, " thre"},
		{"aaaa", 4, "aaaa"},
		{"abababab", 5, "ababa"},
		{"xyab1xyab2xyab", 1, "2"},        // of equals the last
		{"zyab1xyab2_xyab3_zyab", 1, "1"}, // the longest
		{"abcdefgb", 3, ""},               // one token is too little
	} {
		got, err := Lookup{}.Propose(t.Context(), []int32{9}, bytesAsIDs(c.text), c.n, nil)
		if err != nil || got[0] != 9 || !slices.Equal(got[1:], bytesAsIDs(c.want)) {
			t.Errorf("%q: %v, want %q", c.text, got, c.want)
		}
	}
}

// timed is a model whose passes take a set time on a clock that only they move.
type timed struct {
	*fake
	clock *time.Time
	cost  func(columns int) time.Duration
}

func (m timed) Forward(ctx context.Context, runs []backend.Run) error {
	*m.clock = m.clock.Add(m.cost(len(runs[0].Tokens)))
	return m.fake.Forward(ctx, runs)
}

// TestDraftClock: with a clock that only the models move, a session takes as long
// as its passes and drafts, the statistics add up to it, and drafting pays as
// the costs say it must.
func TestDraftClock(t *testing.T) {
	const tokens = 500
	prompt := bytesAsIDs("say:")
	says := strings.Repeat("abcdefghij", tokens/10)
	text := append(slices.Clone(prompt), bytesAsIDs(says)...)
	for _, c := range []struct {
		name     string
		lie      func(int) bool
		draft    time.Duration
		lo, hi   float64 // speed against plain
		passesHi int
	}{
		{"right", nil, 5, 4.4, 8 / (1 + 7*.05 + 7*.05), 80},
		{"half", func(i int) bool { return i%2 == 0 }, 5, 1.3, 1.82, 400},
		{"wrong", func(int) bool { return true }, 5, 0.97, 1, tokens},
		{"right and too dear", nil, 120, 0.97, 1.01, tokens},
	} {
		now := time.Unix(0, 0)
		f := timed{newFake(256, script(len(prompt), says)), &now, func(columns int) time.Duration { return time.Duration(95+5*columns) * time.Millisecond }}
		s, err := New(f, 0).NewSession(1000)
		if err != nil {
			t.Fatal(err)
		}
		d := &scripted{text: text, lie: c.lie}
		if err := s.Draft(slow{d, &now, c.draft * time.Millisecond}, 0); err != nil {
			t.Fatal(err)
		}
		s.draft.now = func() time.Time { return now }
		res, err := s.Generate(t.Context(), Request{Prompt: prompt, MaxTokens: tokens})
		if err != nil || !slices.Equal(res.IDs, bytesAsIDs(says)) {
			t.Fatalf("%s: %v", c.name, err)
		}
		took := now.Sub(time.Unix(0, 0)) - 115*time.Millisecond // the prompt
		speed := float64(tokens*100*time.Millisecond) / float64(took)
		t.Logf("%s: %.3f times plain, %d passes, %d of %d accepted, draft %v of %v", c.name, speed, res.Passes, res.Draft.Accepted, res.Draft.Drafted, res.Draft.Time, took)
		if speed < c.lo || speed > c.hi || res.Passes > c.passesHi {
			t.Errorf("%s: %.3f times plain in %d passes, want %v to %v in at most %d", c.name, speed, res.Passes, c.lo, c.hi, c.passesHi)
		}
		if want := time.Duration(res.Draft.Drafted) * c.draft * time.Millisecond; res.Draft.Time != want {
			t.Errorf("%s: %v in the draft, want %v", c.name, res.Draft.Time, want)
		}
	}
}

// slow takes a time for each token that it proposes.
type slow struct {
	Drafter
	clock *time.Time
	token time.Duration
}

func (s slow) Propose(ctx context.Context, dst, text []int32, n int, p *Sampler) ([]int32, error) {
	got, err := s.Drafter.Propose(ctx, dst, text, n, p)
	*s.clock = s.clock.Add(time.Duration(len(got)-len(dst)) * s.token)
	return got, err
}
