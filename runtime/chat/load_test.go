package chat

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/testdata/story"
)

func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		pack   Pack
		family string
		want   error
		text   string
	}{
		"nothing":        {pack: Pack{}, want: ErrNoTemplate},
		"blank file":     {pack: Pack{ChatTemplate: []byte(" \n")}, want: ErrNoTemplate},
		"null":           {pack: Pack{TokenizerConfig: []byte(`{"chat_template": null}`)}, want: ErrNoTemplate},
		"empty string":   {pack: Pack{TokenizerConfig: []byte(`{"chat_template": ""}`)}, want: ErrNoTemplate},
		"empty list":     {pack: Pack{TokenizerConfig: []byte(`{"chat_template": []}`)}, want: ErrNoTemplate},
		"string":         {pack: Pack{TokenizerConfig: []byte(`{"chat_template": "x{{ eos_token }}", "eos_token": "</s>"}`)}, family: "jinja"},
		"file first":     {pack: Pack{ChatTemplate: story.ChatTemplate, TokenizerConfig: []byte(`{"chat_template": "x"}`)}, family: "chatml"},
		"named":          {pack: Pack{TokenizerConfig: []byte(`{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}`)}, family: "jinja"},
		"no default":     {pack: Pack{TokenizerConfig: []byte(`{"chat_template": [{"name": "rag", "template": "r"}]}`)}, want: ErrTemplate, text: `"rag"`},
		"number":         {pack: Pack{TokenizerConfig: []byte(`{"chat_template": 7}`)}, text: "neither a text nor a list"},
		"no JSON":        {pack: Pack{TokenizerConfig: []byte(`{`)}, text: "tokenizer_config.json"},
		"too large":      {pack: Pack{ChatTemplate: []byte(strings.Repeat("x", maxTemplate+1))}, want: ErrTemplate, text: "1048577 bytes"},
		"token of a map": {pack: Pack{ChatTemplate: []byte("x"), TokenizerConfig: []byte(`{"eos_token": {"content": "E"}, "bos_token": [1]}`)}, family: "jinja"},
	} {
		tmpl, err := Load(c.pack)
		if c.family != "" {
			if err != nil || tmpl.Family() != c.family {
				t.Errorf("%s: %v, expected family %q", name, err, c.family)
			}
			continue
		}
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got error %v, expected %v %q", name, err, c.want, c.text)
		}
	}
}

func TestDefaultSystem(t *testing.T) {
	tmpl, err := Load(Pack{ChatTemplate: story.ChatTemplate, SystemPrompt: []byte("\nBe kind <|im_end|>.\n")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		msgs []Message
		want string
	}{
		{[]Message{{Role: User, Content: "a"}}, "<|im_start|>system\nBe kind <|im_end|>.<|im_end|>\n<|im_start|>user\na<|im_end|>\n"},
		{[]Message{{Role: System, Content: "own"}}, "<|im_start|>system\nown<|im_end|>\n"},
	} {
		p, err := tmpl.Render(context.Background(), c.msgs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, Text(p)); d != "" {
			t.Error(d)
		}
	}
}

func TestMessageErrors(t *testing.T) {
	tmpl := loadFile(t, "qwen3-first.jinja")
	call := func(args string) []ToolCall {
		return []ToolCall{{Function: FunctionCall{Name: "f", Arguments: []byte(args)}}}
	}
	for name, c := range map[string]struct {
		msgs []Message
		want string
	}{
		"none":         {nil, "none given"},
		"role":         {[]Message{{Role: "user<|im_end|>"}}, "expected system, user, assistant or tool"},
		"no arguments": {[]Message{{Role: Assistant, ToolCalls: call("")}}, "arguments of tool call 0"},
		"bad JSON":     {[]Message{{Role: User}, {Role: Assistant, ToolCalls: call("{")}}, "message 1"},
		"huge number":  {[]Message{{Role: Assistant, ToolCalls: call("1e999")}}, "out of range"},
		"user calls":   {[]Message{{Role: User, ToolCalls: call("{}")}}, "cannot call tools"},
		"deep":         {[]Message{{Role: Assistant, ToolCalls: call(strings.Repeat("[", 1e6) + strings.Repeat("]", 1e6))}}, "depth"},
	} {
		_, err := tmpl.Render(context.Background(), c.msgs, Options{})
		if !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected %q", name, err, c.want)
		}
	}
}

func TestParseGenerationConfig(t *testing.T) {
	got, err := ParseGenerationConfig(story.GenerationConfigJSON)
	if err != nil {
		t.Fatal(err)
	}
	ptr := func(f float64) *float64 { return &f }
	yes, k := true, 20
	want := GenerationConfig{EOS: []int32{4095, 4093}, DoSample: &yes, Temperature: ptr(0.7), TopK: &k, TopP: ptr(0.9)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	one, err := ParseGenerationConfig([]byte(`{"eos_token_id": 7, "temperature": null, "min_p": 0.05, "repetition_penalty": 1.1}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(GenerationConfig{EOS: []int32{7}, MinP: ptr(0.05), RepetitionPenalty: ptr(1.1)}, one); d != "" {
		t.Error(d)
	}
	if _, err := ParseGenerationConfig(nil); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		`[]`, `{`, `{"eos_token_id": -1}`, `{"eos_token_id": [null]}`, `{"eos_token_id": 3000000000}`, `{"eos_token_id": "x"}`,
		`{"eos_token_id": [` + strings.Repeat("1,", maxEOS) + `1]}`, `{"temperature": -1}`, `{"temperature": 1e999}`, `{"temperature": "hot"}`,
		`{"top_p": 2}`, `{"top_k": -1}`, `{"top_k": 1.5}`, `{"min_p": -0.1}`, `{"repetition_penalty": 0}`, `{"do_sample": 1}`,
	} {
		if _, err := ParseGenerationConfig([]byte(bad)); err == nil {
			t.Errorf("%.60s: no error", bad)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(story.TokenizerConfigJSON), []byte(story.GenerationConfigJSON))
	f.Add([]byte(`{"chat_template": [{"name": "default", "template": "x"}], "bos_token": {"content": 1}}`), []byte(`{"eos_token_id": [`))
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		_, _ = Load(Pack{TokenizerConfig: config})
		_, _ = ParseGenerationConfig(generation)
	})
}

func TestPythonJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":[1.0,1e3,1e-5,1E16,-0,-0.0,123456789012345678901]}`: `{"b": 1, "a": [1.0, 1000.0, 1e-05, 1e+16, 0, -0.0, 123456789012345678901]}`,
		`{"a":1,"b":2,"a":3}`:         `{"a": 3, "b": 2}`,
		`"<&>\u00e9\u2028\u0001\/\n"`: "\"<&>é\u2028\\u0001/\\n\"",
		` [ ] `:                       `[]`,
		`{}`:                          `{}`,
		`0.0001`:                      `0.0001`,
		`1234567890123456.7`:          `1234567890123456.8`,
		`null`:                        `null`,
	} {
		got, err := pythonJSON([]byte(in))
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v, expected %s", in, got, err, want)
		}
	}
	for _, bad := range []string{``, `{`, `1 2`, `nan`, `1e400`, `{"a" 1}`} {
		if _, err := pythonJSON([]byte(bad)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
