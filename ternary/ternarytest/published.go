package ternarytest

import "npack/ternary"

// Qwen8B and Qwen06B are the geometries of the published models of 8 and 0.6 billion
// weights.
func Qwen8B() ternary.Config {
	return ternary.Config{Arch: ternary.Qwen3, Layers: 36, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, RotaryDims: 128,
		Intermediate: 12288, Vocab: 151936, MaxPosition: 40960, RMSEps: 1e-6, RopeTheta: 1e6}
}
func Qwen06B() ternary.Config {
	return ternary.Config{Arch: ternary.Qwen3, Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128, RotaryDims: 128,
		Intermediate: 3072, Vocab: 151936, MaxPosition: 40960, RMSEps: 1e-6, RopeTheta: 1e6, Tied: true}
}

// Outline returns a model of c that has shapes and no weights, which is all that a plan
// of its memory looks at.
func Outline(c ternary.Config) *ternary.Model {
	table := ternary.Int8Matrix{Rows: c.Vocab, Cols: c.Hidden, ColsPad: c.Hidden, Stride: c.Hidden}
	m := &ternary.Model{Config: c, Layers: make([]ternary.Layer, c.Layers), Head: table}
	if !c.Tied {
		m.Embed = &table
	}
	shapes := c.LinearShapes()
	for i := range m.Layers {
		for j, w := range m.Layers[i].Linears() {
			*w = ternary.Matrix{Rows: shapes[j].Rows, Cols: shapes[j].Cols, ColsPad: shapes[j].Cols, Stride: (shapes[j].Cols + 7) / 8}
		}
	}
	return m
}
