package hf

import (
	"fmt"
	"slices"
	"strings"

	"npack/pack"
	"npack/ternary"
)

// modules are the parts of a layer by their names in this project.
var modules = map[string]string{
	"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
	"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
	"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
	"attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm",
}

// Module returns the name of the module that holds the tensor of that name (see
// [ternary.Tensor]): "model.layers.3.mlp.up_proj" for "blk.3.ffn_up". Its tensors
// are that with ".weight" and ".bias".
func Module(name string) string {
	switch name {
	case "token_embd":
		return "model.embed_tokens"
	case "output":
		return "lm_head"
	case "output_norm":
		return "model.norm"
	}
	_, rest, _ := strings.Cut(name, ".") // blk
	layer, part, _ := strings.Cut(rest, ".")
	return "model.layers." + layer + "." + modules[part]
}

// family is a class of models of the transformers library.
type family int

const (
	qwen2 family = iota
	llama
	bitNet
	qwen3
)

// families are the values of config.json.
var families = [...]struct{ modelType, architecture, act string }{
	qwen2:  {"qwen2", "Qwen2ForCausalLM", "silu"},
	llama:  {"llama", "LlamaForCausalLM", "silu"},
	bitNet: {"bitnet", "BitNetForCausalLM", "relu2"},
	qwen3:  {"qwen3", "Qwen3ForCausalLM", "silu"},
}

// familyOf returns the class for m's topology, which for arch 1 depends on its
// biases, and refuses models that no class runs.
func familyOf(m *ternary.Model) (family, error) {
	refuse := func(found, expected string) error {
		return &pack.Error{Kind: pack.ErrUnsupported, Offset: -1, Found: found, Expected: expected, Hint: "such a model can be converted to GGUF or tv4z"}
	}
	if err := m.Config.Validate(); err != nil {
		return 0, refuse(err.Error(), "")
	}
	if m.RotaryDims != m.HeadDim {
		return 0, refuse(fmt.Sprintf("%d of %d dimensions of a head are rotated", m.RotaryDims, m.HeadDim), "all, as transformers does")
	}
	var first []string
	for i := range m.Layers {
		var biased []string
		for j, w := range m.Layers[i].Linears() {
			if w.Bias != nil {
				biased = append(biased, ternary.Projections[j])
			}
		}
		if i == 0 {
			first = biased
		} else if !slices.Equal(first, biased) {
			return 0, refuse(fmt.Sprintf("layer %d has other biases than layer 0: %s", i, strings.Join(biased, ", ")), "the same in all layers")
		}
	}
	switch biases := strings.Join(first, " "); {
	case m.Arch == ternary.Qwen3 && biases == "":
		return qwen3, nil
	case m.Arch == ternary.BitNet && biases == "":
		return bitNet, nil
	case m.Arch == ternary.Qwen2 && biases == "attn_q attn_k attn_v":
		return qwen2, nil
	case m.Arch == ternary.Qwen2 && biases == "":
		return llama, nil
	}
	return 0, refuse(fmt.Sprintf("biases of %s in a %v model", strings.Join(first, ", "), m.Arch), "none, or in qwen2 those of q, k and v")
}
