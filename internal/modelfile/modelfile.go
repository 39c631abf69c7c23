// Package modelfile writes the file that Ollama makes a model of: which GGUF
// file, how a chat is laid out, where an answer ends, how it is sampled.
package modelfile

import (
	"fmt"
	"slices"
	"strings"

	"npack/pack/fv5"
	"npack/runtime/chat"
)

// chatML is the layout of a chat in Ollama's template language for models whose
// tokenizer has its two marks. Other layouts are left to Ollama, which knows the
// usual ones by the GGUF file's own template.
const chatML = `TEMPLATE """{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
"""
`

// Make returns the Modelfile for the GGUF file gguf, which lies beside it. t may
// be nil; config is the contents of generation_config.json, or empty.
func Make(gguf string, t *fv5.Tokenizer, config []byte, context int) (string, error) {
	g, err := chat.ParseGenerationConfig(config)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "FROM ./%s\n", gguf)
	if t != nil && slices.Contains(t.Tokens, "<|im_start|>") && slices.Contains(t.Tokens, "<|im_end|>") {
		b.WriteString(chatML)
	}
	fmt.Fprintf(&b, "PARAMETER num_ctx %d\n", context)
	if t != nil {
		for _, id := range g.EOS {
			if int(id) < len(t.Tokens) && t.Types[id] == fv5.TokenControl {
				fmt.Fprintf(&b, "PARAMETER stop %q\n", t.Tokens[id])
			}
		}
	}
	if g.DoSample != nil && !*g.DoSample {
		b.WriteString("PARAMETER temperature 0\n")
		return b.String(), nil
	}
	float := func(name string, v *float64) {
		if v != nil {
			fmt.Fprintf(&b, "PARAMETER %s %g\n", name, *v)
		}
	}
	float("temperature", g.Temperature)
	if g.TopK != nil {
		fmt.Fprintf(&b, "PARAMETER top_k %d\n", *g.TopK)
	}
	float("top_p", g.TopP)
	float("min_p", g.MinP)
	float("repeat_penalty", g.RepetitionPenalty)
	return b.String(), nil
}
