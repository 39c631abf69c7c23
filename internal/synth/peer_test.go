package main

import (
	"path/filepath"
	"testing"

	"npack/gguf"
	"npack/ternary"
)

func TestPeer(t *testing.T) {
	for _, tied := range []bool{true, false} {
		c := ternary.Config{Arch: ternary.Qwen3, Layers: 2, Hidden: 768, Heads: 4, KVHeads: 2, HeadDim: 128, RotaryDims: 128,
			Intermediate: 1536, Vocab: 1000, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 1e6, Tied: tied}
		path := filepath.Join(t.TempDir(), "peer.gguf")
		if err := writePeer(path, &c, 1); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if v, ok := f.Value("qwen3.vocab_size"); !ok || v.Print() != "1000" {
			t.Errorf("vocab_size %v", v)
		}
		down := f.Tensor("blk.1.ffn_down.weight")
		if down == nil || down.Type != gguf.TQ2_0 || down.Cols() != 1536 || down.Rows() != 768 || down.Size != 1536*768/256*66 {
			t.Fatalf("ffn_down: %+v", down)
		}
		for i, b := range down.Data {
			for s := 0; i%66 < 64 && s < 8; s += 2 {
				if b>>s&3 == 3 {
					t.Fatalf("byte %d: code 3", i)
				}
			}
		}
		if head := f.Tensor("output.weight"); (head == nil) != tied || !tied && head.Type != gguf.Q8_0 {
			t.Errorf("tied %t: %+v", tied, head)
		}
		if n := f.Tensor("blk.0.attn_q_norm.weight"); n == nil || n.Type != gguf.F32 || n.Size != 4*128 {
			t.Errorf("attn_q_norm: %+v", n)
		}
	}
}
