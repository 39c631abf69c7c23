package race

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"

	"npack/internal/machine"
	"npack/pack"
)

// Schema is the version of the file's form. Fields are only ever added within
// one.
const Schema = 1

// Report is a race: what it is about, and what was measured so far.
type Report struct {
	Schema      int          `json:"schema"`
	Version     string       `json:"version"` // of the program that held it
	Machine     Machine      `json:"machine"`
	Contestants []Definition `json:"contestants"`
	Battery     string       `json:"battery"` // where the prompts are from
	Prompts     []Prompt     `json:"prompts"`
	Tokens      int          `json:"tokens"` // of an answer, at most
	Wanted      int          `json:"rounds_wanted"`
	Complete    bool         `json:"complete"`
	LoadBefore  float64      `json:"load_before"` // processes that wanted to run, 0 if unknown
	LoadAfter   float64      `json:"load_after"`
	Identity    Identity     `json:"identity"`
	Rounds      []Round      `json:"rounds"`
	Summaries   []Summary    `json:"summaries"`   // of the contestants, in their order
	Comparisons []Comparison `json:"comparisons"` // of each pair
}

// Machine is what must be the same for rounds to be of one race.
type Machine struct {
	OS      string      `json:"os"`
	Arch    string      `json:"arch"`
	CPU     machine.CPU `json:"cpu"`
	Threads int         `json:"threads"` // that this process may use
}

// ReadMachine asks the system.
func ReadMachine() Machine {
	return Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: machine.ReadCPU(), Threads: machine.ReadThreads().Use}
}

// Round is one turn of everyone.
type Round struct {
	Order   []string      `json:"order"`        // names, in the order of their turns
	Before  machine.Clock `json:"clock_before"` // the first turn
	After   machine.Clock `json:"clock_after"`  // the last
	Samples []Sample      `json:"samples"`
}

// Sample is what was measured in a turn.
type Sample struct {
	Contestant string      `json:"contestant"`
	Load       float64     `json:"load"`    // before the turn
	Seconds    float64     `json:"seconds"` // of the whole turn, by our clock
	Total      Work        `json:"total"`
	Classes    []ClassWork `json:"classes,omitempty"`
}

// Summary is what the rounds together say of a contestant, in tokens a second.
type Summary struct {
	Contestant string         `json:"contestant"`
	Prefill    Range          `json:"prefill_tokens_per_second"`
	Decode     Range          `json:"decode_tokens_per_second"`
	Classes    []ClassSummary `json:"classes,omitempty"`
}

// ClassSummary is the part of the prompts of a class.
type ClassSummary struct {
	Class  string `json:"class"`
	Decode Range  `json:"decode_tokens_per_second"`
}

// Finish computes what follows from the rounds.
func (r *Report) Finish() {
	r.Complete = len(r.Rounds) >= r.Wanted
	r.Summaries, r.Comparisons = []Summary{}, []Comparison{}
	if len(r.Rounds) == 0 {
		return
	}
	for i := range r.Contestants {
		s := Summary{Contestant: r.Contestants[i].Name, Prefill: rangeOf(r.rates(i, (*Work).PrefillRate)), Decode: rangeOf(r.rates(i, (*Work).DecodeRate))}
		for _, c := range r.Rounds[0].Samples[i].Classes {
			s.Classes = append(s.Classes, ClassSummary{c.Class, rangeOf(r.classRates(i, c.Class))})
		}
		r.Summaries = append(r.Summaries, s)
	}
	for i := range r.Contestants {
		for j := range i {
			a, b := &r.Summaries[j], &r.Summaries[i]
			r.Comparisons = append(r.Comparisons,
				compareRates("decode", "", a, b, r.rates(j, (*Work).DecodeRate), r.rates(i, (*Work).DecodeRate)),
				compareRates("prefill", "", a, b, r.rates(j, (*Work).PrefillRate), r.rates(i, (*Work).PrefillRate)))
			for _, c := range a.Classes {
				// An external contestant may have ended all answers of a class at once.
				if c.Decode.Min > 0 && slices.ContainsFunc(b.Classes, func(d ClassSummary) bool { return d.Class == c.Class && d.Decode.Min > 0 }) {
					r.Comparisons = append(r.Comparisons, compareRates("decode", c.Class, a, b, r.classRates(j, c.Class), r.classRates(i, c.Class)))
				}
			}
		}
	}
}

// rates returns a contestant's rate in each round.
func (r *Report) rates(contestant int, rate func(*Work) float64) []float64 {
	var s []float64
	for i := range r.Rounds {
		s = append(s, rate(&r.Rounds[i].Samples[contestant].Total))
	}
	return s
}

func (r *Report) classRates(contestant int, class string) []float64 {
	var s []float64
	for i := range r.Rounds {
		for _, c := range r.Rounds[i].Samples[contestant].Classes {
			if c.Class == class {
				s = append(s, c.DecodeRate())
			}
		}
	}
	return s
}

const (
	MaxFile   = 64 << 20 // bytes of a file of a race
	MaxRounds = 10000
	maxTokens = 1 << 20 // of an answer; no context is longer
)

// Read reads the file of a race, to go on with it.
func Read(path string) (*Report, error) {
	data, err := pack.ReadFile(path, MaxFile)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	bad := func(place, found, expected string) error {
		return &pack.Error{Kind: pack.ErrCorrupt, File: path, Place: place, Offset: -1, Found: found, Expected: expected, Hint: "nrun race -o FILE writes such files"}
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, bad("", err.Error(), "the JSON file of a race")
	}
	if r.Schema != Schema {
		return nil, &pack.Error{Kind: pack.ErrUnsupported, File: path, Place: "schema", Offset: -1, Found: fmt.Sprint(r.Schema), Expected: fmt.Sprint(Schema), Hint: "a newer nrun may know it"}
	}
	if place, found, expected := r.check(); place != "" {
		return nil, bad(place, found, expected)
	}
	return r, nil
}

// check says what is wrong with a report that was read.
func (r *Report) check() (place, found, expected string) {
	if len(r.Contestants) < 2 {
		return "contestants", fmt.Sprint(len(r.Contestants)), "2 or more"
	}
	if len(r.Prompts) == 0 || r.Tokens < 2 || r.Tokens > maxTokens {
		return "prompts", fmt.Sprintf("%d prompts, %d tokens", len(r.Prompts), r.Tokens), fmt.Sprintf("1 prompt or more and 2 to %d tokens", maxTokens)
	}
	if r.Wanted < 1 || r.Wanted > MaxRounds {
		return "rounds_wanted", fmt.Sprint(r.Wanted), fmt.Sprintf("1 to %d", MaxRounds)
	}
	for i := range r.Prompts {
		if len(r.Prompts[i].IDs) == 0 {
			return fmt.Sprintf("prompts[%d].ids", i), "no tokens", "one or more"
		}
	}
	if len(r.Rounds) > 0 && len(r.Identity.Results) != len(r.Contestants) {
		return "identity.results", fmt.Sprint(len(r.Identity.Results)), fmt.Sprintf("%d, one of each contestant", len(r.Contestants))
	}
	for i := range r.Rounds {
		place := fmt.Sprintf("rounds[%d].samples", i)
		if len(r.Rounds[i].Samples) != len(r.Contestants) {
			return place, fmt.Sprint(len(r.Rounds[i].Samples)), fmt.Sprintf("%d, one of each contestant", len(r.Contestants))
		}
		for k := range r.Rounds[i].Samples {
			s := &r.Rounds[i].Samples[k]
			place := fmt.Sprintf("%s[%d]", place, k)
			if s.Contestant != r.Contestants[k].Name {
				return place + ".contestant", fmt.Sprintf("%q", s.Contestant), fmt.Sprintf("%q", r.Contestants[k].Name)
			}
			if !s.Total.measured() {
				return place + ".total", fmt.Sprintf("%d tokens in %g s", s.Total.Tokens, s.Total.DecodeSeconds), "a measurement"
			}
			if len(s.Classes) != len(r.Rounds[0].Samples[k].Classes) {
				return place + ".classes", fmt.Sprint(len(s.Classes)), fmt.Sprintf("%d as in the first round", len(r.Rounds[0].Samples[k].Classes))
			}
			for c := range s.Classes {
				if s.Classes[c].Class != r.Rounds[0].Samples[k].Classes[c].Class {
					return fmt.Sprintf("%s.classes[%d]", place, c), fmt.Sprintf("%q", s.Classes[c].Class), "the class of the first round"
				}
			}
		}
	}
	return "", "", ""
}

// Same returns an error that says why rounds of r and of the race that is
// described by now would not be of one race; nil if they are.
func (r *Report) Same(now *Report) error {
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"version of nrun", r.Version, now.Version}, {"machine", r.Machine, now.Machine}, {"tokens", r.Tokens, now.Tokens}, {"prompts", r.Prompts, now.Prompts},
		{"number of contestants", len(r.Contestants), len(now.Contestants)},
	} {
		if !reflect.DeepEqual(part.a, part.b) {
			return fmt.Errorf("another %s: %.80s, now %.80s", part.name, fmt.Sprint(part.a), fmt.Sprint(part.b))
		}
	}
	for i := range r.Contestants {
		if a, b := r.Contestants[i].Text(), now.Contestants[i].Text(); a != b {
			return fmt.Errorf("another contestant: %s, now %s", a, b)
		}
	}
	return nil
}
