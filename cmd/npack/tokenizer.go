package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"npack/internal/cli"
	"npack/pack"
	"npack/pack/fv5"
	"npack/runtime/tokenizer"
)

// maxSideFile bounds a file beside the model, in bytes. The tokenizer.json of
// Qwen3 has 11 MB.
const maxSideFile = 64 << 20

// sideFile reads a file of dir, or nil if it is not there.
func sideFile(dir, name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSideFile+1))
	if err == nil && len(b) > maxSideFile {
		err = &pack.Error{Kind: pack.ErrUnsupported, File: f.Name(), Offset: -1, Found: "larger than expected of such a file",
			Expected: fmt.Sprintf("at most %s bytes", cli.Group(maxSideFile))}
	}
	return b, err
}

// readTokenizer makes a GGUF file's tokenizer of vocab ids out of the files in
// dir, or returns nil if there is no tokenizer.json.
func readTokenizer(dir string, vocab int) (*fv5.Tokenizer, error) {
	const name = "tokenizer.json"
	data, err := sideFile(dir, name)
	if err != nil || data == nil {
		return nil, err
	}
	bad := func(name string, err error, hint string) error {
		e := &pack.Error{Kind: pack.ErrCorrupt, File: filepath.Join(dir, name), Offset: -1, Found: err.Error(), Hint: hint}
		switch {
		case errors.Is(err, tokenizer.ErrUnsupported):
			e.Kind = pack.ErrUnsupported
		case errors.Is(err, tokenizer.ErrTruncated):
			e.Kind = pack.ErrTruncated
		}
		return e
	}
	t, err := tokenizer.FromJSON(data)
	if err != nil {
		return nil, bad(name, err, "fetch the pack's "+name+" again")
	}
	if t.Len() > vocab {
		return nil, bad(name, fmt.Errorf("%d token ids, expected at most %d, the vocabulary of the model", t.Len(), vocab), "this tokenizer belongs to another model")
	}
	out := tokenizerOf(t, vocab)

	var config struct {
		Template json.RawMessage `json:"chat_template"`
		BOS      json.RawMessage `json:"bos_token"`
		EOS      json.RawMessage `json:"eos_token"`
		Pad      json.RawMessage `json:"pad_token"`
	}
	var ids struct {
		BOS json.RawMessage `json:"bos_token_id"`
		EOS json.RawMessage `json:"eos_token_id"`
		Pad json.RawMessage `json:"pad_token_id"`
	}
	for _, f := range []struct {
		name string
		to   any
	}{{"tokenizer_config.json", &config}, {"config.json", &ids}} {
		b, err := sideFile(dir, f.name)
		if err == nil && b != nil {
			err = json.Unmarshal(b, f.to)
		}
		if err != nil {
			return nil, bad(f.name, err, "fetch the pack's "+f.name+" again")
		}
	}
	for _, s := range []struct {
		to        *int32
		token, id json.RawMessage
	}{{&out.BOS, config.BOS, ids.BOS}, {&out.EOS, config.EOS, ids.EOS}, {&out.Pad, config.Pad, ids.Pad}} {
		*s.to = -1
		var n int32
		if id, ok := t.ID(tokenText(s.token)); ok {
			*s.to = id
		} else if json.Unmarshal(s.id, &n) == nil && n >= 0 && int(n) < vocab {
			*s.to = n
		}
	}
	template, err := sideFile(dir, "chat_template.jinja")
	if err != nil {
		return nil, err
	}
	if out.Template = string(template); template == nil {
		out.Template = templateText(config.Template)
	}
	return out, nil
}

// tokenizerOf lays out t for a GGUF file with a token for each row of the
// embedding.
func tokenizerOf(t *tokenizer.Tokenizer, vocab int) *fv5.Tokenizer {
	v := t.Vocab()
	out := &fv5.Tokenizer{Pre: v.Pre, NFC: v.NFC, Tokens: make([]string, vocab), Types: make([]int32, vocab), Merges: make([]string, len(v.Merges))}
	for id := range vocab {
		switch {
		case id < len(v.Tokens) && v.Tokens[id] != "":
			out.Tokens[id], out.Types[id] = v.Tokens[id], fv5.TokenNormal
		default:
			out.Tokens[id], out.Types[id] = fmt.Sprintf("[PAD%d]", id), fv5.TokenUnused
		}
	}
	for _, a := range v.Added {
		if out.Types[a.ID] = fv5.TokenUser; a.Special {
			out.Types[a.ID] = fv5.TokenControl
		}
	}
	for i, m := range v.Merges {
		out.Merges[i] = m[0] + " " + m[1]
	}
	return out
}

// tokenText is a token of tokenizer_config.json: its text, or an object with it.
func tokenText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var o struct {
		Content string `json:"content"`
	}
	_ = json.Unmarshal(raw, &o) // null has none
	return o.Content
}

// templateText is the chat_template of tokenizer_config.json: a text, or a list
// of named ones, of which "default" is meant for chats.
func templateText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var named []struct{ Name, Template string }
	_ = json.Unmarshal(raw, &named) // none if it is neither
	for _, n := range named {
		if n.Name == "default" {
			return n.Template
		}
	}
	return ""
}
