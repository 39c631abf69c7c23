package fv5

import (
	"npack/gguf"
	"npack/pack"
)

// Tokenizer is what a GGUF file says about text, in the form that llama.cpp
// reads: a byte-level BPE.
type Tokenizer struct {
	Pre    string   // pre-tokenizer: "qwen2"
	Tokens []string // by id, in the byte-level alphabet; added tokens as text
	Types  []int32  // by id: one of the Token constants
	Merges []string // "left right", lowest rank first
	// Ids of special tokens, -1 for none.
	BOS, EOS, Pad int32
	Template      string // of a chat, or ""
	// NFC says whether text is brought to NFC first. llama.cpp has no key for
	// it; without one of ours it is so, as in all Qwen models.
	NFC bool
}

// Types of tokens, with llama.cpp's numbers.
const (
	TokenNormal  = 1
	TokenControl = 3 // not part of the text a user reads
	TokenUser    = 4 // added, but text
	TokenUnused  = 5 // a row of the embedding that stands for nothing
)

const (
	keyModel    = "tokenizer.ggml.model"
	keyPre      = "tokenizer.ggml.pre"
	keyTokens   = "tokenizer.ggml.tokens"
	keyTypes    = "tokenizer.ggml.token_type"
	keyMerges   = "tokenizer.ggml.merges"
	keyBOS      = "tokenizer.ggml.bos_token_id"
	keyEOS      = "tokenizer.ggml.eos_token_id"
	keyPad      = "tokenizer.ggml.padding_token_id"
	keyAddBOS   = "tokenizer.ggml.add_bos_token"
	keyTemplate = "tokenizer.chat_template"
	keyNFC      = "npack.tokenizer.nfc"
	modelBPE    = "gpt2"
	noToken     = -1
)

// metadata returns the entries of the tokenizer.
func (t *Tokenizer) metadata() []gguf.KV {
	kv := []gguf.KV{
		{Key: keyModel, Value: gguf.String(modelBPE)}, {Key: keyPre, Value: gguf.String(t.Pre)},
		{Key: keyTokens, Value: gguf.Strings(t.Tokens)}, {Key: keyTypes, Value: gguf.Int32s(t.Types)},
		{Key: keyMerges, Value: gguf.Strings(t.Merges)},
	}
	for _, id := range []struct {
		key string
		id  int32
	}{{keyBOS, t.BOS}, {keyEOS, t.EOS}, {keyPad, t.Pad}} {
		if id.id != noToken {
			kv = append(kv, gguf.KV{Key: id.key, Value: gguf.Uint32(uint32(id.id))})
		}
	}
	kv = append(kv, gguf.KV{Key: keyAddBOS, Value: gguf.Bool(false)})
	if !t.NFC {
		kv = append(kv, gguf.KV{Key: keyNFC, Value: gguf.Bool(false)})
	}
	if t.Template != "" {
		kv = append(kv, gguf.KV{Key: keyTemplate, Value: gguf.String(t.Template)})
	}
	return kv
}

// Tokenizer reads the file's tokenizer, or returns nil if there is none. It
// copies all tokens. Errors are [*pack.Error].
func (f *File) Tokenizer() (*Tokenizer, error) { return ReadTokenizer(f.g) }

// ReadTokenizer is [File.Tokenizer] for any GGUF file.
func ReadTokenizer(g *gguf.File) (*Tokenizer, error) {
	f := &File{name: g.Name(), g: g} // for its errors
	model, ok := g.Value(keyModel)
	if !ok {
		return nil, nil
	}
	if s, _ := model.Text(); s != modelBPE {
		return nil, f.fail(pack.ErrUnsupported, "key "+quote(keyModel), "the tokenizer is "+model.Print(), quote(modelBPE)+", a byte-level BPE", "run the file with llama.cpp")
	}
	t := &Tokenizer{BOS: noToken, EOS: noToken, Pad: noToken, NFC: true}
	list := func(key string) ([]string, error) {
		v, _ := f.g.Value(key)
		s, ok := v.Strings()
		if !ok {
			return nil, f.fail(pack.ErrCorrupt, "key "+quote(key), "no strings are there", "an array of strings", hintDamaged)
		}
		return s, nil
	}
	var err error
	if t.Tokens, err = list(keyTokens); err != nil {
		return nil, err
	}
	if t.Merges, err = list(keyMerges); err != nil {
		return nil, err
	}
	if v, ok := f.g.Value(keyPre); ok {
		t.Pre, _ = v.Text()
	}
	types, _ := f.g.Value(keyTypes)
	t.Types = make([]int32, 0, min(types.Len, len(t.Tokens)))
	for _, n := range types.Ints() {
		t.Types = append(t.Types, int32(n))
	}
	if len(t.Types) != len(t.Tokens) {
		return nil, f.fail(pack.ErrCorrupt, "key "+quote(keyTypes), "the value is "+types.Print(), "one type for each token", hintDamaged)
	}
	for _, id := range []struct {
		key string
		to  *int32
	}{{keyBOS, &t.BOS}, {keyEOS, &t.EOS}, {keyPad, &t.Pad}} {
		v, ok := f.g.Value(id.key)
		if !ok {
			continue
		}
		n, ok := v.Uint()
		if !ok || n >= uint64(len(t.Tokens)) {
			return nil, f.fail(pack.ErrCorrupt, "key "+quote(id.key), "the value is "+v.Print(), "the id of a token", hintDamaged)
		}
		*id.to = int32(n)
	}
	if v, ok := f.g.Value(keyNFC); ok {
		t.NFC, _ = v.Bool()
	}
	t.Template = f.Template()
	return t, nil
}

// Template returns the file's chat template, or "".
func (f *File) Template() string {
	v, _ := f.g.Value(keyTemplate)
	s, _ := v.Text()
	return s
}
