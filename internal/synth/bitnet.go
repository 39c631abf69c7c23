package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"npack/pack/hf"
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
func writeBitNet(dir string, c *ternary.Config, form string, seed uint64) error {
	if form != formPacked && form != formTrained {
		return fmt.Errorf("the form is %q, expected %s or %s", form, formPacked, formTrained)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	text, err := bitnetConfig(c, form)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o666); err != nil {
		return err
	}
	return create(filepath.Join(dir, safetensors.ShardName(0, 1)), func(f *os.File) error {
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
	})
}

// bitnetConfig is the text of config.json.
func bitnetConfig(c *ternary.Config, form string) ([]byte, error) {
	o, err := hf.Geometry(&ternary.Model{Config: *c}, &hf.Side{})
	if err != nil {
		return nil, err
	}
	mode := map[string]string{formPacked: "offline", formTrained: "online"}[form]
	return append(o, hf.Member{Key: "dtype", Value: "bfloat16"},
		hf.Member{Key: "quantization_config", Value: map[string]string{"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": mode}}).Encode(), nil
}

func bitnetHeader(c *ternary.Config, form string) *safetensors.Header {
	h := &safetensors.Header{Metadata: []safetensors.KV{{Key: "format", Value: "pt"}}}
	add := func(name, ending string, d safetensors.DType, shape ...int64) {
		h.Tensors = append(h.Tensors, safetensors.Tensor{Name: hf.Module(name) + ending, DType: d, Shape: shape})
	}
	add("token_embd", ".weight", safetensors.BF16, int64(c.Vocab), int64(c.Hidden))
	for i := range c.Layers {
		for _, n := range new(ternary.Layer).Norms(c) {
			add(ternary.LayerName(i, n.Name), ".weight", safetensors.BF16, int64(n.Len))
		}
		for j, s := range c.LinearShapes() {
			name := ternary.LayerName(i, ternary.Projections[j])
			if form == formTrained {
				add(name, ".weight", safetensors.BF16, int64(s.Rows), int64(s.Cols))
				continue
			}
			add(name, ".weight", safetensors.U8, int64(s.Rows/4), int64(s.Cols))
			add(name, ".weight_scale", safetensors.BF16, 1)
		}
	}
	add("output_norm", ".weight", safetensors.BF16, int64(c.Hidden))
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
