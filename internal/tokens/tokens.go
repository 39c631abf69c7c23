// Package tokens turns the tokenizer files of a pack into the metadata of a GGUF
// file, and that into a tokenizer: what package fv5, which knows no tokenizer,
// and package tokenizer, which knows no file, have in common.
package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"npack/pack"
	"npack/pack/fv5"
	"npack/runtime/tokenizer"
)

// FromPack makes a GGUF file's tokenizer of vocab ids out of the files in dir, or
// returns nil if there is no tokenizer.json. Errors about contents are
// [*pack.Error].
func FromPack(dir string, vocab int) (*fv5.Tokenizer, error) {
	const name = "tokenizer.json"
	data, err := pack.ReadOptional(filepath.Join(dir, name), pack.MaxSide)
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
	out := ToGGUF(t, vocab)

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
		b, err := pack.ReadOptional(filepath.Join(dir, f.name), pack.MaxSide)
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
		var n int32
		if id, ok := t.ID(tokenText(s.token)); ok {
			*s.to = id
		} else if json.Unmarshal(s.id, &n) == nil && n >= 0 && int(n) < vocab {
			*s.to = n
		}
	}
	template, err := pack.ReadOptional(filepath.Join(dir, "chat_template.jinja"), pack.MaxSide)
	if err != nil {
		return nil, err
	}
	if out.Template = string(template); template == nil {
		out.Template = templateText(config.Template)
	}
	return out, nil
}

// ToGGUF lays out t for a GGUF file with a token for each of vocab rows of the
// embedding. Special tokens and the template are left to the caller.
func ToGGUF(t *tokenizer.Tokenizer, vocab int) *fv5.Tokenizer {
	v := t.Vocab()
	out := &fv5.Tokenizer{Pre: v.Pre, NFC: v.NFC, Tokens: make([]string, vocab), Types: make([]int32, vocab), Merges: make([]string, len(v.Merges)), BOS: -1, EOS: -1, Pad: -1}
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

// FromGGUF builds the tokenizer that a file holds, or returns nil if it holds
// none. Errors are [*pack.Error].
func FromGGUF(f *fv5.File) (*tokenizer.Tokenizer, error) {
	g, err := f.Tokenizer()
	if g == nil || err != nil {
		return nil, err
	}
	return fromGGUF(f.Name(), g, f.Model().Vocab)
}

// fromGGUF builds the tokenizer g of the file of that name, whose model has vocab
// ids.
func fromGGUF(name string, g *fv5.Tokenizer, vocab int) (*tokenizer.Tokenizer, error) {
	bad := func(kind error, format string, args ...any) error {
		return &pack.Error{Kind: kind, File: name, Place: "tokenizer.ggml", Offset: -1, Found: fmt.Sprintf(format, args...),
			Hint: "the file's tokenizer is damaged or of another kind; token ids work without it: nrun generate --ids 1,2,3"}
	}
	v := tokenizer.Vocab{Pre: g.Pre, NFC: g.NFC, Tokens: g.Tokens, Merges: make([][2]string, len(g.Merges))}
	for id, typ := range g.Types {
		switch typ {
		case fv5.TokenNormal:
		case fv5.TokenControl, fv5.TokenUser:
			v.Added = append(v.Added, tokenizer.Added{ID: int32(id), Text: g.Tokens[id], Special: typ == fv5.TokenControl})
		case fv5.TokenUnused:
			v.Tokens[id] = ""
		default:
			return nil, bad(pack.ErrUnsupported, "token %d is of type %d", id, typ)
		}
	}
	if len(v.Tokens) > vocab {
		return nil, bad(pack.ErrCorrupt, "%d tokens, expected at most %d, the rows of the embedding", len(v.Tokens), vocab)
	}
	for i, m := range g.Merges {
		left, right, ok := strings.Cut(m, " ")
		if !ok {
			return nil, bad(pack.ErrCorrupt, "merge %d is %.80q, expected two tokens", i, m)
		}
		v.Merges[i] = [2]string{left, right}
	}
	t, err := tokenizer.New(v)
	switch {
	case errors.Is(err, tokenizer.ErrUnsupported):
		return nil, bad(pack.ErrUnsupported, "%v", err)
	case err != nil:
		return nil, bad(pack.ErrCorrupt, "%v", err)
	}
	return t, nil
}
