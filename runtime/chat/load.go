package chat

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Pack is what lies beside a model and says how to talk with it. Any field may
// be empty.
type Pack struct {
	ChatTemplate    []byte // chat_template.jinja; it comes first
	TokenizerConfig []byte // tokenizer_config.json
	SystemPrompt    []byte // SYSTEM_PROMPT.txt: for conversations that have none
}

// maxTemplate is the largest template in bytes. The largest one in use has
// about 25 KiB.
const maxTemplate = 1 << 20

// knownTemplates are the texts that own code renders, by the sha256 of
// [canonical]. testdata has each of them, and the tests compare own code with
// Jinja's output for it.
var knownTemplates = []struct {
	sha256, family string
	r              renderer
}{
	{"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", "qwen3", qwen3{}},   // as first published
	{"a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", "qwen3", qwen3{}},   // the later text
	{"2eefca287a0f008b170ce31bc2c4dabb398a64eb74716bf64db5d9a21da50da9", "chatml", chatML{}}, // the story models
	{"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "chatml", chatML{}}, // the text that most fine-tunes carry
}

// Load finds the pack's template. It returns [ErrNoTemplate] if there is none
// and an error wrapping [ErrTemplate] if there is one that cannot be used. It
// does not run a foreign template: [Template.Render] does.
func Load(p Pack) (*Template, error) {
	cfg, err := parseTokenizerConfig(p.TokenizerConfig)
	if err != nil {
		return nil, err
	}
	text := string(p.ChatTemplate)
	if strings.TrimSpace(text) == "" {
		if text, err = cfg.template(); err != nil {
			return nil, err
		}
	}
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTemplate, len(text), maxTemplate)
	}
	t := &Template{
		thinks: strings.Contains(text, thinkClose),
		system: strings.TrimSpace(strings.ToValidUTF8(string(p.SystemPrompt), "\uFFFD")),
	}
	if eos := cfg.EOS.text(); eos != "" {
		t.stops = append(t.stops, eos)
	}
	canon := canonical(text)
	sum := sha256.Sum256([]byte(canon))
	for _, k := range knownTemplates {
		if k.sha256 == hex.EncodeToString(sum[:]) {
			t.family, t.r = k.family, k.r
			if len(t.stops) == 0 || t.stops[0] != "<|im_end|>" {
				t.stops = append(t.stops, "<|im_end|>")
			}
			return t, nil
		}
	}
	t.family = "jinja"
	t.r = &foreign{text: canon, bos: cfg.BOS.text(), eos: cfg.EOS.text()}
	return t, nil
}

// canonical undoes what editors and version control do to a text file. Jinja
// itself drops one newline at the end.
func canonical(text string) string {
	return strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
}

// tokenizerConfig is what this package reads of tokenizer_config.json.
type tokenizerConfig struct {
	Template json.RawMessage `json:"chat_template"`
	BOS      token           `json:"bos_token"`
	EOS      token           `json:"eos_token"`
}

func parseTokenizerConfig(raw []byte) (*tokenizerConfig, error) {
	var c tokenizerConfig
	if len(bytes.TrimSpace(raw)) == 0 {
		return &c, nil
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	return &c, nil
}

// template returns the text under chat_template: a string, or a list of named
// templates, of which "default" is meant for chats.
func (c *tokenizerConfig) template() (string, error) {
	raw := bytes.TrimSpace(c.Template)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return "", ErrNoTemplate
	}
	if raw[0] == '"' {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", fmt.Errorf("tokenizer_config.json: chat_template: %w", err)
		}
		if strings.TrimSpace(s) == "" {
			return "", ErrNoTemplate
		}
		return s, nil
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return "", fmt.Errorf("tokenizer_config.json: chat_template: neither a text nor a list of named texts: %w", err)
	}
	names := make([]string, 0, len(named))
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
		names = append(names, n.Name)
	}
	if len(named) == 0 {
		return "", ErrNoTemplate
	}
	return "", fmt.Errorf("%w: tokenizer_config.json: chat_template has %.100q, expected one named \"default\"", ErrTemplate, names)
}

// token is a special token: its text, or an object with the text as content.
type token json.RawMessage

func (t *token) UnmarshalJSON(raw []byte) error {
	*t = append((*t)[:0], raw...)
	return nil
}

// text returns "" for null, and for what is no token.
func (t token) text() string {
	var s string
	if json.Unmarshal(t, &s) == nil {
		return s
	}
	var o struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(t, &o) == nil {
		return o.Content
	}
	return ""
}
