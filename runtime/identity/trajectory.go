// Package identity proves that a backend makes the same tokens as a stored
// trajectory: what a model said greedily, token by token, with the margin by
// which each token won.
package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Trajectory is one prompt and its greedy answer.
type Trajectory struct {
	PromptText string
	Prompt     []int32
	IDs        []int32
	Margins    []float64 // best minus second-best logit at each step; nil if not stored
}

// MaxFile is the largest trajectory file in bytes: some 1,000 prompts of 128
// steps. More go into several files.
const MaxFile = 4 << 20

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

// Parse reads a trajectory file: an object with a list "trajectories" of
// objects with "prompt_ids", "ids" and, optionally, "margins" and
// "prompt_text". It checks that every id is below vocab, that lengths agree,
// and that no text is longer than context tokens; lists are counted before
// they are decoded, so that memory stays a small multiple of len(data). Errors
// are [*FormatError].
func Parse(data []byte, vocab, context int) ([]Trajectory, error) {
	if len(data) > MaxFile {
		return nil, &FormatError{Offset: -1, Found: fmt.Sprintf("more than %d bytes", MaxFile), Expected: "a trajectory file"}
	}
	file := struct {
		Trajectories parser `json:"trajectories"`
	}{parser{vocab: vocab, context: context}}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, jsonError(data, err)
	}
	if len(file.Trajectories.list) == 0 {
		return nil, &FormatError{Place: "trajectories", Offset: -1, Found: "no prompts", Expected: "a list of prompts with prompt_ids and ids"}
	}
	return file.Trajectories.list, nil
}

// parser decodes the elements of a list one by one.
type parser struct {
	vocab, context int
	list           []Trajectory
}

// UnmarshalJSON gets the whole list, whose syntax was checked.
func (p *parser) UnmarshalJSON(b []byte) error {
	p.list = nil // a key that stands twice: the last one counts, as everywhere in JSON
	if b[0] != '[' {
		return &FormatError{Place: "trajectories", Offset: -1, Found: fmt.Sprintf("%.20s", b), Expected: "a list"}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		place := fmt.Sprintf("trajectories[%d]", len(p.list))
		t, err := parseOne(raw, place, p.context)
		if err == nil {
			err = t.check(place, p.vocab, p.context)
		}
		if err != nil {
			return err
		}
		p.list = append(p.list, t)
	}
	return nil
}

func parseOne(raw json.RawMessage, place string, context int) (t Trajectory, err error) {
	var o struct {
		PromptText string          `json:"prompt_text"`
		Prompt     json.RawMessage `json:"prompt_ids"`
		IDs        json.RawMessage `json:"ids"`
		Margins    json.RawMessage `json:"margins"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return t, listError(place, err)
	}
	t.PromptText = o.PromptText
	for _, l := range []struct {
		name string
		raw  json.RawMessage
		to   any
	}{{"prompt_ids", o.Prompt, &t.Prompt}, {"ids", o.IDs, &t.IDs}, {"margins", o.Margins, &t.Margins}} {
		if n := bytes.Count(l.raw, []byte{','}) + 1; n > context {
			return t, &FormatError{Place: place + "." + l.name, Offset: -1, Found: fmt.Sprintf("%d values", n),
				Expected: fmt.Sprintf("at most %d, the context of this model", context)}
		}
		if len(l.raw) == 0 {
			continue
		}
		if err := json.Unmarshal(l.raw, l.to); err != nil {
			return t, listError(place+"."+l.name, err)
		}
	}
	return t, nil
}

// listError words an error of a value of the right syntax. Offsets within the
// value would mislead.
func listError(place string, err error) error {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return &FormatError{Place: place, Offset: -1, Found: err.Error()}
	}
	if kind.Field != "" {
		place += "." + kind.Field
	}
	return &FormatError{Place: place, Offset: -1, Found: kind.Value, Expected: kind.Type.String()}
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
	var format *FormatError
	switch {
	case errors.As(err, &format):
		return format
	case errors.As(err, &syntax):
		return &FormatError{Offset: syntax.Offset, Found: "not JSON: " + err.Error(), Truncated: syntax.Offset >= int64(len(data))}
	case errors.As(err, &kind):
		return &FormatError{Offset: kind.Offset, Found: kind.Value, Expected: "an object with a list of trajectories"}
	}
	return &FormatError{Offset: -1, Found: err.Error()}
}
