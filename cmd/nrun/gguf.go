package main

import (
	"encoding/json"

	"npack/internal/tokens"
	"npack/pack"
	"npack/pack/formats"
	"npack/pack/fv5"
	"npack/runtime/chat"
	"npack/runtime/tokenizer"
)

// gguf opens the model if it is a GGUF file and returns it, otherwise nil. A
// GGUF file brings its tokenizer and template along; what lies beside it may be
// of other models.
func (p *packOf) gguf() (*fv5.File, error) {
	if p.path == "" {
		return nil, nil
	}
	if p.src == nil {
		path, err := formats.Container(p.path)
		if err != nil {
			return nil, nil // Model says so, to who asks for it
		}
		f, err := formats.Detect(path)
		if err != nil || f.Kind != pack.KindGGUF {
			return nil, nil
		}
		if _, err := p.Model(); err != nil {
			return nil, err
		}
	}
	f, _ := p.src.(*fv5.File)
	return f, nil
}

// ggufTokenizer returns the tokenizer of a GGUF file, or nil.
func (p *packOf) ggufTokenizer() (*tokenizer.Tokenizer, error) {
	f, err := p.gguf()
	if f == nil || err != nil {
		return nil, err
	}
	return tokens.FromGGUF(f)
}

// ggufTemplate replaces what lies beside a GGUF file by the template that it
// holds, if it holds one, and the text of its end token.
func (p *packOf) ggufTemplate(files *chat.Pack) error {
	f, err := p.gguf()
	if f == nil || err != nil {
		return err
	}
	text := f.Template()
	if text == "" {
		return nil
	}
	files.ChatTemplate = []byte(text)
	g, err := f.Tokenizer()
	if g == nil || err != nil {
		return err
	}
	// The form in which package chat knows special tokens.
	special := map[string]string{}
	for key, id := range map[string]int32{"bos_token": g.BOS, "eos_token": g.EOS} {
		if id >= 0 {
			special[key] = g.Tokens[id]
		}
	}
	files.TokenizerConfig, err = json.Marshal(special)
	return err
}
