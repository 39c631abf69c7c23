package ternary

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func good() Config {
	return Config{Arch: Qwen3, Layers: 36, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, RotaryDims: 128,
		Intermediate: 12288, Vocab: 151936, MaxPosition: 40960, RMSEps: 1e-6, RopeTheta: 1e6}
}

func TestConfig(t *testing.T) {
	const any, run = 0, 1 // refused by CheckDims, refused by Validate alone
	tests := []struct {
		name   string
		change func(c *Config)
		by     int
		part   string // of the error
	}{
		{"arch 0", func(c *Config) { c.Arch = 0 }, any, "arch"},
		{"arch 4", func(c *Config) { c.Arch = 4 }, any, "arch"},
		{"no layers", func(c *Config) { c.Layers = 0 }, any, "n_layers"},
		{"many layers", func(c *Config) { c.Layers = MaxLayers + 1 }, any, "n_layers"},
		{"hidden", func(c *Config) { c.Hidden = -1 }, any, "hidden"},
		{"heads", func(c *Config) { c.Heads = 0 }, any, "n_heads"},
		{"kv heads", func(c *Config) { c.KVHeads = math.MinInt32 }, any, "n_kv_heads"},
		{"head_dim", func(c *Config) { c.HeadDim = 0 }, any, "head_dim"},
		{"rotary_dims", func(c *Config) { c.RotaryDims = 0 }, any, "rotary_dims"},
		{"intermediate", func(c *Config) { c.Intermediate = MaxWidth + 1 }, any, "intermediate"},
		{"vocab", func(c *Config) { c.Vocab = math.MaxInt32 }, any, "vocab"},
		{"max_position", func(c *Config) { c.MaxPosition = 0 }, any, "max_position"},
		{"wide heads", func(c *Config) { c.HeadDim = MaxWidth / 16 }, any, "n_heads"},
		{"wide kv heads", func(c *Config) { c.Heads, c.KVHeads, c.HeadDim = 1, 3, MaxWidth/2 }, any, "n_kv_heads"},
		{"eps 0", func(c *Config) { c.RMSEps = 0 }, any, "rms_norm_eps"},
		{"eps NaN", func(c *Config) { c.RMSEps = float32(math.NaN()) }, any, "rms_norm_eps"},
		{"theta", func(c *Config) { c.RopeTheta = float32(math.Inf(1)) }, any, "rope_theta"},

		{"groups", func(c *Config) { c.KVHeads = 5 }, run, "n_heads"},
		{"odd rotary", func(c *Config) { c.RotaryDims = 127 }, run, "rotary_dims"},
		{"wide rotary", func(c *Config) { c.RotaryDims = 130 }, run, "rotary_dims"},
		{"bitnet heads", func(c *Config) { c.Arch, c.Heads = BitNet, 16 }, run, "n_heads"},
	}
	c := good()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := good()
			tt.change(&c)
			if err := c.CheckDims(); (err != nil) != (tt.by == any) {
				t.Errorf("CheckDims: %v", err)
			}
			err := c.Validate()
			var e *Error
			if !errors.As(err, &e) || e.Part != tt.part {
				t.Fatalf("Validate: %v, want an error about %s", err, tt.part)
			}
			if !strings.Contains(e.Error(), "expected") {
				t.Errorf("%q does not say what was expected", e)
			}
		})
	}
}

// The limits' promise: the largest configuration overflows nothing.
func TestLimits(t *testing.T) {
	kv := math.Log2(MaxLayers) + 1 + math.Log2(MaxWidth) + 2 + math.Log2(MaxPositions)
	planes := math.Log2(3) + math.Log2(MaxVocab) + math.Log2(MaxStride)
	// A whole model as it is written; one with larger strides cannot be in memory.
	model := math.Log2(MaxLayers) + math.Log2(7) + math.Log2(3) + math.Log2(MaxWidth) + math.Log2(MaxWidth/8) + 1
	if kv >= 63 || planes >= 63 || model >= 63 {
		t.Errorf("2^%.1f bytes of cache, 2^%.1f of a record, 2^%.1f of a model: not below 2^63", kv, planes, model)
	}
}
