// Package ternarytest makes small random models for tests. The same [Spec]
// gives the same model, bit for bit, on every machine and for ever: golden
// values of other packages depend on it.
package ternarytest

import (
	"math"

	"npack/ternary"
)

// Spec describes a model to make.
type Spec struct {
	ternary.Config
	Seed uint64
	Bias bool // biases on q, k and v
	// Tight stores rows in as few bytes as hold their columns instead of the
	// usual multiples of 64: valid, and it leaves the numbers of a container
	// unaligned.
	Tight bool
}

// Named is a Spec with a name for subtests.
type Named struct {
	Name string
	Spec Spec
}

// All returns the standard models: each topology, tied and not, odd columns,
// grouped heads, partly rotated heads, biases, tight rows. All of them run.
func All() []Named {
	type c = ternary.Config
	const eps, theta = 1e-6, 10000
	return []Named{
		{"qwen3-tied", Spec{Seed: 1, Config: c{Arch: ternary.Qwen3, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 16, RotaryDims: 16,
			Intermediate: 128, Vocab: 96, MaxPosition: 512, RMSEps: eps, RopeTheta: theta, Tied: true}}},
		{"qwen3-untied-odd", Spec{Seed: 2, Config: c{Arch: ternary.Qwen3, Layers: 3, Hidden: 100, Heads: 5, KVHeads: 1, HeadDim: 20, RotaryDims: 20,
			Intermediate: 133, Vocab: 151, MaxPosition: 512, RMSEps: eps, RopeTheta: 1e6}}},
		{"qwen3-wide", Spec{Seed: 3, Config: c{Arch: ternary.Qwen3, Layers: 1, Hidden: 264, Heads: 6, KVHeads: 2, HeadDim: 32, RotaryDims: 16,
			Intermediate: 300, Vocab: 64, MaxPosition: 512, RMSEps: 1e-5, RopeTheta: theta}}},
		{"qwen3-tight", Spec{Seed: 4, Tight: true, Config: c{Arch: ternary.Qwen3, Layers: 2, Hidden: 65, Heads: 3, KVHeads: 3, HeadDim: 18, RotaryDims: 18,
			Intermediate: 71, Vocab: 53, MaxPosition: 512, RMSEps: eps, RopeTheta: theta, Tied: true}}},
		{"qwen2-bias-tied", Spec{Seed: 5, Bias: true, Config: c{Arch: ternary.Qwen2, Layers: 2, Hidden: 72, Heads: 2, KVHeads: 1, HeadDim: 32, RotaryDims: 32,
			Intermediate: 96, Vocab: 80, MaxPosition: 512, RMSEps: eps, RopeTheta: 1e6, Tied: true}}},
		{"qwen2-bias-untied-odd", Spec{Seed: 6, Bias: true, Config: c{Arch: ternary.Qwen2, Layers: 1, Hidden: 130, Heads: 4, KVHeads: 2, HeadDim: 22, RotaryDims: 22,
			Intermediate: 75, Vocab: 131, MaxPosition: 512, RMSEps: eps, RopeTheta: theta}}},
		{"bitnet-untied", Spec{Seed: 7, Config: c{Arch: ternary.BitNet, Layers: 2, Hidden: 96, Heads: 3, KVHeads: 1, HeadDim: 32, RotaryDims: 32,
			Intermediate: 144, Vocab: 90, MaxPosition: 512, RMSEps: 1e-5, RopeTheta: 500000}}},
		{"bitnet-tied-odd", Spec{Seed: 8, Config: c{Arch: ternary.BitNet, Layers: 1, Hidden: 100, Heads: 5, KVHeads: 5, HeadDim: 20, RotaryDims: 20,
			Intermediate: 91, Vocab: 77, MaxPosition: 512, RMSEps: 1e-5, RopeTheta: theta, Tied: true}}},
	}
}

// Model makes the model of s. Magnitudes are such that activations keep about
// the same size from layer to layer. It panics if s cannot run.
func Model(s Spec) *ternary.Model {
	if err := s.Validate(); err != nil {
		panic(err)
	}
	g := &generator{state: s.Seed*0x9e3779b97f4a7c15 | 1, spec: &s}
	m := &ternary.Model{Config: s.Config, Layers: make([]ternary.Layer, s.Config.Layers)}
	if !s.Tied {
		e := g.table(s.Vocab, s.Hidden)
		m.Embed = &e
	}
	shapes := s.LinearShapes()
	for i := range m.Layers {
		l := &m.Layers[i]
		for _, n := range l.Norms(&s.Config) {
			*n.Data = g.norm(n.Len)
		}
		for j, w := range l.Linears() {
			*w = g.matrix(shapes[j], s.Bias && j < 3)
		}
	}
	m.FinalNorm = g.norm(s.Hidden)
	m.Head = g.table(s.Vocab, s.Hidden)
	return m
}

// generator is Marsaglia's xorshift64* generator.
type generator struct {
	state uint64
	spec  *Spec
}

func (g *generator) next() uint32 {
	g.state ^= g.state >> 12
	g.state ^= g.state << 25
	g.state ^= g.state >> 27
	return uint32(g.state * 0x2545f4914f6cdd1d >> 32)
}

// signed returns a number in [-1, 1), a multiple of 2^-15 and so exact.
func (g *generator) signed() float32 { return float32(int32(g.next())>>16) / 32768 }

// near returns a number within a share of x. The conversion of the product keeps
// the compiler from fusing it with the addition.
func (g *generator) near(x, share float32) float32 {
	f := 1 + float64(float64(g.signed())*float64(share))
	return float32(float64(x) * f)
}

func (g *generator) norm(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = g.near(1, 0.25)
	}
	return v
}

func (g *generator) matrix(s ternary.Shape, bias bool) ternary.Matrix {
	pad := padTo(s.Cols, 512)
	if g.spec.Tight {
		pad = s.Cols
	}
	m := ternary.Matrix{Rows: s.Rows, Cols: s.Cols, ColsPad: pad, Stride: (pad + 7) / 8,
		SLo: make([]float32, s.Rows), SHi: make([]float32, s.Rows),
		RSLo: make([]int32, s.Rows), RSHi: make([]int32, s.Rows)}
	m.BP, m.BN, m.BR = make([]byte, s.Rows*m.Stride), make([]byte, s.Rows*m.Stride), make([]byte, s.Rows*m.Stride)
	// Three weights of eight are not 0; this keeps the norm of a row near 1.
	unit := float32(1 / math.Sqrt(float64(s.Cols)*0.375))
	for r := range s.Rows {
		m.SLo[r], m.SHi[r] = g.near(unit*0.75, 0.25), g.near(unit*1.5, 0.25)
		for c := range s.Cols {
			u := g.next()
			if u>>29 > 2 {
				continue
			}
			at, bit, one := r*m.Stride+c/8, byte(1)<<(c%8), int32(1)
			if u&1 == 0 {
				m.BP[at] |= bit
			} else {
				m.BN[at] |= bit
				one = -1
			}
			if u>>1&3 == 0 {
				m.BR[at] |= bit
				m.RSHi[r] += one
			} else {
				m.RSLo[r] += one
			}
		}
	}
	if bias {
		m.BiasFlag, m.Bias = 1, make([]float32, s.Rows)
		for r := range m.Bias {
			m.Bias[r] = g.signed() / 4
		}
	}
	return m
}

func (g *generator) table(rows, cols int) ternary.Int8Matrix {
	pad := padTo(cols, 64)
	if g.spec.Tight {
		pad = cols
	}
	m := ternary.Int8Matrix{Rows: rows, Cols: cols, ColsPad: pad, Stride: pad,
		Q: make([]int8, rows*pad), Scale: make([]float32, rows), WSum: make([]int32, rows)}
	for r := range rows {
		m.Scale[r] = g.near(1.0/64, 0.25)
		row := m.Row(r)
		for c := range row {
			q := int8(g.next() >> 24)
			row[c] = q
			m.WSum[r] += int32(q)
		}
	}
	return m
}

func padTo(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }
