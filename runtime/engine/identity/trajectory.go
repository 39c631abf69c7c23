// Package identity proves that a backend makes the same tokens as a stored
// trajectory: what a model said greedily, token by token, with the margin by
// which each token won.
package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Trajectory is one prompt and its greedy answer.
type Trajectory struct {
	Prompt     []int32   `json:"prompt_ids"`
	IDs        []int32   `json:"ids"`
	Margins    []float64 `json:"margins"` // best minus second-best logit at each step; nil if not stored
	PromptText string    `json:"prompt_text"`
}

// MaxFile is the largest trajectory file in bytes. Numbers take at most four
// times as much memory as their shortest text, so this bounds both.
const MaxFile = 8 << 20

// FormatError says what is wrong with a trajectory file.
type FormatError struct {
	Place     string // "trajectories[3].ids[17]"
	Offset    int64  // byte offset, or -1
	Found     string
	Expected  string
	Truncated bool // the file ends too early
}

func (e *FormatError) Error() string {
	s := e.Found
	if e.Place != "" {
		s = e.Place + ": " + s
	}
	if e.Offset >= 0 {
		s = fmt.Sprintf("byte %d: %s", e.Offset, s)
	}
	if e.Expected != "" {
		s += ", expected " + e.Expected
	}
	return s
}

// Parse reads a trajectory file: an object with a list "trajectories". It
// checks that every id is below vocab, that lengths agree, and that no text is
// longer than context tokens. Errors are [*FormatError].
func Parse(data []byte, vocab, context int) ([]Trajectory, error) {
	if len(data) > MaxFile {
		return nil, &FormatError{Offset: -1, Found: fmt.Sprintf("more than %d bytes", MaxFile), Expected: "a trajectory file"}
	}
	var file struct {
		Trajectories []Trajectory `json:"trajectories"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, jsonError(data, err)
	}
	if len(file.Trajectories) == 0 {
		return nil, &FormatError{Place: "trajectories", Offset: -1, Found: "no prompts", Expected: "a list of prompts with prompt_ids and ids"}
	}
	for i := range file.Trajectories {
		if err := file.Trajectories[i].check(fmt.Sprintf("trajectories[%d]", i), vocab, context); err != nil {
			return nil, err
		}
	}
	return file.Trajectories, nil
}

func (t *Trajectory) check(place string, vocab, context int) error {
	for _, list := range []struct {
		name string
		ids  []int32
	}{{"prompt_ids", t.Prompt}, {"ids", t.IDs}} {
		if len(list.ids) == 0 {
			return &FormatError{Place: place + "." + list.name, Offset: -1, Found: "no tokens", Expected: "one or more"}
		}
		for i, id := range list.ids {
			if id < 0 || int(id) >= vocab {
				return &FormatError{Place: fmt.Sprintf("%s.%s[%d]", place, list.name, i), Offset: -1,
					Found: fmt.Sprintf("token id %d", id), Expected: fmt.Sprintf("0 to %d, the vocabulary of this model", vocab-1)}
			}
		}
	}
	if t.Margins != nil && len(t.Margins) != len(t.IDs) {
		return &FormatError{Place: place + ".margins", Offset: -1, Found: fmt.Sprintf("%d margins", len(t.Margins)),
			Expected: fmt.Sprintf("%d, one for each of ids", len(t.IDs))}
	}
	for i, m := range t.Margins {
		if m < 0 || math.IsInf(m, 0) {
			return &FormatError{Place: fmt.Sprintf("%s.margins[%d]", place, i), Offset: -1, Found: fmt.Sprintf("margin %v", m), Expected: "0 or more"}
		}
	}
	if n := t.tokens(); n > context {
		return &FormatError{Place: place, Offset: -1, Found: fmt.Sprintf("%d tokens of prompt and answer", n),
			Expected: fmt.Sprintf("at most %d, the context of this model", context)}
	}
	return nil
}

// tokens is how many tokens go through the model: the last one need not.
func (t *Trajectory) tokens() int { return len(t.Prompt) + len(t.IDs) - 1 }

func jsonError(data []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return &FormatError{Offset: syntax.Offset, Found: "not JSON: " + err.Error(), Truncated: syntax.Offset >= int64(len(data))}
	case errors.As(err, &kind):
		return &FormatError{Place: kind.Field, Offset: kind.Offset, Found: kind.Value, Expected: kind.Type.String()}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &FormatError{Offset: int64(len(data)), Found: "the file ends early", Truncated: true}
	}
	return &FormatError{Offset: -1, Found: err.Error()}
}
