package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// FromJSON builds a tokenizer from a tokenizer.json of the Hugging Face
// tokenizers library. It takes byte-level BPE with the pre-tokenizer of Qwen2
// and Qwen3, with NFC or without a normalizer, and refuses every other
// component and option by name, with an error that wraps [ErrUnsupported].
// Other errors wrap [ErrCorrupt], or [ErrTruncated] if the JSON ends too
// early, with the byte offset where it is known. data is not kept.
func FromJSON(data []byte) (*Tokenizer, error) {
	var f jsonFile
	if err := decodeJSON(data, &f); err != nil {
		return nil, err
	}
	nfc, err := f.check()
	if err != nil {
		return nil, err
	}
	v := Vocab{Pre: PreQwen2, NFC: nfc, Merges: f.Model.Merges}
	if v.Tokens, err = f.Model.Vocab.byID(); err != nil {
		return nil, err
	}
	// The reference does not read an added token's id: it takes the model's, or
	// the next free one, and warns. A file that says otherwise has two meanings.
	free := int64(len(f.Model.Vocab.names))
	for _, a := range f.Added {
		if a.SingleWord || a.LStrip || a.RStrip || a.Normalized {
			return nil, fmt.Errorf("added_tokens: %q: single_word, lstrip, rstrip or normalized is set: %w", a.Content, ErrUnsupported)
		}
		if a.ID < 0 || a.ID >= maxTokens {
			return nil, fmt.Errorf("added_tokens: %q: id %d: %w, expected 0 to %d", a.Content, a.ID, ErrUnsupported, maxTokens-1)
		}
		if inModel := a.ID < int64(len(v.Tokens)) && v.Tokens[a.ID] == a.Content; !inModel && a.ID != free {
			return nil, fmt.Errorf("added_tokens: %q: id %d: %w, expected the next free id %d", a.Content, a.ID, ErrUnsupported, free)
		}
		free = max(free, a.ID+1)
		v.Added = append(v.Added, Added{int32(a.ID), a.Content, a.Special})
	}
	return New(v)
}

// decodeJSON is json.Unmarshal with errors of this package.
func decodeJSON(data []byte, f *jsonFile) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("tokenizer.json: empty: %w", ErrTruncated)
	}
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, n := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return fmt.Errorf("tokenizer.json: byte %d: not UTF-8: %w", at, ErrCorrupt)
	}
	err := json.Unmarshal(data, f)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrUnsupported): // our own walkers
		return err
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(data)), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("tokenizer.json: byte %d: %v: %w", len(data), err, ErrTruncated)
	case errors.As(err, &syntax):
		return fmt.Errorf("tokenizer.json: byte %d: %v: %w", syntax.Offset, err, ErrCorrupt)
	case errors.As(err, &kind):
		return fmt.Errorf("%s: byte %d: found %s: %w, expected %v", kind.Field, kind.Offset, kind.Value, ErrCorrupt, kind.Type)
	}
	return fmt.Errorf("tokenizer.json: %v: %w", err, ErrCorrupt)
}

// jsonFile is tokenizer.json as far as it has a meaning here.
type jsonFile struct {
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	Added         []jsonAdded     `json:"added_tokens"`
	Normalizer    *component      `json:"normalizer"`
	PreTokenizer  *component      `json:"pre_tokenizer"`
	PostProcessor *component      `json:"post_processor"`
	Decoder       *component      `json:"decoder"`
	Model         *jsonModel      `json:"model"`
}

type jsonAdded struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type jsonModel struct {
	Type         string   `json:"type"`
	Dropout      *float64 `json:"dropout"`
	Prefix       string   `json:"continuing_subword_prefix"`
	Suffix       string   `json:"end_of_word_suffix"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
	Vocab        vocabMap `json:"vocab"`
	Merges       pairList `json:"merges"`
	// unk_token and fuse_unk have no effect: New asks for a token for each
	// byte, so nothing is unknown.
}

// component is a normalizer, pre-tokenizer, post-processor or decoder.
type component struct {
	Type          string      `json:"type"`
	Normalizers   []component `json:"normalizers"`
	PreTokenizers []component `json:"pretokenizers"`
	Pattern       struct {
		Regex  string `json:"Regex"`
		String string `json:"String"`
	} `json:"pattern"`
	Behavior       string `json:"behavior"`
	Invert         bool   `json:"invert"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
	UseRegex       *bool  `json:"use_regex"`
}

// check refuses what this package does not do and reports whether text is
// brought to NFC.
func (f *jsonFile) check() (nfc bool, err error) {
	refuse := func(key, format string, args ...any) (bool, error) {
		return false, fmt.Errorf("%s: %s: %w", key, fmt.Sprintf(format, args...), ErrUnsupported)
	}
	switch {
	case len(f.Truncation) > 0 && string(f.Truncation) != "null":
		return refuse("truncation", "is set, expected null")
	case len(f.Padding) > 0 && string(f.Padding) != "null":
		return refuse("padding", "is set, expected null")
	}

	switch m := f.Model; {
	case m == nil:
		return false, fmt.Errorf("model: missing: %w", ErrCorrupt)
	case m.Type != "BPE":
		return refuse("model", "type %q, expected \"BPE\"", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return refuse("model", "dropout %v, expected none", *m.Dropout)
	case m.Prefix != "" || m.Suffix != "":
		return refuse("model", "continuing_subword_prefix %q and end_of_word_suffix %q, expected none", m.Prefix, m.Suffix)
	case m.ByteFallback:
		return refuse("model", "byte_fallback is set")
	case m.IgnoreMerges:
		return refuse("model", "ignore_merges is set")
	case len(m.Vocab.names) == 0:
		return false, fmt.Errorf("model.vocab: empty or missing: %w", ErrCorrupt)
	}

	switch n := f.Normalizer; {
	case n == nil || n.Type == "Sequence" && len(n.Normalizers) == 0:
	case n.Type == "NFC" || n.Type == "Sequence" && len(n.Normalizers) == 1 && n.Normalizers[0].Type == "NFC":
		nfc = true
	default:
		return refuse("normalizer", "%s, expected NFC", n.describe(n.Normalizers))
	}

	p := f.PreTokenizer
	if p == nil {
		return refuse("pre_tokenizer", "none, expected the one of Qwen2")
	}
	if p.Type != "Sequence" || len(p.PreTokenizers) != 2 ||
		p.PreTokenizers[0].Type != "Split" || p.PreTokenizers[1].Type != "ByteLevel" {
		return refuse("pre_tokenizer", "%s, expected Split and ByteLevel", p.describe(p.PreTokenizers))
	}
	split, bytes := &p.PreTokenizers[0], &p.PreTokenizers[1]
	switch {
	case split.Pattern.Regex != qwen2Pattern:
		return refuse("pre_tokenizer", "pattern %q%q, expected the one of Qwen2", split.Pattern.Regex, split.Pattern.String)
	case split.Behavior != "Isolated" || split.Invert:
		return refuse("pre_tokenizer", "behavior %q, invert %v, expected Isolated", split.Behavior, split.Invert)
	case !isFalse(bytes.AddPrefixSpace):
		return refuse("pre_tokenizer", "add_prefix_space is set")
	case !isFalse(bytes.UseRegex):
		return refuse("pre_tokenizer", "use_regex is set")
	}

	// ByteLevel as a post-processor moves offsets, not ids; as a decoder its
	// options have no effect.
	if q := f.PostProcessor; q != nil && q.Type != "ByteLevel" {
		return refuse("post_processor", "%q, expected ByteLevel or none", q.Type)
	}
	if f.Decoder == nil || f.Decoder.Type != "ByteLevel" {
		name := "none"
		if f.Decoder != nil {
			name = f.Decoder.Type
		}
		return refuse("decoder", "%q, expected ByteLevel", name)
	}
	return nfc, nil
}

// describe names a component with its parts.
func (c *component) describe(parts []component) string {
	s := fmt.Sprintf("%q", c.Type)
	for i, p := range parts {
		if i == 8 {
			return s + " …"
		}
		s += fmt.Sprintf(" %q", p.Type)
	}
	return s
}

// isFalse: both options of ByteLevel are on unless they are switched off.
func isFalse(b *bool) bool { return b != nil && !*b }
