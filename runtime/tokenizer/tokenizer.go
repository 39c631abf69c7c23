// Package tokenizer turns text into token ids and back, for models of the
// Qwen2 and Qwen3 families: byte-level BPE behind NFC and one exact
// pre-tokenizer.
//
// The definition of right is the Hugging Face tokenizers library (0.23.3): the
// same tokenizer.json and the same text give the same ids. What this package
// does not implement it refuses by name when the file is read; it never falls
// back to something similar.
//
// # From text to ids
//
//  1. Bytes that are not UTF-8 become U+FFFD, one for each maximal broken
//     sequence, as Python's errors="replace" would do before the reference
//     sees the text. Encoding such text is the one case in which decoding
//     cannot give the same bytes back.
//  2. Added tokens ("<|im_end|>") are cut out, leftmost and longest first, but
//     only where the text is markup. See [Tokenizer.EncodePieces].
//  3. What lies between them is brought to NFC and cut into words by the
//     pre-tokenizer (scan.go).
//  4. Each word's bytes are merged, lowest rank first, leftmost first (bpe.go).
//
// # Unicode versions
//
// The reference carries Unicode 16 in its regular expressions and Unicode 9 in
// its normalizer; Go 1.26 carries 15. classes.go and nfc.go hold what is
// between them, and tests compare every code point, so that the toolchain's
// version does not show in the ids.
package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// The kinds of failure. All errors of this package about a tokenizer wrap one
// of them.
var (
	ErrCorrupt     = errors.New("corrupt tokenizer")
	ErrTruncated   = errors.New("incomplete tokenizer")
	ErrUnsupported = errors.New("unsupported tokenizer")
)

// Limits that keep a hostile file from costing more than it weighs. The
// largest vocabulary in use has 262,144 entries.
const (
	maxTokens     = 1<<idBits - 1 // ids are below this
	maxAddedBytes = 512           // length of an added token
)

// PreQwen2 names the one pre-tokenizer of this package. GGUF files use the
// same name.
const PreQwen2 = "qwen2"

// Vocab is what a tokenizer is made of, in the form that tokenizer.json and
// GGUF metadata share. Strings are in the byte-level alphabet ("Ġthe" for
// " the"), except the text of added tokens.
type Vocab struct {
	Pre    string      // pre-tokenizer: PreQwen2
	NFC    bool        // bring text to NFC first
	Tokens []string    // by id; "" where there is none or it is only in Added
	Merges [][2]string // lowest rank first
	Added  []Added
}

// Added is a token that is cut out of markup before everything else.
type Added struct {
	ID      int32
	Text    string // as it stands in text
	Special bool   // control token: not part of the text a user reads
}

// Tokenizer is immutable from a caller's view and may be used by many
// goroutines at once.
type Tokenizer struct {
	nfc    bool
	text   string   // bytes of all tokens, one after the other
	ends   []uint32 // token i is text[ends[i-1]:ends[i]]
	merges []merge
	added  []addedToken
	flags  []uint8 // by id: flagAdded, flagSpecial

	byteID [256]int32
	pairs  pairTable
	names  nameTable
	marks  markSet
	whole  []uint32 // two bits by id; see wholeWord
	pool   sync.Pool
}

type merge struct{ left, right, result int32 }

type addedToken struct {
	id      int32
	special bool
}

const (
	flagAdded   = 1
	flagSpecial = 2
)

// New builds a tokenizer and checks every rule that encoding relies on: each
// byte has a token, merges join known tokens to known tokens, no token or
// merge stands twice.
func New(v Vocab) (*Tokenizer, error) {
	if v.Pre != PreQwen2 {
		return nil, fmt.Errorf("pre-tokenizer %q: %w, expected %q", v.Pre, ErrUnsupported, PreQwen2)
	}
	n := len(v.Tokens)
	for _, a := range v.Added {
		if a.ID < 0 || a.ID >= maxTokens {
			return nil, fmt.Errorf("added token %q: id %d: %w, expected 0 to %d", a.Text, a.ID, ErrUnsupported, maxTokens-1)
		}
		n = max(n, int(a.ID)+1)
	}
	if n > maxTokens {
		return nil, fmt.Errorf("vocabulary: %d ids: %w, expected at most %d", n, ErrUnsupported, maxTokens)
	}

	literal := make(map[int32]string, len(v.Added))
	t := &Tokenizer{nfc: v.NFC, added: make([]addedToken, 0, len(v.Added))}
	for _, a := range v.Added {
		if err := checkAdded(a, v.Tokens, literal); err != nil {
			return nil, err
		}
		literal[a.ID] = a.Text
		t.added = append(t.added, addedToken{a.ID, a.Special})
	}
	if err := t.layOut(n, v.Tokens, literal); err != nil {
		return nil, err
	}
	if err := t.indexTokens(); err != nil {
		return nil, err
	}
	if err := t.resolveMerges(v); err != nil {
		return nil, err
	}
	if err := t.pairs.fill(t.merges); err != nil {
		return nil, err
	}
	return t, nil
}

// layOut puts the bytes of n tokens one after the other.
func (t *Tokenizer) layOut(n int, names []string, literal map[int32]string) error {
	var blob []byte
	t.ends = make([]uint32, n)
	for id := range n {
		if text, ok := literal[int32(id)]; ok {
			blob = append(blob, text...)
		} else if id < len(names) {
			var bad rune
			if blob, bad = appendBytes(blob, names[id]); bad >= 0 {
				return fmt.Errorf("token %d %q: character %U is not of the byte-level alphabet: %w", id, names[id], bad, ErrUnsupported)
			}
		}
		if uint64(len(blob)) > 1<<31 {
			return fmt.Errorf("vocabulary: over 2 GiB of text: %w", ErrUnsupported)
		}
		t.ends[id] = uint32(len(blob))
	}
	t.text = string(blob)
	return nil
}

// resolveMerges turns names into ids.
func (t *Tokenizer) resolveMerges(v Vocab) error {
	t.merges = make([]merge, len(v.Merges))
	var buf []byte
	for i, m := range v.Merges {
		left, bad := appendBytes(buf[:0], m[0])
		both, worse := appendBytes(left, m[1])
		if bad = max(bad, worse); bad >= 0 {
			return fmt.Errorf("merge %d %q: character %U is not of the byte-level alphabet: %w", i, m, bad, ErrCorrupt)
		}
		buf = both
		joined := string(both)
		var ids [3]int32
		for k, part := range [3]string{joined[:len(left)], joined[len(left):], joined} {
			id, ok := t.names.find(t, part)
			// A token that is only an added one is no part of the model.
			if !ok || int(id) >= len(v.Tokens) || v.Tokens[id] == "" {
				return fmt.Errorf("merge %d %q: %q is no token: %w", i, m, part, ErrCorrupt)
			}
			ids[k] = id
		}
		t.merges[i] = merge{ids[0], ids[1], ids[2]}
	}
	return nil
}

func checkAdded(a Added, tokens []string, seen map[int32]string) error {
	switch {
	case a.Text == "":
		return fmt.Errorf("added token %d: empty text: %w", a.ID, ErrCorrupt)
	case len(a.Text) > maxAddedBytes:
		return fmt.Errorf("added token %d: %d bytes: %w, expected at most %d", a.ID, len(a.Text), ErrUnsupported, maxAddedBytes)
	case !utf8.ValidString(a.Text):
		return fmt.Errorf("added token %d: not UTF-8: %w", a.ID, ErrCorrupt)
	}
	if other, twice := seen[a.ID]; twice {
		return fmt.Errorf("added tokens %q and %q: both have id %d: %w", other, a.Text, a.ID, ErrCorrupt)
	}
	if int(a.ID) < len(tokens) && tokens[a.ID] != "" && tokens[a.ID] != a.Text {
		return fmt.Errorf("added token %q: id %d is token %q: %w", a.Text, a.ID, tokens[a.ID], ErrCorrupt)
	}
	return nil
}

// indexTokens makes what is needed to find tokens, from text, ends and added,
// which New or the cache have filled and found in range.
func (t *Tokenizer) indexTokens() error {
	n := len(t.ends)
	t.flags = make([]uint8, n)
	t.whole = make([]uint32, (n+15)/16)
	t.pool.New = func() any { return new(scratch) }
	texts := make([]string, len(t.added))
	for i, a := range t.added {
		t.flags[a.id] = flagAdded
		if a.special {
			t.flags[a.id] |= flagSpecial
		}
		texts[i] = t.bytesOf(a.id)
	}
	t.marks = newMarkSet(texts, t.added)
	if err := t.names.fill(t); err != nil {
		return err
	}
	for b := range 256 {
		id, ok := t.names.find(t, string([]byte{byte(b)}))
		if !ok || t.flags[id] != 0 {
			return fmt.Errorf("vocabulary: no token for byte 0x%02x: not byte-level BPE: %w", b, ErrUnsupported)
		}
		t.byteID[b] = id
	}
	return nil
}

// Len returns one more than the largest id. A model may have more rows than
// that in its output matrix; those rows stand for no text.
func (t *Tokenizer) Len() int { return len(t.ends) }

// bytesOf returns the bytes of an id that is in range.
func (t *Tokenizer) bytesOf(id int32) string {
	start := uint32(0)
	if id > 0 {
		start = t.ends[id-1]
	}
	return t.text[start:t.ends[id]]
}

// Token returns the bytes that id stands for, which need not be whole
// characters, and whether it is a control token. For an id that stands for
// nothing it returns "", false.
func (t *Tokenizer) Token(id int32) (bytes string, control bool) {
	if id < 0 || int(id) >= len(t.ends) {
		return "", false
	}
	return t.bytesOf(id), t.flags[id]&flagSpecial != 0
}

// ID returns the token that stands for exactly these bytes: "<|im_end|>",
// " the".
func (t *Tokenizer) ID(token string) (int32, bool) {
	return t.names.find(t, token)
}

// Added returns the added tokens in the order of their ids.
func (t *Tokenizer) Added() []Added {
	out := make([]Added, len(t.added))
	for i, a := range t.added {
		out[i] = Added{a.id, t.bytesOf(a.id), a.special}
	}
	slices.SortFunc(out, func(a, b Added) int { return int(a.ID) - int(b.ID) })
	return out
}
