// Package backend is the small interface between the engine, which knows about
// text, and the code that runs the forward pass. Every backend gives the same
// logits, bit for bit, as [npack/runtime/reference]; NUMERICS.md is the
// contract and backendtest the suite that proves it.
package backend

import (
	"context"
	"errors"
	"fmt"

	"npack/ternary"
)

// NumericsVersion is the version of NUMERICS.md that backends follow. Logits are equal
// bit for bit only under the same version.
const NumericsVersion = 1

// Activations is the width of the fixed-point activations of linears, counted
// in signed 8-bit planes (NUMERICS.md, "Fixed-point activations").
type Activations int

const (
	Int8  Activations = 1 // 7 bits: the fast, coarse mode that peers use
	Int16 Activations = 2 // 15 bits
	Exact Activations = 3 // 23 bits: the release gate's mode and the default
)

// KV is the number type of the key/value cache.
type KV int

const (
	KVF16 KV = iota // IEEE half precision, the default
	KVF32
	KVInt8 // int8 with one float32 scale a head vector
)

// Options say how a model is to be run. They are part of what defines the
// bits of the logits, except Threads and Progress.
type Options struct {
	Activations Activations // 0 means Exact
	KV          KV
	Threads     int // 0 means the backend's own choice

	// Progress, if set, is told while a model is loaded how many bytes of how
	// many are done.
	Progress func(done, total int64)
}

// Backend runs models on one kind of device.
type Backend interface {
	// Name is short and lower case: "reference", "cpu", "cuda".
	Name() string
	// Load prepares m. The instance keeps using m's memory until it is closed.
	// It returns an error wrapping [ErrRefused] for weights that NUMERICS.md
	// refuses.
	// It ends early when ctx does.
	Load(ctx context.Context, m *ternary.Model, o Options) (Instance, error)
}

// Instance is a loaded model. It may be used by one goroutine at a time.
type Instance interface {
	Config() *ternary.Config
	Options() Options
	// NewSequence returns an empty sequence with room for context tokens.
	NewSequence(context int) (Sequence, error)
	// Forward appends the tokens of each run to its sequence and writes the
	// logits it asks for. Runs are independent: the bits of one do not depend
	// on its neighbours, nor on how a prompt is split into runs. A sequence
	// may appear in one run only.
	//
	// If an error is returned (ctx ended, a value overflowed, no room), all
	// sequences are as they were before the call.
	Forward(ctx context.Context, runs []Run) error
	Close() error
}

// Run is a stretch of tokens that follow each other in one sequence, at the
// positions Seq.Len(), Seq.Len()+1, and so on.
type Run struct {
	Seq    Sequence
	Tokens []int32
	Want   []int     // indices into Tokens, rising, whose logits are wanted
	Logits []float32 // [len(Want)*Vocab], filled by Forward
}

// Sequence is the key/value cache of one text.
type Sequence interface {
	Len() int // tokens stored
	Cap() int // tokens there is room for
	// Truncate forgets all tokens from position n on.
	Truncate(n int) error
	// Fork returns an independent copy.
	Fork() (Sequence, error)
	Close() error
}

var (
	// ErrRefused marks weights outside the range that keeps arithmetic free of
	// subnormal and infinite values.
	ErrRefused = errors.New("weights outside the range of numerics version 1")
	// ErrContext is wrapped when a run does not fit into its sequence.
	ErrContext = errors.New("context is full")
	// ErrOverflow is wrapped when an activation is NaN or infinite.
	ErrOverflow = errors.New("activation is not finite")
)

// ContextError says by how much a sequence is too short.
type ContextError struct{ Need, Have int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("%d tokens do not fit a context of %d", e.Need, e.Have)
}

// Unwrap makes errors.Is(err, ErrContext) true.
func (e *ContextError) Unwrap() error { return ErrContext }

// String returns the name used on the command line.
func (a Activations) String() string {
	switch a {
	case Int8:
		return "int8"
	case Int16:
		return "int16"
	case Exact, 0:
		return "exact"
	}
	return fmt.Sprintf("activations(%d)", int(a))
}

// ParseActivations is the inverse of String.
func ParseActivations(s string) (Activations, error) {
	for _, a := range []Activations{Exact, Int16, Int8} {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, fmt.Errorf("unknown activations %q: exact, int16 or int8", s)
}

// String returns the name used on the command line.
func (k KV) String() string {
	switch k {
	case KVF16:
		return "f16"
	case KVF32:
		return "f32"
	case KVInt8:
		return "int8"
	}
	return fmt.Sprintf("kv(%d)", int(k))
}

// ParseKV is the inverse of String.
func ParseKV(s string) (KV, error) {
	for _, k := range []KV{KVF16, KVF32, KVInt8} {
		if s == k.String() {
			return k, nil
		}
	}
	return 0, fmt.Errorf("unknown KV type %q: f16, f32 or int8", s)
}

// BytesPerToken is what one position of the cache takes, in bytes, over all
// layers, keys and values together.
func (k KV) BytesPerToken(c *ternary.Config) int64 {
	vec := int64(c.Layers) * 2 * int64(c.KVHeads) // head vectors a token
	switch k {
	case KVF32:
		return vec * int64(c.HeadDim) * 4
	case KVInt8:
		return vec * (int64(c.HeadDim) + 4)
	}
	return vec * int64(c.HeadDim) * 2
}
