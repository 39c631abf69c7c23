// Package battery holds the prompts on which models are compared by default.
// docs/identity.md describes the format.
package battery

import _ "embed"

// Story is the battery of the story model: text and ids, by class, out of its
// own tales and out of what it never saw. It is free of any restriction
// (CC0-1.0).
//
//go:embed story.json
var Story []byte

// General is for any model of the Qwen3 family: text alone, so that ids come
// from the model's tokenizer. It is free of any restriction (CC0-1.0).
//
//go:embed battery.json
var General []byte
