package engine

import (
	"npack/runtime/backend"
	"npack/ternary"
)

// Plan is the memory that running a model takes, in bytes.
type Plan struct {
	Weights  int64 // all tensors as they are stored; mapped files count too: they have to stay in memory to be fast
	Cache    int64 // keys and values of Context tokens
	Scratch  int64 // an estimate of the rest: rotary table, activations of one chunk, logits, sampler
	Context  int   // tokens
	PerToken int64 // bytes that each token of context adds to Cache and Scratch
}

// Total is the sum of the parts.
func (p Plan) Total() int64 { return p.Weights + p.Cache + p.Scratch }

// NewPlan returns the plan for a model of geometry c whose tensors take weights
// bytes ([WeightBytes]).
func NewPlan(c *ternary.Config, weights int64, kv backend.KV, context int) Plan {
	rotary := int64(c.RotaryDims) * 4 // cosine and sine of half as many pairs, float32
	// One token of a chunk holds the residual stream, a normed copy and its
	// fixed-point form, queries, keys, values and the attention's output, and
	// three vectors of the MLP.
	token := int64(3*c.Hidden+2*c.QDim()+2*c.KVDim()+3*c.Intermediate) * 4
	return Plan{
		Weights:  weights,
		Cache:    kv.BytesPerToken(c) * int64(context),
		Scratch:  rotary*int64(context) + token*DefaultChunk + int64(c.Vocab)*(4+8),
		Context:  context,
		PerToken: kv.BytesPerToken(c) + rotary,
	}
}

// MaxContext is the longest context of any model: positions are below 2^20
// (NUMERICS.md, rotary table).
const MaxContext = 1 << 20

// ModelContext is the longest context that a model of geometry c can have.
func ModelContext(c *ternary.Config) int { return min(c.MaxPosition, MaxContext) }

// LargestContext is the most tokens of context that the model was made for and
// that fit into free bytes of memory; it may be 0.
func LargestContext(c *ternary.Config, weights int64, kv backend.KV, free int64) int {
	p := NewPlan(c, weights, kv, 0)
	return int(max(0, min(int64(ModelContext(c)), (free-p.Total())/p.PerToken)))
}

// WeightBytes is the size of all tensors of m in memory, also of one that is not
// there yet (see [ternary.Model.Rows]).
func WeightBytes(m *ternary.Model) int64 {
	var n int64
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			w := t.Ternary
			n += int64(w.Rows)*(3*int64(w.Stride)+16) + 4*int64(len(w.Bias))
		case t.Int8 != nil:
			n += int64(t.Int8.Rows) * (int64(t.Int8.Stride) + 8)
		default:
			n += 4 * int64(len(t.Vector))
		}
	}
	return n
}
