package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"npack/pack/safetensors"
	"npack/ternary"
)

// bitnet2B is the geometry of BitNet b1.58 2B4T.
var bitnet2B = ternary.Config{Arch: ternary.BitNet, Layers: 30, Hidden: 2560, Heads: 20, KVHeads: 5, HeadDim: 128, RotaryDims: 128,
	Intermediate: 6912, Vocab: 128256, MaxPosition: 4096, RMSEps: 1e-5, RopeTheta: 500000, Tied: true}

// The forms of a BitNet checkpoint, as they are published.
const (
	formPacked  = "packed"  // four weights to a byte, with a scale
	formTrained = "trained" // bf16 numbers that the model makes ternary itself
)

// writeBitNet writes a Hugging Face directory of a BitNet model with random
// weights. Its embeddings are multiples of a power of two, as a container needs
// them.
func writeBitNet(dir string, c *ternary.Config, form string, seed uint64) (err error) {
	if form != formPacked && form != formTrained {
		return fmt.Errorf("the form is %q, expected %s or %s", form, formPacked, formTrained)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	text, err := json.MarshalIndent(bitnetConfig(c, form), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o666); err != nil {
		return err
	}
	path := filepath.Join(dir, safetensors.ShardName(0, 1))
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(path)
		}
	}()
	h := bitnetHeader(c, form)
	b := bufio.NewWriterSize(f, 1<<20)
	w, err := safetensors.NewWriter(b, h)
	if err != nil {
		return err
	}
	values := newFiller(nil).values
	for i := range h.Tensors {
		if err := bitnetData(w, &h.Tensors[i], &values, random(seed+uint64(i)<<32)); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return b.Flush()
}

func bitnetConfig(c *ternary.Config, form string) map[string]any {
	mode := map[string]string{formPacked: "offline", formTrained: "online"}[form]
	return map[string]any{
		"architectures": []string{"BitNetForCausalLM"}, "model_type": "bitnet", "hidden_act": "relu2", "dtype": "bfloat16",
		"num_hidden_layers": c.Layers, "hidden_size": c.Hidden, "num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"intermediate_size": c.Intermediate, "vocab_size": c.Vocab, "max_position_embeddings": c.MaxPosition, "rms_norm_eps": c.RMSEps,
		"rope_theta": c.RopeTheta, "tie_word_embeddings": c.Tied,
		"quantization_config": map[string]string{"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": mode},
	}
}

func bitnetHeader(c *ternary.Config, form string) *safetensors.Header {
	h := &safetensors.Header{Metadata: []safetensors.KV{{Key: "format", Value: "pt"}}}
	add := func(name string, d safetensors.DType, shape ...int64) {
		h.Tensors = append(h.Tensors, safetensors.Tensor{Name: name, DType: d, Shape: shape})
	}
	n := func(v int) int64 { return int64(v) }
	add("model.embed_tokens.weight", safetensors.BF16, n(c.Vocab), n(c.Hidden))
	for i := range c.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		add(layer+"input_layernorm.weight", safetensors.BF16, n(c.Hidden))
		add(layer+"post_attention_layernorm.weight", safetensors.BF16, n(c.Hidden))
		add(layer+"self_attn.attn_sub_norm.weight", safetensors.BF16, n(c.Hidden))
		add(layer+"mlp.ffn_sub_norm.weight", safetensors.BF16, n(c.Intermediate))
		for j, s := range c.LinearShapes() {
			name := layer + [...]string{"self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down"}[j] + "_proj.weight"
			if form == formTrained {
				add(name, safetensors.BF16, n(s.Rows), n(s.Cols))
				continue
			}
			add(name, safetensors.U8, n(s.Rows/4), n(s.Cols))
			add(name+"_scale", safetensors.BF16, 1)
		}
	}
	add("model.norm.weight", safetensors.BF16, n(c.Hidden))
	return h
}

// bitnetData writes a tensor. values are about normal, from -127 to 127.
func bitnetData(w io.Writer, t *safetensors.Tensor, values *[1 << 16]byte, rnd random) error {
	bf16 := func(b []byte, f float32) []byte {
		return binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(f)>>16))
	}
	b := make([]byte, 0, 2*t.Cols())
	for range t.Rows() {
		b = b[:0]
		switch {
		case t.DType == safetensors.U8: // four codes 0 to 2
			for range t.Cols() {
				n := rnd.next() >> 11
				b = append(b, byte(n%3|n/3%3<<2|n/9%3<<4|n/27%3<<6))
			}
		case len(t.Shape) == 1: // norms and scales
			for range t.Cols() {
				b = bf16(b, 0.75+rnd.unit()/2)
			}
		default: // embeddings and weights as trained: numbers of 7 bits
			for i := int64(0); i < t.Cols(); i += 4 {
				n := rnd.next()
				for range min(4, t.Cols()-i) {
					b = bf16(b, float32(int8(values[n&0xffff]))/1024)
					n >>= 16
				}
			}
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
