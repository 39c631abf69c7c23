package hf

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"npack/internal/outfile"
	"npack/pack"
)

// SideFiles are the files beside a model that programs read a tokenizer and a
// chat from. They are copied unchanged.
var SideFiles = []string{
	"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
	"special_tokens_map.json", "added_tokens.json", "chat_template.jinja", generationConfig,
}

const generationConfig = "generation_config.json"

// Side is what files beside a model say that config.json wants: JSON numbers or
// lists of them, nil where nobody says it.
type Side struct {
	BOS, EOS, Pad json.RawMessage
	Tokenizer     bool // tokenizer.json is there
}

// CopySide copies the tokenizer's files from the directory from into d. Ids of
// tokens come from config.json there, and if that has none from
// generation_config.json; without the latter one is written. Errors about
// contents are [*pack.Error].
func CopySide(d *outfile.Dir, from string, vocab int) (*Side, error) {
	s := &Side{}
	generation := false
	for _, name := range SideFiles {
		b, err := pack.ReadOptional(filepath.Join(from, name), pack.MaxSide)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		s.Tokenizer = s.Tokenizer || name == "tokenizer.json"
		generation = generation || name == generationConfig
		if err := d.WriteFile(name, b); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"config.json", generationConfig} {
		if err := s.ids(filepath.Join(from, name), vocab); err != nil {
			return nil, err
		}
	}
	if generation || s.EOS == nil {
		return s, nil
	}
	return s, d.WriteFile(generationConfig, Object{{"eos_token_id", s.EOS}}.Encode())
}

// ids takes the ids that the file at path has and s has not yet.
func (s *Side) ids(path string, vocab int) error {
	b, err := pack.ReadOptional(path, pack.MaxSide)
	if err != nil || b == nil {
		return err
	}
	var c struct {
		BOS json.RawMessage `json:"bos_token_id"`
		EOS json.RawMessage `json:"eos_token_id"`
		Pad json.RawMessage `json:"pad_token_id"`
	}
	bad := func(found string) error {
		return &pack.Error{Kind: pack.ErrCorrupt, File: path, Offset: -1, Found: found, Expected: "ids of tokens", Hint: "fetch the file again"}
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return bad(err.Error())
	}
	for _, x := range []struct {
		name string
		from json.RawMessage
		to   *json.RawMessage
	}{{"bos_token_id", c.BOS, &s.BOS}, {"eos_token_id", c.EOS, &s.EOS}, {"pad_token_id", c.Pad, &s.Pad}} {
		if x.from == nil || string(x.from) == "null" || *x.to != nil {
			continue
		}
		list := make([]int, 1)
		if json.Unmarshal(x.from, &list[0]) != nil && json.Unmarshal(x.from, &list) != nil {
			return bad(fmt.Sprintf("%s is %.80s", x.name, x.from))
		}
		for _, id := range list {
			if id < 0 || id >= vocab {
				return bad(fmt.Sprintf("%s is %d in a vocabulary of %d", x.name, id, vocab))
			}
		}
		*x.to = x.from
	}
	return nil
}
