package engine

import (
	"sort"

	"npack/runtime/backend"
	"npack/ternary"
)

// Plan is the memory that running a model takes, in bytes.
type Plan struct {
	Weights int64 // all tensors, as the backend holds them; tables in a mapped file count too
	Cache   int64 // keys and values of Context tokens, in the steps in which it grows
	Scratch int64 // activations of one chunk of a prompt, rotary table, logits, sampler
	Context int   // tokens
}

// Total is the sum of the parts.
func (p Plan) Total() int64 { return p.Weights + p.Cache + p.Scratch }

// NewPlan returns the plan for m in b with o and one session of context tokens.
// Of m it reads the geometry alone.
func NewPlan(b backend.Backend, m *ternary.Model, o backend.Options, context int) Plan {
	var mem backend.Memory
	if p, ok := b.(backend.Planner); ok {
		mem = p.Plan(m, o, context, ChunkOf(b))
	} else {
		mem = estimate(m, o, context)
	}
	return Plan{
		Weights: mem.Weights,
		Cache:   mem.Cache,
		// Logits are float32, the sampler's candidates twice as large, ids int32.
		Scratch: mem.Buffers + int64(m.Vocab)*(4+8) + 4*int64(context+1),
		Context: context,
	}
}

// ChunkOf is the number of prompt tokens that go through b in one call:
// [DefaultChunk], or what b says.
func ChunkOf(b backend.Backend) int {
	if c, ok := b.(interface{ Chunk() int }); ok {
		return c.Chunk()
	}
	return DefaultChunk
}

// estimate is for backends that do not say: weights as they are stored, and for
// each token of a chunk the residual stream, a normed copy and its fixed-point
// form, queries, keys, values and the attention's output, and three vectors of
// the MLP.
func estimate(m *ternary.Model, o backend.Options, context int) backend.Memory {
	c := &m.Config
	token := int64(3*c.Hidden+2*c.QDim()+2*c.KVDim()+3*c.Intermediate) * 4
	rotary := int64(c.RotaryDims) * 4 // cosine and sine of half as many pairs, float32
	return backend.Memory{
		Weights: WeightBytes(m),
		Cache:   o.KV.BytesPerToken(c) * int64(context),
		Buffers: token*DefaultChunk + rotary*int64(context),
	}
}

// MaxContext is the longest context of any model: positions are below 2^20
// (NUMERICS.md, rotary table).
const MaxContext = 1 << 20

// ModelContext is the longest context that a model of geometry c can have.
func ModelContext(c *ternary.Config) int { return min(c.MaxPosition, MaxContext) }

// LargestContext is the most tokens of context that a model of geometry c can
// have and that fits, which must be true up to some length; it may be 0.
func LargestContext(c *ternary.Config, fits func(context int) bool) int {
	return sort.Search(ModelContext(c), func(n int) bool { return !fits(n + 1) })
}

// DraftBytes is what [Session.Draft] takes for a model with a vocabulary of
// vocab tokens: the logits of a pass. A draft model has a plan of its own.
func DraftBytes(vocab int) int64 { return (MaxDraft + 1) * int64(vocab) * 4 }

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
