// Package storydraft holds the draft of the story model: a smaller model of the same
// tokenizer, for drafted decoding and tests. MODEL_CARD.md says where it
// comes from; it is free of any restriction (CC0-1.0).
package storydraft

import _ "embed"

// Container is the model in the native container format.
//
//go:embed story-draft.bin
var Container []byte

// TokenizerJSON is its tokenizer.json.
//
//go:embed tokenizer.json
var TokenizerJSON []byte

// TokenizerConfigJSON is its tokenizer_config.json.
//
//go:embed tokenizer_config.json
var TokenizerConfigJSON []byte

// ChatTemplate is its chat_template.jinja.
//
//go:embed chat_template.jinja
var ChatTemplate []byte

// GenerationConfigJSON is its generation_config.json.
//
//go:embed generation_config.json
var GenerationConfigJSON []byte

// Trajectories holds 24 prompts with 64 greedy tokens each, decoded in float64
// from the container.
//
//go:embed trajectories.json
var Trajectories []byte
