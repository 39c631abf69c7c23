package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"npack/gguf"
	"npack/ternary"
)

// writePeer writes a GGUF file of the same geometry for llama.cpp: TQ2_0 linears
// and Q8_0 tables of random weights, the smallest of its formats that its kernels
// are made for. It has no vocabulary, only its size, which is all a benchmark
// needs.
func writePeer(path string, c *ternary.Config, seed uint64) error {
	h := peerHeader(c)
	if err := h.LayOut(); err != nil {
		return err
	}
	return create(path, func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<20)
		g, err := gguf.NewWriter(w, h)
		if err != nil {
			return err
		}
		for i := range h.Tensors {
			if err := peerData(g, &h.Tensors[i], random(seed+uint64(i)<<32)); err != nil {
				return fmt.Errorf("%s: %w", h.Tensors[i].Name, err)
			}
		}
		if err := g.Close(); err != nil {
			return err
		}
		return w.Flush()
	})
}

// peerHeader has llama.cpp's names of keys and tensors.
func peerHeader(c *ternary.Config) *gguf.Header {
	const mostlyTQ2 = 37 // LLAMA_FTYPE_MOSTLY_TQ2_0
	number := func(n int) gguf.Value { return gguf.Uint32(uint32(n)) }
	arch := c.Arch.String()
	h := &gguf.Header{Version: 3, Metadata: []gguf.KV{
		{Key: "general.architecture", Value: gguf.String(arch)},
		{Key: "general.name", Value: gguf.String("synthetic")},
		{Key: "general.file_type", Value: number(mostlyTQ2)},
		{Key: arch + ".block_count", Value: number(c.Layers)},
		{Key: arch + ".context_length", Value: number(c.MaxPosition)},
		{Key: arch + ".embedding_length", Value: number(c.Hidden)},
		{Key: arch + ".feed_forward_length", Value: number(c.Intermediate)},
		{Key: arch + ".attention.head_count", Value: number(c.Heads)},
		{Key: arch + ".attention.head_count_kv", Value: number(c.KVHeads)},
		{Key: arch + ".attention.key_length", Value: number(c.HeadDim)},
		{Key: arch + ".attention.value_length", Value: number(c.HeadDim)},
		{Key: arch + ".attention.layer_norm_rms_epsilon", Value: gguf.Float32(c.RMSEps)},
		{Key: arch + ".rope.freq_base", Value: gguf.Float32(c.RopeTheta)},
		{Key: arch + ".vocab_size", Value: number(c.Vocab)},
		{Key: "tokenizer.ggml.model", Value: gguf.String("none")},
	}}
	add := func(name string, t gguf.Type, dims ...uint64) {
		h.Tensors = append(h.Tensors, gguf.Tensor{Name: name + ".weight", Type: t, Dims: dims})
	}
	add("token_embd", gguf.Q8_0, uint64(c.Hidden), uint64(c.Vocab))
	for i := range c.Layers {
		var l ternary.Layer
		for _, n := range l.Norms(c) {
			add(ternary.LayerName(i, n.Name), gguf.F32, uint64(n.Len))
		}
		for j, s := range c.LinearShapes() {
			add(ternary.LayerName(i, ternary.Projections[j]), gguf.TQ2_0, uint64(s.Cols), uint64(s.Rows))
		}
	}
	add("output_norm", gguf.F32, uint64(c.Hidden))
	if !c.Tied {
		add("output", gguf.Q8_0, uint64(c.Hidden), uint64(c.Vocab))
	}
	return h
}

// peerData writes a tensor's blocks: ones for a norm.
func peerData(w *gguf.Writer, t *gguf.Tensor, rnd random) error {
	var b []byte
	switch t.Type {
	case gguf.F32:
		for range t.Size / 4 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(1))
		}
		_, err := w.Write(b)
		return err
	case gguf.TQ2_0: // 256 codes 0 to 2 in 64 bytes, then the scale
		scale := gguf.ToFloat16(float32(1 / math.Sqrt(float64(t.Cols()))))
		for range t.Size / 66 {
			b = b[:0]
			for range 64 {
				n := rnd.next() >> 11
				b = append(b, byte(n%3|n/3%3<<2|n/9%3<<4|n/27%3<<6))
			}
			if _, err := w.Write(binary.LittleEndian.AppendUint16(b, scale)); err != nil {
				return err
			}
		}
		return nil
	}
	scale := gguf.ToFloat16(1.0 / 1024) // Q8_0: the scale, then 32 values
	for range t.Size / 34 {
		b = binary.LittleEndian.AppendUint16(b[:0], scale)
		for range 4 {
			b = binary.LittleEndian.AppendUint64(b, rnd.next())
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
