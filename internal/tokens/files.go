package tokens

import (
	"encoding/json"

	"npack/gguf"
	"npack/pack/fv5"
)

// SideFile is a file of a pack directory.
type SideFile struct {
	Name string
	Data []byte
}

// Files makes the tokenizer files of a pack out of what a GGUF file says: the way
// back from [FromPack]. It returns none if the file has no tokenizer. vocab is the
// number of ids of the model. Errors are [*pack.Error].
func Files(g *gguf.File, vocab int) ([]SideFile, error) {
	t, err := fv5.ReadTokenizer(g)
	if t == nil || err != nil {
		return nil, err
	}
	built, err := fromGGUF(g.Name(), t, vocab)
	if err != nil {
		return nil, err
	}
	v := built.Vocab()
	text, err := v.JSON()
	if err != nil {
		return nil, err
	}
	config := map[string]any{"add_bos_token": false}
	for _, s := range []struct {
		key string
		id  int32
	}{{"bos_token", t.BOS}, {"eos_token", t.EOS}, {"pad_token", t.Pad}} {
		if s.id >= 0 {
			config[s.key] = t.Tokens[s.id]
		}
	}
	if t.Template != "" {
		config["chat_template"] = t.Template
	}
	side, err := json.MarshalIndent(config, "", "  ")
	return []SideFile{{"tokenizer.json", text}, {"tokenizer_config.json", append(side, '\n')}}, err
}
