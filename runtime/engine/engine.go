// Package engine makes text with a loaded model: it reads a prompt, chooses
// tokens from the logits and turns them into text, and knows when to stop. It
// drives any backend through [npack/runtime/backend] and adds nothing to its
// cost but the choice of the token.
//
// # How a token is chosen
//
// Sampling is part of what "the same text" means, so it has one written order.
// It runs on the host, in float64, on logits that are equal bit for bit on
// every backend; it uses no library function that differs between platforms
// and no fused operation. A seed therefore gives the same text everywhere.
//
//  1. Every logit l becomes a float64.
//  2. For each token that occurs c > 0 times among the last PenaltyWindow
//     tokens of prompt and answer together:
//     l = l/Repetition if l > 0, else l*Repetition;
//     then l = (l - Presence) - c*Frequency.
//  3. DRY: let m be the length of the longest stretch that ends the text, holds
//     no breaker, and stands somewhere before with the token right behind it.
//     If m >= AllowedLength: l = l - Multiplier*g, where g is 1 multiplied
//     m-AllowedLength times by Base, but no further once it reaches 1e9.
//  4. Tokens are ranked: larger l first, among equals the smaller id. With
//     Temperature 0 the first is the choice.
//  5. Temperature: a token's weight is w = exp((l-max)/Temperature), rounded
//     half to even to a multiple of 2^-39. From here on weights are integers in
//     these units, and sums of them are exact in any order.
//  6. Top-k keeps the first k in rank.
//  7. Top-p keeps the shortest run from the first in rank whose weights reach
//     TopP times the sum of what top-k left.
//  8. Min-p keeps those of weight at least MinP times the first one's.
//  9. One 64-bit number u is taken from the generator. The choice is the token
//     in which floor(u*S/2^64) falls when the weights left, S together, are laid
//     end to end in rank order.
//
// The generator is PCG-DXSM with 128 bits of state, as math/rand/v2's NewPCG
// implements it, seeded with (Seed, 0). It gives one number a token, so the
// n-th choice of an answer always gets the n-th number.
//
// exp is the package's own: n = round-half-even(x*log2e), r = x - n*ln2 in two
// parts, the Taylor polynomial of degree 13 by Horner, times 2^n by exponent
// bits. Its error is at most 0.8 ulp, which a test measures.
package engine

import (
	"errors"
	"fmt"

	"npack/runtime/backend"
	"npack/ternary"
)

// DefaultChunk is the number of prompt tokens that go through the model in one
// call: enough that weights are read once for many tokens, few enough that
// activations stay small and progress can be shown.
const DefaultChunk = 128

// Engine makes text with a loaded model. Like the instance below it, it may be
// used by one goroutine at a time.
type Engine struct {
	inst  backend.Instance
	chunk int
}

// New returns an engine over inst, which the caller closes. chunk is the
// number of prompt tokens in one call of Forward, 0 for [DefaultChunk]; no bit
// of the result depends on it.
func New(inst backend.Instance, chunk int) *Engine {
	if chunk <= 0 {
		chunk = DefaultChunk
	}
	return &Engine{inst: inst, chunk: chunk}
}

// Config returns the geometry of the model.
func (e *Engine) Config() *ternary.Config { return e.inst.Config() }

// ContextError says that a prompt is longer than the window. It wraps
// [backend.ErrContext]. A prompt is never cut.
type ContextError struct {
	Prompt int // tokens of the prompt
	Window int // tokens that fit
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("prompt has %d tokens, the context holds %d", e.Prompt, e.Window)
}

// Unwrap makes errors.Is(err, backend.ErrContext) true.
func (e *ContextError) Unwrap() error { return backend.ErrContext }

// ErrNoPrompt is returned for a prompt without tokens: there is nothing that
// the first token could follow.
var ErrNoPrompt = errors.New("prompt is empty")
