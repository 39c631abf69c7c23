package main

import (
	"path/filepath"
	"testing"

	"npack/pack/native"
	"npack/ternary"
)

func TestPublishedSizes(t *testing.T) {
	for _, g := range geometries {
		if got := native.Size(&g.Config); got != g.bytes {
			t.Errorf("%s: native.Size says %d bytes, published are %d", g.name, got, g.bytes)
		}
		// Layers, KV heads, head width, keys and values, two bytes each: the
		// figures of the format's description.
		kv := map[string]int{"8b": 147456, "0.6b": 114688}[g.name]
		if got := g.Layers * g.KVDim() * 2 * 2; got != kv {
			t.Errorf("%s: %d bytes of KV cache a token, published are %d", g.name, got, kv)
		}
	}
}

// TestWrite writes small models of the same make and reads them back.
func TestWrite(t *testing.T) {
	for _, tied := range []bool{true, false} {
		g := geometry{name: "small", Config: ternary.Config{
			Arch: ternary.Qwen3, Layers: 2, Hidden: 768, Heads: 4, KVHeads: 2, HeadDim: 128, RotaryDims: 128,
			Intermediate: 1536, Vocab: 1000, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 1e6, Tied: tied}}
		g.bytes = native.Size(&g.Config)
		path := filepath.Join(t.TempDir(), "small.bin")
		if err := write(path, &g); err != nil {
			t.Fatal(err)
		}
		f, err := native.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m := f.Model()
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
		if f.Size() != g.bytes || m.Config != g.Config {
			t.Errorf("%d bytes, %+v", f.Size(), m.Config)
		}
		if w := &m.Layers[1].Down; w.SLo[767] != 1.0/128 || w.SHi[0] != 1.0/32 || m.Head.Scale[999] != 1.0/128 || m.FinalNorm[0] != 1 {
			t.Error("scales are not what was written")
		}
	}
}

func TestWrongSizeLeavesNothing(t *testing.T) {
	g := geometries[1]
	g.Layers = 1
	path := filepath.Join(t.TempDir(), "x.bin")
	if err := write(path, &g); err == nil {
		t.Error("wrote a file of the wrong size")
	}
	if found, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(found) > 0 {
		t.Errorf("left %q", found)
	}
}
