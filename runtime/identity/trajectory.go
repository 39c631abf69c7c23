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
	Class      string // of the battery's prompts, "" if not stored
	PromptText string
	Prompt     []int32
	IDs        []int32
	Margins    []float64 // best minus second-best logit at each step; nil if not stored
	Bits       []Sum     // of all logits at each step; nil if not stored
}

// MaxFile is the largest file of this package in bytes: some 600 prompts of 128
// steps with bits. More go into several files.
const MaxFile = 8 << 20

// FormatError says what is wrong with a file of this package.
type FormatError struct {
	Place       string // "trajectories[3].ids[17]"
	Offset      int64  // byte offset, or -1
	Found       string
	Expected    string
	Truncated   bool // the file ends too early
	Unsupported bool // the file is of a version that this program does not know
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

// Parse reads the trajectories of a file; see [ParseFile].
func Parse(data []byte, vocab, context int) ([]Trajectory, error) {
	f, err := ParseFile(data, vocab, context)
	if err != nil {
		return nil, err
	}
	return f.Trajectories, nil
}

// parser decodes the elements of a list one by one.
type parser struct {
	vocab, context int
	list           []Trajectory
}

// UnmarshalJSON gets the whole list, whose syntax was checked.
func (p *parser) UnmarshalJSON(b []byte) error {
	var err error
	p.list, err = parseList(b, "trajectories", func(raw json.RawMessage, place string) (Trajectory, error) {
		t, err := parseOne(raw, place, p.context)
		if err == nil {
			err = t.check(place, "ids", p.vocab, p.context)
		}
		return t, err
	})
	return err
}

// parseList calls one for each element of the list b. A key that stands twice is
// read twice: the last one counts, as everywhere in JSON.
func parseList[T any](b []byte, name string, one func(raw json.RawMessage, place string) (T, error)) (list []T, err error) {
	if b[0] != '[' {
		return nil, &FormatError{Place: name, Offset: -1, Found: fmt.Sprintf("%.20s", b), Expected: "a list"}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		t, err := one(raw, fmt.Sprintf("%s[%d]", name, len(list)))
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

func parseOne(raw json.RawMessage, place string, context int) (t Trajectory, err error) {
	var o struct {
		Class      string          `json:"class"`
		PromptText string          `json:"prompt_text"`
		Prompt     json.RawMessage `json:"prompt_ids"`
		IDs        json.RawMessage `json:"ids"`
		Margins    json.RawMessage `json:"margins"`
		Bits       json.RawMessage `json:"bits"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return t, listError(place, err)
	}
	t.Class, t.PromptText = o.Class, o.PromptText
	for _, l := range []field{{"prompt_ids", o.Prompt, &t.Prompt}, {"ids", o.IDs, &t.IDs}, {"margins", o.Margins, &t.Margins}, {"bits", o.Bits, &t.Bits}} {
		if err := l.decode(place, context); err != nil {
			return t, err
		}
	}
	return t, nil
}

// field is a list of numbers or sums in an element of a list.
type field struct {
	name string
	raw  json.RawMessage
	to   any // pointer to a slice
}

// decode counts the values before it decodes them. A field that is not there
// leaves its slice nil.
func (f *field) decode(place string, context int) error {
	place += "." + f.name
	if n := bytes.Count(f.raw, []byte{','}) + 1; n > context {
		return &FormatError{Place: place, Offset: -1, Found: fmt.Sprintf("%d values", n),
			Expected: fmt.Sprintf("at most %d, the context of this model", context)}
	}
	if len(f.raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(f.raw, f.to); err != nil {
		return listError(place, err)
	}
	return nil
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

// check checks what was decoded; ids is how the file calls the answer.
func (t *Trajectory) check(place, ids string, vocab, context int) error {
	for _, list := range []struct {
		name string
		ids  []int32
	}{{"prompt_ids", t.Prompt}, {ids, t.IDs}} {
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
	if t.Bits != nil && len(t.Bits) != len(t.IDs) {
		return &FormatError{Place: place + ".bits", Offset: -1, Found: fmt.Sprintf("%d sums", len(t.Bits)),
			Expected: fmt.Sprintf("%d, one for each of ids", len(t.IDs))}
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
