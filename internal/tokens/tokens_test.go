package tokens_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"npack/internal/tokens"
	"npack/pack"
	"npack/pack/fv5"
	"npack/pack/native"
	"npack/runtime/tokenizer"
	"npack/testdata/story"
)

const dir = "../../testdata/story"

// through writes a story model with the tokenizer and reads it back.
func through(t *testing.T, g *fv5.Tokenizer) *fv5.File {
	t.Helper()
	m, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := fv5.Write(&b, m.Model(), fv5.Options{Tokenizer: g}); err != nil {
		t.Fatal(err)
	}
	f, err := fv5.OpenBytes("m.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// From the pack into a file and back it is the same tokenizer.
func TestRoundTrip(t *testing.T) {
	g, err := tokens.FromPack(dir, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if g.EOS != 4095 || g.BOS != 4093 || g.Pad != 4093 || g.Types[4095] != fv5.TokenControl || g.Types[256] != fv5.TokenNormal || len(g.Template) != len(story.ChatTemplate) {
		t.Errorf("eos %d, bos %d, pad %d, %d bytes of template", g.EOS, g.BOS, g.Pad, len(g.Template))
	}
	got, err := tokens.FromGGUF(through(t, g))
	if err != nil {
		t.Fatal(err)
	}
	want, err := tokenizer.FromJSON(story.TokenizerJSON)
	if err != nil {
		t.Fatal(err)
	}
	const text = "Once  upon a time, <|im_end|> naïve e\u0301 «x» 123\n\n"
	if a, b := want.Encode(nil, text), got.Encode(nil, text); !slices.Equal(a, b) || got.Len() != want.Len() {
		t.Errorf("%v, want %v", b, a)
	}
	if !slices.Equal(got.Added(), want.Added()) {
		t.Errorf("%v, want %v", got.Added(), want.Added())
	}
}

// Rows of the embedding without a token are named and unused, and stay without.
func TestPadding(t *testing.T) {
	tok, err := tokenizer.FromJSON(story.TokenizerJSON)
	if err != nil {
		t.Fatal(err)
	}
	g := tokens.ToGGUF(tok, 4100)
	if g.Tokens[4099] != "[PAD4099]" || g.Types[4099] != fv5.TokenUnused || len(g.Types) != 4100 {
		t.Errorf("%q, %d", g.Tokens[4099], g.Types[4099])
	}
	if g, err := tokens.FromPack(t.TempDir(), 10); g != nil || err != nil {
		t.Errorf("an empty directory: %v, %v", g, err)
	}
	if _, err := tokens.FromPack(dir, 100); !errors.Is(err, pack.ErrCorrupt) || !strings.Contains(err.Error(), "4096 token ids") {
		t.Errorf("another model's: %v", err)
	}
}

// The template and special tokens where only tokenizer_config.json has them, in
// all its forms.
func TestConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		config, template string
		eos              int32
	}{
		"texts":   {`{"chat_template":"{{ a }}","eos_token":"<|im_end|>"}`, "{{ a }}", 4095},
		"objects": {`{"chat_template":[{"name":"x","template":"n"},{"name":"default","template":"d"}],"eos_token":{"content":"<|endoftext|>"}}`, "d", 4093},
		"nothing": {`{"chat_template":null,"eos_token":null}`, "", -1},
		"unknown": {`{"eos_token":"</s>"}`, "", -1},
	} {
		d := t.TempDir()
		for file, text := range map[string]string{"tokenizer.json": string(story.TokenizerJSON), "tokenizer_config.json": tt.config} {
			if err := os.WriteFile(filepath.Join(d, file), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		g, err := tokens.FromPack(d, 4096)
		if err != nil || g.Template != tt.template || g.EOS != tt.eos {
			t.Errorf("%s: %q, %d, %v", name, g.Template, g.EOS, err)
		}
	}
}

func TestRefuse(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(g *fv5.Tokenizer)
		kind    error
		mention string
	}{
		"pre-tokenizer": {func(g *fv5.Tokenizer) { g.Pre = "llama-bpe" }, pack.ErrUnsupported, "llama-bpe"},
		"byte tokens":   {func(g *fv5.Tokenizer) { g.Types[3] = 6 }, pack.ErrUnsupported, "token 3 is of type 6"},
		"merge":         {func(g *fv5.Tokenizer) { g.Merges[7] = "ab" }, pack.ErrCorrupt, "merge 7"},
		"twice":         {func(g *fv5.Tokenizer) { g.Tokens[300] = g.Tokens[301] }, pack.ErrCorrupt, "ids"},
		"types":         {func(g *fv5.Tokenizer) { g.Types = g.Types[1:] }, pack.ErrCorrupt, "one type for each"},
		"eos":           {func(g *fv5.Tokenizer) { g.EOS = 4096 }, pack.ErrCorrupt, "eos_token_id"},
		"too many": {func(g *fv5.Tokenizer) {
			g.Tokens, g.Types = append(g.Tokens, "zz"), append(g.Types, fv5.TokenUnused)
		}, pack.ErrCorrupt, "4097 tokens"},
	} {
		g, err := tokens.FromPack(dir, 4096)
		if err != nil {
			t.Fatal(err)
		}
		tt.change(g)
		if _, err := tokens.FromGGUF(through(t, g)); !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.mention) {
			t.Errorf("%s: %v, want %v that mentions %q", name, err, tt.kind, tt.mention)
		}
	}
	if tok, err := tokens.FromGGUF(through(t, nil)); tok != nil || err != nil {
		t.Errorf("no tokenizer: %v, %v", tok, err)
	}
}
