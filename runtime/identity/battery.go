package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// BatteryFormat and BatteryVersion open every battery file.
const (
	BatteryFormat  = "npack-battery"
	BatteryVersion = 1
)

// Classes are the kinds of prompts that a battery has: what they ask of a model
// differs, and so does where near ties are.
var Classes = []string{"counting", "factual", "prose", "chat", "code", "adversarial counting", "lists", "translation", "long context"}

// Battery is a list of prompts on which models are compared. docs/identity.md
// describes its file.
type Battery struct {
	Name    string
	SHA256  string // of the file, in hex
	Steps   int    // tokens to make for each prompt
	Prompts []BatteryPrompt
}

// BatteryPrompt is a prompt as text, in which added tokens ("<|im_end|>") are
// recognised, as token ids, or both.
type BatteryPrompt struct {
	Class string
	Text  string
	IDs   []int32
}

// maxSteps bounds a battery's steps; no context is longer.
const maxSteps = 1 << 20

// ParseBattery reads a battery file. Ids are checked by [Battery.Encode], which
// knows the model. Errors are [*FormatError].
func ParseBattery(data []byte) (*Battery, error) {
	if len(data) > MaxFile {
		return nil, &FormatError{Offset: -1, Found: fmt.Sprintf("more than %d bytes", MaxFile), Expected: "a battery file"}
	}
	var file struct {
		Format  string        `json:"format"`
		Version int           `json:"version"`
		Name    string        `json:"name"`
		Steps   int           `json:"steps"`
		Prompts batteryParser `json:"prompts"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, jsonError(data, err)
	}
	switch {
	case file.Format != BatteryFormat:
		return nil, &FormatError{Place: "format", Offset: -1, Found: fmt.Sprintf("%.40q", file.Format), Expected: fmt.Sprintf("%q", BatteryFormat)}
	case file.Version != BatteryVersion:
		return nil, &FormatError{Place: "version", Offset: -1, Found: fmt.Sprintf("version %d", file.Version), Expected: fmt.Sprint(BatteryVersion), Unsupported: file.Version > BatteryVersion}
	case file.Steps < 1 || file.Steps > maxSteps:
		return nil, &FormatError{Place: "steps", Offset: -1, Found: fmt.Sprintf("%d steps", file.Steps), Expected: fmt.Sprintf("1 to %d", maxSteps)}
	case len(file.Prompts) == 0:
		return nil, &FormatError{Place: "prompts", Offset: -1, Found: "no prompts", Expected: "one or more"}
	}
	sum := sha256.Sum256(data)
	return &Battery{Name: file.Name, SHA256: hex.EncodeToString(sum[:]), Steps: file.Steps, Prompts: file.Prompts}, nil
}

// NewBattery makes a battery of the fork's lines of ids; data is their file.
// They have no class.
func NewBattery(name string, data []byte, lines [][]int32, steps int) *Battery {
	sum := sha256.Sum256(data)
	b := &Battery{Name: name, SHA256: hex.EncodeToString(sum[:]), Steps: steps}
	for _, ids := range lines {
		b.Prompts = append(b.Prompts, BatteryPrompt{IDs: ids})
	}
	return b
}

type batteryParser []BatteryPrompt

// UnmarshalJSON gets the whole list, whose syntax was checked.
func (p *batteryParser) UnmarshalJSON(b []byte) error {
	list, err := parseList(b, "prompts", func(raw json.RawMessage, place string) (q BatteryPrompt, err error) {
		var o struct {
			Class string          `json:"class"`
			Text  string          `json:"text"`
			IDs   json.RawMessage `json:"ids"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return q, listError(place, err)
		}
		q.Class, q.Text = o.Class, o.Text
		if err := (&field{"ids", o.IDs, &q.IDs}).decode(place, maxSteps); err != nil {
			return q, err
		}
		switch {
		case q.Text == "" && len(q.IDs) == 0:
			return q, &FormatError{Place: place, Offset: -1, Found: "neither text nor ids", Expected: "one of them or both"}
		case !slices.Contains(Classes, q.Class):
			return q, &FormatError{Place: place + ".class", Offset: -1, Found: fmt.Sprintf("%.40q", q.Class), Expected: strings.Join(Classes, ", ")}
		}
		return q, nil
	})
	*p = list
	return err
}

// Shard is the part index of count, from 0, of a battery: every count-th
// prompt, so that all shards have prompts of all classes. The result's indices
// are those in the battery.
func (b *Battery) Shard(index, count int) []int {
	var list []int
	for i := index; i < len(b.Prompts); i += count {
		list = append(list, i)
	}
	return list
}

// Encode turns the prompts of these indices into trajectories without answers.
// encode makes ids of text; nil for a model without a tokenizer. Where a prompt
// has text and ids the two must agree. Each id must be below vocab, and each
// prompt with its answer fit into context tokens. Errors are [*FormatError].
func (b *Battery) Encode(indices []int, steps int, encode func(text string) []int32, vocab, context int) ([]Trajectory, error) {
	list := make([]Trajectory, 0, len(indices))
	for _, i := range indices {
		p := &b.Prompts[i]
		place := fmt.Sprintf("prompts[%d]", i)
		t := Trajectory{Class: p.Class, PromptText: p.Text, Prompt: p.IDs}
		switch {
		case p.Text == "":
		case encode != nil:
			ids := encode(p.Text)
			if at := firstOther(ids, p.IDs); p.IDs != nil && at >= 0 {
				return nil, &FormatError{Place: fmt.Sprintf("%s.ids[%d]", place, at), Offset: -1, Found: "the tokenizer makes " + idAt(ids, at) + " of the text",
					Expected: idAt(p.IDs, at)}
			}
			t.Prompt = ids
		case p.IDs == nil:
			return nil, &FormatError{Place: place, Offset: -1, Found: "text alone", Expected: "ids, because the model has no tokenizer"}
		}
		// The answer is any ids: the check is of the prompt and of the lengths.
		t.IDs = make([]int32, steps)
		if err := t.check(place, "answer", vocab, context); err != nil {
			return nil, err
		}
		t.IDs = nil
		list = append(list, t)
	}
	return list, nil
}

// firstOther is the first index at which a and b differ, -1 if none.
func firstOther(a, b []int32) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func idAt(ids []int32, i int) string {
	if i >= len(ids) {
		return fmt.Sprintf("%d ids", len(ids))
	}
	return fmt.Sprintf("id %d", ids[i])
}
