package coded

import (
	"bytes"

	"npack/pack/native"
	"npack/ternary"
)

// model returns a container of layers layers with the published statistics:
// each has 25 MB of planes. Rows repeat a sample of 2 MiB a plane.
func model(layers int) []byte {
	c := ternary.Config{Arch: ternary.Qwen3, Layers: layers, Hidden: 2048, Heads: 16, KVHeads: 8, HeadDim: 128, RotaryDims: 128,
		Intermediate: 8192, Vocab: 4096, MaxPosition: 4096, RMSEps: 1e-6, RopeTheta: 1e6, Tied: true}
	planes, table := samples()[0], samples()[1]
	ones := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = 1
		}
		return v
	}
	m := ternary.Model{Config: c, Layers: make([]ternary.Layer, layers), FinalNorm: ones(c.Hidden)}
	for i := range m.Layers {
		l := &m.Layers[i]
		for _, n := range l.Norms(&c) {
			*n.Data = ones(n.Len)
		}
		for j, w := range l.Linears() {
			s := c.LinearShapes()[j]
			stride := s.Cols / 8
			n := s.Rows * stride
			*w = ternary.Matrix{Rows: s.Rows, Cols: s.Cols, ColsPad: s.Cols, Stride: stride,
				BP: planes[:n], BN: planes[benchPlane:][:n], BR: planes[2*benchPlane:][:n],
				SLo: ones(s.Rows), SHi: ones(s.Rows), RSLo: make([]int32, s.Rows), RSHi: make([]int32, s.Rows)}
		}
	}
	m.Head = ternary.Int8Matrix{Rows: c.Vocab, Cols: c.Hidden, ColsPad: c.Hidden, Stride: c.Hidden,
		Q: int8s(table[:c.Vocab*c.Hidden]), Scale: ones(c.Vocab), WSum: make([]int32, c.Vocab)}
	var b bytes.Buffer
	b.Grow(int(native.ModelSize(&m)))
	if err := native.Write(&b, &m); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func int8s(b []byte) []int8 {
	v := make([]int8, len(b))
	for i := range b {
		v[i] = int8(b[i])
	}
	return v
}
