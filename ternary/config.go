package ternary

import (
	"fmt"
	"math"
)

// Limits of a configuration. They are far above any model and keep every
// product of dimensions that this project forms inside an int64: the largest,
// the bytes of a float32 KV cache over all positions, is
// layers * 2 * kv width * 4 * positions <= 2^(12+1+20+2+27) = 2^62.
const (
	MaxLayers    = 1 << 12
	MaxWidth     = 1 << 20 // Hidden, Intermediate, QDim, KVDim
	MaxVocab     = 1 << 24
	MaxPositions = 1 << 27
)

// Field is one number of a configuration under its name in the container's
// header.
type Field struct {
	Name  string
	Value int
	Max   int
}

// Fields returns the dimensions in the order of the container's header.
func (c *Config) Fields() [9]Field {
	return [9]Field{
		{"n_layers", c.Layers, MaxLayers},
		{"hidden", c.Hidden, MaxWidth},
		{"n_heads", c.Heads, MaxWidth},
		{"n_kv_heads", c.KVHeads, MaxWidth},
		{"head_dim", c.HeadDim, MaxWidth},
		{"rotary_dims", c.RotaryDims, MaxWidth},
		{"intermediate", c.Intermediate, MaxWidth},
		{"vocab", c.Vocab, MaxVocab},
		{"max_position", c.MaxPosition, MaxPositions},
	}
}

// CheckDims reports whether a file format can describe the model: a known
// topology, positive dimensions within the limits, finite constants. It is
// what readers and writers need; [Config.Validate] asks for more. The error is
// an [*Error] whose Part names the field.
func (c *Config) CheckDims() error {
	if c.Arch < Qwen2 || c.Arch > Qwen3 {
		return fieldError("", "arch", fmt.Sprintf("arch is %d", int32(c.Arch)), "1 (Qwen2), 2 (BitNet) or 3 (Qwen3)")
	}
	for _, f := range c.Fields() {
		if f.Value < 1 || f.Value > f.Max {
			return fieldError("", f.Name, fmt.Sprintf("%s is %d", f.Name, f.Value), fmt.Sprintf("1 to %d", f.Max))
		}
	}
	// The factors are at most 2^20, so the products are exact.
	if q := int64(c.Heads) * int64(c.HeadDim); q > MaxWidth {
		return fieldError("", "n_heads", fmt.Sprintf("n_heads * head_dim is %d", q), fmt.Sprintf("at most %d", MaxWidth))
	}
	if kv := int64(c.KVHeads) * int64(c.HeadDim); kv > MaxWidth {
		return fieldError("", "n_kv_heads", fmt.Sprintf("n_kv_heads * head_dim is %d", kv), fmt.Sprintf("at most %d", MaxWidth))
	}
	for _, f := range []struct {
		name  string
		value float32
	}{{"rms_norm_eps", c.RMSEps}, {"rope_theta", c.RopeTheta}} {
		if !finite(f.value) || f.value <= 0 {
			return fieldError("", f.name, fmt.Sprintf("%s is %v", f.name, f.value), "a finite number above 0")
		}
	}
	return nil
}

// Validate reports whether the forward pass of the topology is defined for
// these dimensions: those of [Config.CheckDims], whole groups of query heads,
// pairs to rotate, and for BitNet query heads as wide as the residual stream.
// A file may hold a model that cannot run; it can still be inspected and
// converted. The error is an [*Error] whose Part names the field.
func (c *Config) Validate() error {
	if err := c.CheckDims(); err != nil {
		return err
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fieldError("", "n_heads", fmt.Sprintf("n_heads is %d", c.Heads), fmt.Sprintf("a multiple of n_kv_heads, %d", c.KVHeads))
	case c.RotaryDims%2 != 0 || c.RotaryDims > c.HeadDim:
		return fieldError("", "rotary_dims", fmt.Sprintf("rotary_dims is %d", c.RotaryDims), fmt.Sprintf("an even number up to head_dim, %d", c.HeadDim))
	case c.Arch == BitNet && c.QDim() != c.Hidden:
		// attn_sub_norm[hidden] is applied to the heads' output.
		return fieldError("", "n_heads", fmt.Sprintf("n_heads * head_dim is %d", c.QDim()), fmt.Sprintf("hidden, %d, for arch 2", c.Hidden))
	}
	return nil
}

func finite(f float32) bool { return math.Float32bits(f)&0x7f800000 != 0x7f800000 }
