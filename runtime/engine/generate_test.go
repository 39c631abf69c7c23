package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"npack/runtime/backend"
)

func newSession(t testing.TB, f *fake, chunk, window int) *Session {
	t.Helper()
	s, err := New(f, chunk).NewSession(window)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// collect returns an Emit that gathers text and ids and checks every chunk.
func collect(t *testing.T, text *strings.Builder, ids *[]int32) func(Chunk) error {
	return func(c Chunk) error {
		if !utf8.Valid(c.Text) {
			t.Errorf("chunk %q is not valid UTF-8", c.Text)
		}
		text.Write(c.Text)
		if c.ID >= 0 {
			*ids = append(*ids, c.ID)
		}
		return nil
	}
}

func TestGenerateEnds(t *testing.T) {
	const stopID = 1
	prompt := bytesAsIDs("say:")
	for _, c := range []struct {
		name, says string
		req        Request
		window     int
		text       string
		finish     Finish
		stopText   string
		stopID     int32
		ids        int
	}{
		{"stop id", "hello\x01 never", Request{StopIDs: []int32{2, stopID}}, 100, "hello", FinishStop, "", stopID, 5},
		{"length", "hello world", Request{MaxTokens: 3}, 100, "hel", FinishLength, "", -1, 3},
		{"length beats a stop id that was not drawn", "hel\x01", Request{MaxTokens: 3, StopIDs: []int32{stopID}}, 100, "hel", FinishLength, "", -1, 3},
		{"one token", "hello", Request{MaxTokens: 1}, 100, "h", FinishLength, "", -1, 1},
		{"context", "hello world", Request{}, 8, "hello", FinishContext, "", -1, 5},
		{"context of the prompt's size", "hello", Request{}, 4, "h", FinishContext, "", -1, 1},
		{"stop string", "alpha beta gamma delta", Request{Stop: []string{"beta gamma", "\nUser:"}}, 100, "alpha ", FinishStop, "beta gamma", -1, 16},
		{"held tail comes out at the end", "alpha beta gam", Request{Stop: []string{"beta gamma"}, MaxTokens: 14}, 100, "alpha beta gam", FinishLength, "", -1, 14},
		{"held tail before a stop id", "so beta\x01", Request{Stop: []string{"beta gamma"}, StopIDs: []int32{stopID}}, 100, "so beta", FinishStop, "", stopID, 7},
		{"held tail at the end of the context", "so beta", Request{Stop: []string{"beta gamma"}}, 10, "so beta", FinishContext, "", -1, 7},
		{"characters stay whole", "né日😀!", Request{MaxTokens: len("né日😀!")}, 100, "né日😀!", FinishLength, "", -1, 11},
		{"cut character", "a😀", Request{MaxTokens: 3}, 100, "a\uFFFD", FinishLength, "", -1, 3},
		{"stop string after characters", "日本。終わり", Request{Stop: []string{"終わ"}}, 100, "日本。", FinishStop, "終わ", -1, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(256, script(len(prompt), c.says))
			s := newSession(t, f, 3, c.window)
			var text strings.Builder
			var ids []int32
			c.req.Prompt, c.req.Text, c.req.Emit = prompt, &letters{}, collect(t, &text, &ids)
			res, err := s.Generate(t.Context(), c.req)
			if err != nil {
				t.Fatal(err)
			}
			if text.String() != c.text || res.Finish != c.finish || res.StopText != c.stopText || res.StopID != c.stopID || len(res.IDs) != c.ids {
				t.Errorf("got %q, %s, stop text %q, stop id %d, %d ids\nwant %q, %s, %q, %d, %d",
					text.String(), res.Finish, res.StopText, res.StopID, len(res.IDs), c.text, c.finish, c.stopText, c.stopID, c.ids)
			}
			if !slices.Equal(ids, res.IDs) {
				t.Errorf("emitted ids %v, result %v", ids, res.IDs)
			}
			if res.Prompt != 4 || res.Cached != 0 || res.Steps > len(res.IDs) {
				t.Errorf("timings %+v", res.Timings)
			}
		})
	}
}

func TestContextError(t *testing.T) {
	f := newFake(256, nil)
	s := newSession(t, f, 0, 20)
	res, err := s.Generate(t.Context(), Request{Prompt: make([]int32, 23)})
	var ce *ContextError
	if !errors.As(err, &ce) || ce.Prompt != 23 || ce.Window != 20 || !errors.Is(err, backend.ErrContext) {
		t.Fatalf("error %v", err)
	}
	if want := "prompt has 23 tokens, the context holds 20"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if f.calls != 0 || len(res.IDs) != 0 {
		t.Errorf("%d calls, %d ids after a refused prompt", f.calls, len(res.IDs))
	}
	if _, err := s.Generate(t.Context(), Request{}); !errors.Is(err, ErrNoPrompt) {
		t.Errorf("empty prompt: %v", err)
	}
}

// TestPrefixReuse: a prompt pays only for what the session does not hold.
func TestPrefixReuse(t *testing.T) {
	f := newFake(64, nil)
	f.log = true
	s := newSession(t, f, 4, 64)
	prompt := []int32{1, 2, 3, 4, 5, 6}
	first, err := s.Generate(t.Context(), Request{Prompt: prompt, MaxTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{4, 2, 1, 1}; !slices.Equal(f.sizes, want) {
		t.Errorf("calls of %v tokens, want %v", f.sizes, want)
	}
	for _, c := range []struct {
		name   string
		prompt []int32
		cached int
		sizes  []int
	}{
		// The third token of the answer was never run.
		{"answer and more", append(slices.Concat(prompt, first.IDs), 7, 8), 8, []int{3}},
		{"the same again", append(slices.Concat(prompt, first.IDs), 7, 8), 10, []int{1}},
		{"cut back", prompt[:3], 2, []int{1}},
		{"another end", []int32{1, 2, 9, 9, 9, 9, 9, 9}, 2, []int{4, 2}},
		{"nothing alike", []int32{5, 5}, 0, []int{2}},
	} {
		f.sizes = nil
		res, err := s.Generate(t.Context(), Request{Prompt: c.prompt, MaxTokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		if res.Cached != c.cached || !slices.Equal(f.sizes, c.sizes) {
			t.Errorf("%s: %d cached, calls %v; want %d, %v", c.name, res.Cached, f.sizes, c.cached, c.sizes)
		}
		fresh, err := newSession(t, newFake(64, nil), 0, 64).Generate(t.Context(), Request{Prompt: c.prompt, MaxTokens: 1})
		if err != nil || !slices.Equal(res.IDs, fresh.IDs) {
			t.Errorf("%s: %v with reuse, %v without (%v)", c.name, res.IDs, fresh.IDs, err)
		}
	}
	if err := s.Reset(); err != nil || len(s.Tokens()) != 0 {
		t.Errorf("reset: %v, %d tokens", err, len(s.Tokens()))
	}
}

func TestCancel(t *testing.T) {
	prompt := bytesAsIDs("0123456789")
	for at := 1; at <= 8; at++ { // 4 chunks, then steps
		f := newFake(256, script(len(prompt), "so beta gamma delta"))
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		f.hook = func() {
			if calls++; calls == at {
				cancel()
			}
		}
		s := newSession(t, f, 3, 100)
		var text strings.Builder
		var ids []int32
		req := Request{Prompt: prompt, MaxTokens: 19, Stop: []string{"o beta!"}, Text: &letters{}, Emit: collect(t, &text, &ids)}
		res, err := s.Generate(ctx, req)
		if err != nil || res.Finish != FinishCancelled {
			t.Fatalf("at call %d: %v, %v", at, res.Finish, err)
		}
		if want := "so beta gamma delta"[:max(0, at-4)]; text.String() != want {
			t.Errorf("at call %d: text %q, want %q", at, text.String(), want)
		}
		// The session goes on as if nothing had happened.
		f.hook = nil
		text.Reset()
		if res, err = s.Generate(t.Context(), req); err != nil || text.String() != "so beta gamma delta" {
			t.Errorf("after cancelling at call %d: %q, %v, %v", at, text.String(), res.Finish, err)
		}
		if at > 1 && res.Cached == 0 {
			t.Errorf("after cancelling at call %d: nothing was kept", at)
		}
	}
}

func TestErrors(t *testing.T) {
	prompt := bytesAsIDs("ab")
	broken := errors.New("broken")
	f := newFake(256, script(2, "hello"))
	f.err = broken
	s := newSession(t, f, 0, 100)
	if _, err := s.Generate(t.Context(), Request{Prompt: prompt}); !errors.Is(err, broken) {
		t.Errorf("backend's error: %v", err)
	}
	f.err = nil
	emit := func(c Chunk) error {
		if c.ID == 'l' {
			return broken
		}
		return nil
	}
	res, err := s.Generate(t.Context(), Request{Prompt: prompt, Emit: emit})
	if !errors.Is(err, broken) || len(res.IDs) != 3 {
		t.Errorf("emit's error: %v after %d tokens", err, len(res.IDs))
	}
	if _, err := s.Generate(t.Context(), Request{Prompt: prompt, Sampling: Sampling{TopP: 2}}); err == nil {
		t.Error("top-p 2 was accepted")
	}
}

// TestChunking: the split of the prompt shows in nothing but the calls.
func TestChunking(t *testing.T) {
	prompt := make([]int32, 150)
	for i := range prompt {
		prompt[i] = int32(i * 7 % 64)
	}
	var want []int32
	for _, chunk := range []int{0, 1, 7, 64, 65, 150, 151} {
		f := newFake(64, nil)
		var last int
		res, err := newSession(t, f, chunk, 200).Generate(t.Context(), Request{Prompt: prompt, MaxTokens: 20,
			Progress: func(done, total int) {
				if done <= last || total != 150 {
					t.Errorf("progress %d of %d after %d", done, total, last)
				}
				last = done
			}})
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = res.IDs
		}
		if !slices.Equal(res.IDs, want) || last != 150 {
			t.Errorf("chunk %d: %v, want %v", chunk, res.IDs, want)
		}
	}
}

// TestStepAllocatesNothing: the number of allocations does not depend on how
// many tokens are made.
func TestStepAllocatesNothing(t *testing.T) {
	for name, p := range map[string]Sampling{
		"greedy": {},
		"all": {Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.05, Repetition: 1.1, Presence: 0.1, Frequency: 0.1, PenaltyWindow: 64,
			DRY: DRY{Multiplier: 0.8, Base: 1.75, AllowedLength: 2, Breakers: []int32{10}}},
		"top-p": {Temperature: 1, TopP: 0.9},
	} {
		s := newSession(t, newFake(512, nil), 0, 2000)
		allocs := func(n int) float64 {
			req := Request{Prompt: []int32{1, 2, 3}, MaxTokens: n, Sampling: p, Text: &letters{held: make([]byte, 0, 8)},
				Stop: []string{"never said"}, Emit: func(Chunk) error { return nil }}
			return testing.AllocsPerRun(5, func() {
				if _, err := s.Generate(context.Background(), req); err != nil {
					t.Fatal(err)
				}
			})
		}
		if few, many := allocs(10), allocs(1010); many > few {
			t.Errorf("%s: %v allocations for 10 tokens, %v for 1010", name, few, many)
		}
	}
}

func ExampleSession_Generate() {
	s, _ := New(newFake(256, script(3, "Once upon a time")), 0).NewSession(64)
	res, err := s.Generate(context.Background(), Request{
		Prompt: bytesAsIDs("hi:"), Text: &letters{}, Stop: []string{" a"},
		Emit: func(c Chunk) error { fmt.Printf("%s", c.Text); return nil },
	})
	fmt.Println()
	fmt.Println(res.Finish, err)
	// Output:
	// Once upon
	// stop <nil>
}
