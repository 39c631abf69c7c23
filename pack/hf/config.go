package hf

import (
	"bytes"
	"encoding/json"
	"strconv"

	"npack/pack/safetensors"
	"npack/ternary"
)

// Object is a JSON object whose members keep their order.
type Object []Member

// Member is a member of an [Object].
type Member struct {
	Key   string
	Value any
}

// MarshalJSON writes the members in their order.
func (o Object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		for j, v := range []any{m.Key, m.Value} {
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			if j > 0 {
				b = append(b, ':')
			}
			b = append(b, text...)
		}
	}
	return append(b, '}'), nil
}

// Encode returns the object as the text of a file.
func (o Object) Encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(o) // of numbers, strings and raw JSON that has been parsed
	return b.Bytes()
}

// Float writes a float32 as the shortest decimal that is it.
func Float(f float32) json.Number {
	return json.Number(strconv.FormatFloat(float64(f), 'g', -1, 32))
}

// Geometry returns the members of config.json that say what the model is, by the
// names that transformers and mlx-lm share, with the ids that side knows.
func Geometry(m *ternary.Model, side *Side) (Object, error) {
	f, err := familyOf(m)
	if err != nil {
		return nil, err
	}
	return geometry(m, f, side), nil
}

func geometry(m *ternary.Model, f family, side *Side) Object {
	o := Object{
		{"architectures", []string{families[f].architecture}},
		{"model_type", families[f].modelType},
		{"hidden_size", m.Hidden},
		{"num_hidden_layers", m.Config.Layers},
		{"intermediate_size", m.Intermediate},
		{"num_attention_heads", m.Heads},
		{"num_key_value_heads", m.KVHeads},
		{"head_dim", m.HeadDim},
		{"hidden_act", families[f].act},
		{"attention_bias", false},
		{"rms_norm_eps", Float(m.RMSEps)},
		{"rope_theta", Float(m.RopeTheta)},
		{"max_position_embeddings", m.MaxPosition},
		{"vocab_size", m.Vocab},
		{"tie_word_embeddings", m.Tied},
	}
	for _, id := range []Member{{"bos_token_id", side.BOS}, {"eos_token_id", side.EOS}, {"pad_token_id", side.Pad}} {
		if id.Value.(json.RawMessage) != nil {
			o = append(o, id)
		}
	}
	return o
}

// config returns the contents of config.json (§3).
func config(m *ternary.Model, f family, d safetensors.DType, side *Side) []byte {
	o := geometry(m, f, side)
	dtype := map[safetensors.DType]string{safetensors.F32: "float32", safetensors.BF16: "bfloat16"}[d]
	o = append(o, Member{"torch_dtype", dtype}, Member{"use_cache", true})
	if f == bitNet { // weights as they are, activations of 8 bits
		o = append(o, Member{"quantization_config", Object{{"quant_method", "bitnet"}, {"linear_class", "autobitlinear"}, {"quantization_mode", "offline"}}})
	}
	return o.Encode()
}
