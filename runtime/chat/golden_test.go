package chat

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/testdata/story"
)

// goldenCase is an entry of testdata/golden.json, written by golden.py.
type goldenCase struct {
	Template string            `json:"template"`
	Messages []Message         `json:"messages"`
	Tools    []json.RawMessage `json:"tools"`
	Args     map[string]any    `json:"args"`
	Generate bool              `json:"add_generation_prompt"`
	Text     string            `json:"text"`
	Error    string            `json:"error"`
}

func (c *goldenCase) options() Options {
	args := map[string]any{}
	for k, v := range c.Args {
		if k != "thinking" { // the same switch under the name of other families
			args[k] = v
		}
	}
	return Options{AddGenerationPrompt: c.Generate, Tools: c.Tools, Args: args}
}

func goldenCases(t testing.TB) []goldenCase {
	t.Helper()
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func loadFile(t testing.TB, name string) *Template {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := Load(Pack{ChatTemplate: text, TokenizerConfig: []byte(`{"bos_token": "<s>", "eos_token": {"content": "</s>"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// sisters are other texts of a template that must give the same.
var sisters = map[string]string{
	"qwen3-first.jinja":    "qwen3-later.jinja",
	"chatml-classic.jinja": "../../../testdata/story/chat_template.jinja",
}

// TestGolden compares with Jinja2 itself: own code and foreign templates.
func TestGolden(t *testing.T) {
	families := map[string]int{}
	for i, c := range goldenCases(t) {
		names := []string{c.Template}
		if s := sisters[c.Template]; s != "" {
			names = append(names, s)
		}
		for _, name := range names {
			tmpl := loadFile(t, name)
			families[tmpl.Family()]++
			got, err := tmpl.Render(context.Background(), c.Messages, c.options())
			switch {
			case c.Error != "":
				if err == nil || !strings.Contains(err.Error(), c.Error) || !errors.Is(err, ErrTemplate) {
					t.Errorf("case %d, %s: got error %v, expected %q", i, name, err, c.Error)
				}
				continue
			case errors.Is(err, ErrOpaque) && strings.Contains(c.Text, "said"):
				continue // the one case whose content is looked into; TestForeignOpaque has it
			case err != nil:
				t.Errorf("case %d, %s: %v", i, name, err)
				continue
			}
			if d := cmp.Diff(c.Text, Text(got)); d != "" {
				t.Errorf("case %d, %s: differs from Jinja2 (-want +got):\n%s", i, name, d)
			}
			for _, p := range got {
				if !p.Markup {
					continue
				}
				// golden.py puts these into contents only.
				for _, bad := range []string{"evil", "<tool_response>\n1", "日", "°C", "old"} {
					if strings.Contains(p.Text, bad) {
						t.Errorf("case %d, %s: content %q is markup in %q", i, name, bad, p.Text)
					}
				}
			}
		}
	}
	if families["qwen3"] < 300 || families["chatml"] < 40 || families["jinja"] < 30 {
		t.Errorf("too few cases: %v", families)
	}
}

// TestOwnCodeAgainstEngine runs the known templates through the foreign path
// too: two independent ways to the same pieces.
func TestOwnCodeAgainstEngine(t *testing.T) {
	same, opaque := 0, 0
	for i, c := range goldenCases(t) {
		if sisters[c.Template] == "" || i%5 != 0 { // each one is a process
			continue
		}
		own := loadFile(t, c.Template)
		raw, err := os.ReadFile(filepath.Join("testdata", c.Template))
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := own.prepare(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		o := c.options()
		if b, ok := o.Args["enable_thinking"].(bool); ok {
			o.Thinking = &b
		}
		want, err := own.r.render(context.Background(), msgs, o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&foreign{text: canonical(string(raw))}).render(context.Background(), msgs, o)
		if errors.Is(err, ErrOpaque) || err != nil && strings.Contains(err.Error(), "64 bits") {
			opaque++ // a content that the template looks into, or a number too large for the engine
			continue
		}
		if err != nil {
			t.Errorf("case %d: %v", i, err)
			continue
		}
		if d := cmp.Diff(Text(want), Text(got)); d != "" {
			t.Errorf("case %d (-own +engine):\n%s", i, d)
		}
		same++
	}
	if same < 20 {
		t.Errorf("%d equal, %d refused", same, opaque)
	}
	t.Logf("%d equal, %d refused", same, opaque)
}

// TestStoryTemplate: the embedded model's pack is known, from its file and
// from its tokenizer_config.json alike.
func TestStoryTemplate(t *testing.T) {
	for _, p := range []Pack{
		{ChatTemplate: story.ChatTemplate, TokenizerConfig: story.TokenizerConfigJSON},
		{TokenizerConfig: story.TokenizerConfigJSON},
		{ChatTemplate: []byte(strings.ReplaceAll(string(story.ChatTemplate), "\n", "\r\n") + "\r\n")},
	} {
		tmpl, err := Load(p)
		if err != nil {
			t.Fatal(err)
		}
		if tmpl.Family() != "chatml" {
			t.Errorf("family %q, expected chatml", tmpl.Family())
		}
		if d := cmp.Diff([]string{"<|im_end|>"}, tmpl.Stops()); d != "" {
			t.Error(d)
		}
	}
}
