package fv5

import (
	"slices"

	"npack/gguf"
	"npack/ternary"
)

// Describe returns the entries of the metadata that name the model, its geometry
// and its tokenizer: what any llama.cpp needs of a file, and nothing that makes
// it an FV5 file.
func Describe(c *ternary.Config, o Options) []gguf.KV {
	kv := metadata(c)
	if o.Name != "" {
		kv = slices.Insert(kv, 1, gguf.KV{Key: keyName, Value: gguf.String(o.Name)})
	}
	if o.Tokenizer != nil {
		kv = append(kv, o.Tokenizer.metadata()...)
	}
	return kv
}
