package tokenizer

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// JSON returns a tokenizer.json that [FromJSON], and the Hugging Face tokenizers
// library, build the same tokenizer of. Added tokens are in the model's
// vocabulary as well, under their ids: whether they would get the same ids
// without that depends on which others there are.
func (v *Vocab) JSON() ([]byte, error) {
	type object map[string]any
	var added []object
	for _, a := range v.Added {
		added = append(added, object{"id": a.ID, "content": a.Text, "special": a.Special,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	var normalizer any
	if v.NFC {
		normalizer = object{"type": "NFC"}
	}
	level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	merges := v.Merges
	if merges == nil {
		merges = [][2]string{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": normalizer,
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": qwen2Pattern}, "behavior": "Isolated", "invert": false}, level}},
		"post_processor": level, "decoder": level,
		"model": object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary(v.tokens()), "merges": merges},
	})
	return b.Bytes(), err
}

// tokens are all tokens by id, added ones too.
func (v *Vocab) tokens() []string {
	tokens := append([]string(nil), v.Tokens...)
	for _, a := range v.Added {
		for int(a.ID) >= len(tokens) {
			tokens = append(tokens, "")
		}
		tokens[a.ID] = a.Text
	}
	return tokens
}

// vocabulary is written in the order of ids.
type vocabulary []string

func (v vocabulary) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for id, token := range v {
		if token == "" {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		name, err := json.Marshal(token)
		if err != nil {
			return nil, err
		}
		b = strconv.AppendInt(append(append(b, name...), ':'), int64(id), 10)
	}
	return append(b, '}'), nil
}
