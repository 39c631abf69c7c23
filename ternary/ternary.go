// Package ternary is the in-memory form of a two-magnitude ternary language
// model: what every file format is read into and written from, and what every
// backend runs. It knows no file format and no arithmetic of the forward pass,
// and imports nothing of this project.
//
// A weight is t * (r ? SHi : SLo) with t in {-1, 0, +1} and one pair of
// magnitudes a row. It is stored as three bit planes (see [Matrix]).
package ternary

import (
	"fmt"
	"iter"
)

// Arch names the topology of a model, with the container's numbers.
type Arch int32

const (
	Qwen2  Arch = 1 // biases on q, k and v
	BitNet Arch = 2 // sub-norms, squared ReLU, 8-bit activations
	Qwen3  Arch = 3 // norms on q and k
)

// String returns the field's name for the topology.
func (a Arch) String() string {
	switch a {
	case Qwen2:
		return "qwen2"
	case BitNet:
		return "bitnet"
	case Qwen3:
		return "qwen3"
	}
	return fmt.Sprintf("arch(%d)", int32(a))
}

// Config is the geometry of a model: the header of the native container.
type Config struct {
	Arch         Arch
	Layers       int
	Hidden       int // width of the residual stream
	Heads        int // query heads
	KVHeads      int // key/value heads; Heads is a multiple of it
	HeadDim      int
	RotaryDims   int // leading dimensions of a head that are rotated; even
	Intermediate int // width of the MLP
	Vocab        int
	MaxPosition  int // longest context the model was made for, in tokens
	RMSEps       float32
	RopeTheta    float32
	Tied         bool // the output embedding also embeds the input
}

// QDim is the width of all query heads together.
func (c *Config) QDim() int { return c.Heads * c.HeadDim }

// KVDim is the width of all key (or value) heads together.
func (c *Config) KVDim() int { return c.KVHeads * c.HeadDim }

// Matrix is a ternary linear layer of Rows outputs and Cols inputs.
//
// Bit i of byte j of row r of a plane, plane[r*Stride+j]>>i&1, belongs to
// column 8j+i. BP marks weights of +1, BN of -1, BR those of magnitude SHi
// instead of SLo. Bits from Cols on are 0.
//
// The slices may be views of a memory-mapped file: they are read-only and
// valid until the file they came from is closed.
type Matrix struct {
	Rows, Cols int
	ColsPad    int // columns as stored, >= Cols
	Stride     int // bytes a row in each plane; Stride*8 >= ColsPad

	BP, BN, BR []byte    // [Rows*Stride]
	SLo, SHi   []float32 // [Rows] magnitudes

	// RSLo and RSHi are the publisher's integrity words: by convention the
	// sums of BP-BN over a row's columns of each magnitude. They are kept as
	// they are; a mismatch is reported, never repaired.
	RSLo, RSHi []int32 // [Rows]

	BiasFlag int32     // the stored has_bias word; not 0 when Bias is there
	Bias     []float32 // [Rows], or nil
}

// Weight returns the weight at row r and column c.
func (m *Matrix) Weight(r, c int) float32 {
	i, bit := r*m.Stride+c/8, byte(1)<<(c%8)
	s := m.SLo[r]
	if m.BR[i]&bit != 0 {
		s = m.SHi[r]
	}
	switch {
	case m.BP[i]&bit != 0:
		return s
	case m.BN[i]&bit != 0:
		return -s
	}
	return 0
}

// Int8Matrix is an embedding table of Rows tokens and Cols values:
// w[r][c] = Q[r*Stride+c] * Scale[r].
type Int8Matrix struct {
	Rows, Cols int
	ColsPad    int
	Stride     int // bytes (and values) a row as stored; equals ColsPad

	Q     []int8    // [Rows*Stride]
	Scale []float32 // [Rows]
	WSum  []int32   // [Rows], by convention the sum of the row's values
}

// Row returns the Cols values of row r.
func (m *Int8Matrix) Row(r int) []int8 { return m.Q[r*m.Stride : r*m.Stride+m.Cols] }

// Layer is one transformer block. Norm weights that a topology lacks are nil.
type Layer struct {
	AttnNorm    []float32 // [Hidden], the container's input_ln
	FFNNorm     []float32 // [Hidden], the container's post_attn_ln
	QNorm       []float32 // [HeadDim], Qwen3
	KNorm       []float32 // [HeadDim], Qwen3
	AttnSubNorm []float32 // [Hidden], BitNet
	FFNSubNorm  []float32 // [Intermediate], BitNet

	Q, K, V        Matrix // [QDim or KVDim, Hidden]
	O              Matrix // [Hidden, QDim]
	Gate, Up, Down Matrix // [Intermediate, Hidden] twice, [Hidden, Intermediate]
}

// Linears returns the seven ternary linears in file order.
func (l *Layer) Linears() [NumProjections]*Matrix {
	return [NumProjections]*Matrix{&l.Q, &l.K, &l.V, &l.O, &l.Gate, &l.Up, &l.Down}
}

// NumProjections is the number of ternary linears in a layer.
const NumProjections = 7

// Projections names the linears of a layer in file order, as GGUF does.
var Projections = [NumProjections]string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}

// Model is a whole model.
type Model struct {
	Config
	Embed     *Int8Matrix // input embedding [Vocab, Hidden]; nil when Tied
	Layers    []Layer     // Config.Layers of them
	FinalNorm []float32   // [Hidden]
	Head      Int8Matrix  // output embedding [Vocab, Hidden]

	// Release, if set, is told that the bytes in b will not be needed soon, so
	// that a walk over a mapped file can keep its memory small. The bytes stay
	// valid. It may be called from several goroutines.
	Release func(b []byte)

	// Rows, if set, means that matrices and tables are not in memory, which
	// formats that store weights in other ways use: their slices, Bias aside,
	// are nil, and Rows reads rows r0 to r1 of t into p. [Model.ReadRows] is
	// what code calls, so that it serves both kinds of model; [Model.Load] ends
	// this state. It may be called from several goroutines, each with its p.
	Rows func(p *Part, t Tensor, r0, r1 int) error
}

// InputEmbedding returns the table that embeds input tokens.
func (m *Model) InputEmbedding() *Int8Matrix {
	if m.Embed != nil {
		return m.Embed
	}
	return &m.Head
}

// Tensor is one named part of a model. Exactly one of Ternary, Int8 and Vector
// is set.
type Tensor struct {
	Name    string // GGUF's name without ".weight": "blk.3.ffn_up"
	Layer   int    // -1 outside the layers
	Ternary *Matrix
	Int8    *Int8Matrix
	Vector  []float32
}

// Tensors yields all tensors in the container's file order.
func (m *Model) Tensors() iter.Seq[Tensor] {
	return func(yield func(Tensor) bool) {
		if m.Embed != nil && !yield(Tensor{Name: "token_embd", Layer: -1, Int8: m.Embed}) {
			return
		}
		for i := range m.Layers {
			l := &m.Layers[i]
			for _, v := range l.Norms(&m.Config) {
				if !yield(Tensor{Name: LayerName(i, v.Name), Layer: i, Vector: *v.Data}) {
					return
				}
			}
			for j, w := range l.Linears() {
				if !yield(Tensor{Name: LayerName(i, Projections[j]), Layer: i, Ternary: w}) {
					return
				}
			}
		}
		if !yield(Tensor{Name: "output_norm", Layer: -1, Vector: m.FinalNorm}) {
			return
		}
		name := "output"
		if m.Embed == nil {
			name = "token_embd"
		}
		yield(Tensor{Name: name, Layer: -1, Int8: &m.Head})
	}
}

// LayerName returns the name of a layer's part: "blk.3.ffn_up".
func LayerName(layer int, part string) string { return fmt.Sprintf("blk.%d.%s", layer, part) }

// Norm names one norm vector of a layer, with its length in values.
type Norm struct {
	Name string
	Len  int
	Data *[]float32
}

// Norms returns the norm vectors that the topology has, in file order. Readers
// set them through Data.
func (l *Layer) Norms(c *Config) []Norm {
	n := []Norm{{"attn_norm", c.Hidden, &l.AttnNorm}, {"ffn_norm", c.Hidden, &l.FFNNorm}}
	switch c.Arch {
	case BitNet:
		n = append(n, Norm{"attn_sub_norm", c.Hidden, &l.AttnSubNorm}, Norm{"ffn_sub_norm", c.Intermediate, &l.FFNSubNorm})
	case Qwen3:
		n = append(n, Norm{"attn_q_norm", c.HeadDim, &l.QNorm}, Norm{"attn_k_norm", c.HeadDim, &l.KNorm})
	}
	return n
}

// Shape is the size of one linear.
type Shape struct{ Rows, Cols int }

// Shape returns the rows and columns of a matrix or table. A vector is one row.
func (t *Tensor) Shape() Shape {
	switch {
	case t.Ternary != nil:
		return Shape{t.Ternary.Rows, t.Ternary.Cols}
	case t.Int8 != nil:
		return Shape{t.Int8.Rows, t.Int8.Cols}
	}
	return Shape{1, len(t.Vector)}
}

// LinearShapes returns the shapes of the seven linears of a layer in file order.
func (c *Config) LinearShapes() [NumProjections]Shape {
	q, kv, h, f := c.QDim(), c.KVDim(), c.Hidden, c.Intermediate
	return [NumProjections]Shape{{q, h}, {kv, h}, {kv, h}, {h, q}, {f, h}, {f, h}, {h, f}}
}
