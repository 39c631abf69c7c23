package foreign

import (
	"encoding/json"
	"fmt"
	"slices"

	"npack/pack"
	"npack/ternary"
)

// configName is the file beside safetensors that says what the model is.
const configName = "config.json"

// maxConfig bounds a config.json, in bytes.
const maxConfig = 1 << 20

// hfConfig is config.json of the transformers library, versions 4 and 5, as far
// as it says anything about the arithmetic of a model.
type hfConfig struct {
	ModelType     string   `json:"model_type"`
	Hidden        *int     `json:"hidden_size"`
	Layers        *int     `json:"num_hidden_layers"`
	Heads         *int     `json:"num_attention_heads"`
	KVHeads       *int     `json:"num_key_value_heads"`
	HeadDim       *int     `json:"head_dim"`
	Intermediate  *int     `json:"intermediate_size"`
	Vocab         *int     `json:"vocab_size"`
	MaxPosition   *int     `json:"max_position_embeddings"`
	RMSEps        *float64 `json:"rms_norm_eps"`
	RopeTheta     *float64 `json:"rope_theta"`
	Rope          *hfRope  `json:"rope_parameters"`
	RopeScaling   *hfRope  `json:"rope_scaling"`
	PartialRotary *float64 `json:"partial_rotary_factor"`
	Tied          *bool    `json:"tie_word_embeddings"`
	Activation    string   `json:"hidden_act"`
	SlidingUsed   *bool    `json:"use_sliding_window"`
	Sliding       *int     `json:"sliding_window"`
	LayerTypes    []string `json:"layer_types"`
	Quantization  *hfQuant `json:"quantization_config"`
}

type hfRope struct {
	Theta   *float64 `json:"rope_theta"`
	Type    string   `json:"rope_type"`
	OldType string   `json:"type"`
	Partial *float64 `json:"partial_rotary_factor"`
}

type hfQuant struct {
	Method  string   `json:"quant_method"`
	Class   string   `json:"linear_class"`
	Mode    string   `json:"quantization_mode"`
	RMSNorm bool     `json:"use_rms_norm"`
	Skipped []string `json:"modules_to_not_convert"`
}

// The ways in which BitNet's weights are stored, by quantization_config.
type bitnetForm int

const (
	notBitNet  bitnetForm = iota
	multiplied            // the packed weights are multiplied by weight_scale
	divided               // … or divided by it
	trained               // the model makes the weights ternary itself
)

// topologies are the model types whose forward pass is one of ours.
var topologies = map[string]struct {
	arch       ternary.Arch
	activation string
}{
	"llama":   {ternary.Qwen2, "silu"},
	"mistral": {ternary.Qwen2, "silu"},
	"qwen2":   {ternary.Qwen2, "silu"},
	"qwen3":   {ternary.Qwen3, "silu"},
	"bitnet":  {ternary.BitNet, "relu2"},
}

func parseConfig(path string, text []byte) (*hfConfig, error) {
	c := new(hfConfig)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, &pack.Error{Kind: pack.ErrCorrupt, File: path, Offset: -1, Found: err.Error(), Expected: "the configuration of a model", Hint: hintDamaged}
	}
	return c, nil
}

// read sets the geometry of the model in c; Tied is left to the tensors. A
// feature that no topology of ours has is an error that names its key.
func (h *hfConfig) read(path string, c *ternary.Config) (bitnetForm, error) {
	refuse := func(key, found, expected string) error {
		return &pack.Error{Kind: pack.ErrUnsupported, File: path, Place: fmt.Sprintf("key %q", key), Offset: -1, Found: found, Expected: expected,
			Hint: "the model computes what no topology of this program does"}
	}
	t, ok := topologies[h.ModelType]
	if !ok {
		return 0, refuse("model_type", fmt.Sprintf("%q", h.ModelType), "llama, mistral, qwen2, qwen3 or bitnet")
	}
	c.Arch = t.arch
	if h.Activation != t.activation {
		return 0, refuse("hidden_act", fmt.Sprintf("%q", h.Activation), fmt.Sprintf("%q", t.activation))
	}
	for _, n := range []struct {
		key  string
		from *int
		to   *int
	}{
		{"hidden_size", h.Hidden, &c.Hidden}, {"num_hidden_layers", h.Layers, &c.Layers}, {"num_attention_heads", h.Heads, &c.Heads},
		{"intermediate_size", h.Intermediate, &c.Intermediate}, {"vocab_size", h.Vocab, &c.Vocab}, {"max_position_embeddings", h.MaxPosition, &c.MaxPosition},
	} {
		if n.from == nil {
			return 0, &pack.Error{Kind: pack.ErrCorrupt, File: path, Place: fmt.Sprintf("key %q", n.key), Offset: -1, Found: "the key is not there", Expected: "a number", Hint: hintDamaged}
		}
		*n.to = *n.from
	}
	if c.Heads < 1 || c.Layers < 1 {
		return 0, refuse("num_attention_heads", fmt.Sprintf("%d heads, %d layers", c.Heads, c.Layers), "at least 1")
	}
	c.KVHeads, c.HeadDim = c.Heads, c.Hidden/c.Heads
	if h.KVHeads != nil {
		c.KVHeads = *h.KVHeads
	}
	if h.HeadDim != nil {
		c.HeadDim = *h.HeadDim
	}
	if h.RMSEps == nil {
		return 0, refuse("rms_norm_eps", "the key is not there", "a number above 0")
	}
	c.RMSEps = float32(*h.RMSEps)
	if err := h.rope(c, refuse); err != nil {
		return 0, err
	}
	if h.Sliding != nil && (h.SlidingUsed == nil || *h.SlidingUsed) && *h.Sliding < c.MaxPosition {
		return 0, refuse("sliding_window", fmt.Sprintf("a window of %d positions", *h.Sliding), "attention over all of them")
	}
	if i := slices.IndexFunc(h.LayerTypes, func(s string) bool { return s != "full_attention" }); i >= 0 {
		return 0, refuse("layer_types", fmt.Sprintf("%q in layer %d", h.LayerTypes[i], i), "full_attention")
	}
	return h.quantization(c, refuse)
}

// rope reads the angles, which have moved between versions of the library.
func (h *hfConfig) rope(c *ternary.Config, refuse func(key, found, expected string) error) error {
	theta, partial := h.RopeTheta, h.PartialRotary
	for _, r := range []*hfRope{h.RopeScaling, h.Rope} {
		if r == nil {
			continue
		}
		kind := r.Type
		if kind == "" {
			kind = r.OldType
		}
		if kind != "" && kind != "default" {
			return refuse("rope_parameters", fmt.Sprintf("angles of type %q", kind), "plain ones")
		}
		if r.Theta != nil {
			theta = r.Theta
		}
		if r.Partial != nil {
			partial = r.Partial
		}
	}
	if theta == nil {
		return refuse("rope_theta", "the key is not there", "a number above 0")
	}
	c.RopeTheta, c.RotaryDims = float32(*theta), c.HeadDim
	if partial != nil {
		if !(*partial > 0 && *partial <= 1) {
			return refuse("partial_rotary_factor", fmt.Sprint(*partial), "above 0, up to 1")
		}
		c.RotaryDims = int(float64(c.HeadDim) * *partial)
	}
	return nil
}

// quantization tells how the weights of linears are stored.
func (h *hfConfig) quantization(c *ternary.Config, refuse func(key, found, expected string) error) (bitnetForm, error) {
	const key = "quantization_config"
	q := h.Quantization
	switch {
	case q == nil && c.Arch == ternary.BitNet:
		return 0, refuse(key, "the key is not there: the library would run these weights with activations that are not rounded", "the quantization method \"bitnet\", whose 8-bit activations the topology has")
	case q == nil:
		return notBitNet, nil
	case q.Method != "bitnet":
		return 0, refuse(key, fmt.Sprintf("the method is %q", q.Method), "\"bitnet\", or weights that are stored plainly")
	case q.RMSNorm:
		return 0, refuse(key, "use_rms_norm: a norm without weights before each linear", "none")
	case slices.ContainsFunc(q.Skipped, func(s string) bool { return s != "lm_head" }):
		return 0, refuse(key, fmt.Sprintf("modules_to_not_convert: %q", q.Skipped), "lm_head alone")
	}
	switch {
	case q.Class == "autobitlinear" && q.Mode == "online":
		return trained, nil
	case q.Class == "autobitlinear" && (q.Mode == "offline" || q.Mode == ""):
		return multiplied, nil
	case (q.Class == "bitlinear" || q.Class == "") && (q.Mode == "offline" || q.Mode == ""):
		return divided, nil
	}
	return 0, refuse(key, fmt.Sprintf("linear_class %q, quantization_mode %q", q.Class, q.Mode), "autobitlinear, offline or online, or bitlinear, offline")
}
