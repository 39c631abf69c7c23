package main

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"npack/pack/native"
	"npack/ternary"
)

// Random weights keep the format's rules, have the published shares, their
// sums, and are the same each time.
func TestRandom(t *testing.T) {
	g := geometry{name: "small", Config: ternary.Config{
		Arch: ternary.Qwen3, Layers: 2, Hidden: 700, Heads: 4, KVHeads: 2, HeadDim: 128, RotaryDims: 128,
		Intermediate: 1536, Vocab: 1000, MaxPosition: 512, RMSEps: 1e-6, RopeTheta: 1e6}}
	g.bytes = native.Size(&g.Config)
	make := func(seed uint64) (path string) {
		path = filepath.Join(t.TempDir(), "small.bin")
		if err := write(path, &g); err != nil {
			t.Fatal(err)
		}
		if err := randomize(path, seed); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := make(1)
	f, err := native.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.Model().Survey(context.Background(), ternary.WalkOptions{})
	if err != nil || s.SumMismatches != 0 {
		t.Fatal(err, s)
	}
	share := func(n, of int64) float64 { return float64(n) / float64(of) }
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 0.003 { // 7 million weights: 10 sigma and more
			t.Errorf("%s: %.4f, want %.4f", what, got, want)
		}
	}
	o := s.Total
	near("zeros", share(o.Zeros(), o.Weights), zeros)
	near("highs", share(o.Hi(), o.Hi()+o.Lo()), highs)
	near("plus", share(o.Plus(), o.Plus()+o.Minus()), 0.5)
	var squares float64
	head := &f.Model().Head
	for r := range head.Rows {
		for _, v := range head.Row(r) {
			squares += float64(v) * float64(v)
		}
	}
	if got := math.Sqrt(squares / float64(head.Rows*head.Cols)); math.Abs(got-sigma) > 0.3 {
		t.Errorf("sigma %.2f, want %d", got, sigma)
	}
	a, _ := os.ReadFile(path)
	b, _ := os.ReadFile(make(1))
	c, _ := os.ReadFile(make(2))
	if !bytes.Equal(a, b) || bytes.Equal(a, c) {
		t.Error("a seed does not give one file")
	}
}
