package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// GenerationConfig is what a pack's generation_config.json recommends. nil
// means that it says nothing.
type GenerationConfig struct {
	EOS               []int32 // ids that end a text
	DoSample          *bool   // false: greedy
	Temperature       *float64
	TopK              *int
	TopP              *float64
	MinP              *float64
	RepetitionPenalty *float64
}

// maxEOS bounds the list of end ids. Models have one to three.
const maxEOS = 256

// ParseGenerationConfig reads generation_config.json. Empty input gives the
// zero value. Keys that are null or unknown are skipped; a known key with a
// value of the wrong type or out of its range is an error that names it.
func ParseGenerationConfig(raw []byte) (GenerationConfig, error) {
	var c GenerationConfig
	if len(bytes.TrimSpace(raw)) == 0 {
		return c, nil
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return c, fmt.Errorf("generation_config.json: %w", err)
	}
	fail := func(key, expected string) (GenerationConfig, error) {
		return GenerationConfig{}, fmt.Errorf("generation_config.json: key %q: found %.60s, expected %s", key, keys[key], expected)
	}
	given := func(key string) bool {
		v, ok := keys[key]
		return ok && !bytes.Equal(v, []byte("null"))
	}
	if given("eos_token_id") {
		// A number or a list of numbers.
		list := keys["eos_token_id"]
		if list[0] != '[' {
			list = append(append([]byte{'['}, list...), ']')
		}
		var ids []*int32 // pointers tell null from 0
		if json.Unmarshal(list, &ids) != nil || len(ids) > maxEOS {
			return fail("eos_token_id", fmt.Sprintf("a token id or at most %d of them", maxEOS))
		}
		for _, id := range ids {
			if id == nil || *id < 0 {
				return fail("eos_token_id", "token ids from 0 up")
			}
			c.EOS = append(c.EOS, *id)
		}
	}
	if given("do_sample") && json.Unmarshal(keys["do_sample"], &c.DoSample) != nil {
		return fail("do_sample", "true or false")
	}
	if given("top_k") && (json.Unmarshal(keys["top_k"], &c.TopK) != nil || *c.TopK < 0) {
		return fail("top_k", "a whole number from 0 up")
	}
	for _, f := range []struct {
		key      string
		to       **float64
		min, max float64
		expected string
	}{
		{"temperature", &c.Temperature, 0, 100, "a number from 0 to 100"},
		{"top_p", &c.TopP, 0, 1, "a number from 0 to 1"},
		{"min_p", &c.MinP, 0, 1, "a number from 0 to 1"},
		{"repetition_penalty", &c.RepetitionPenalty, math.SmallestNonzeroFloat64, 100, "a number above 0, at most 100"},
	} {
		if !given(f.key) {
			continue
		}
		if json.Unmarshal(keys[f.key], f.to) != nil || **f.to < f.min || **f.to > f.max {
			return fail(f.key, f.expected)
		}
	}
	return c, nil
}
