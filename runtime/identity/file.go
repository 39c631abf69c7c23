package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"npack/runtime/backend"
	"npack/ternary"
)

// FileFormat and FileVersion open every trajectory file that this program
// writes. A file without them is of the smallest form, which has trajectories
// and, perhaps, says where they come from.
const (
	FileFormat  = "npack-trajectories"
	FileVersion = 1
)

// StopNone is the stop rule of all that this package runs.
const StopNone = "none: stop tokens do not stop"

// File is a trajectory file. docs/identity.md describes its fields.
type File struct {
	Header
	Trajectories []Trajectory
}

// Header says what made the trajectories. In a file of the smallest form only
// Model and Arithmetic may be there.
type Header struct {
	Format  string `json:"format,omitempty"`
	Version int    `json:"version,omitempty"`

	Model       string     `json:"model,omitempty"` // as its user called it
	ModelSHA256 string     `json:"model_sha256,omitempty"`
	Tensors     TensorList `json:"tensors,omitempty"`

	Numerics    int    `json:"numerics_version,omitempty"` // 0: not our arithmetic
	Activations string `json:"activations,omitempty"`
	KV          string `json:"kv,omitempty"`
	Backend     string `json:"backend,omitempty"`
	Kernels     string `json:"kernels,omitempty"`
	Device      string `json:"device,omitempty"`
	// Arithmetic is another program's, in its own words.
	Arithmetic string `json:"arithmetic,omitempty"`
	// NearTie is the margin below which another program counts a flip as a near
	// tie; 0 if it states none.
	NearTie float64 `json:"near_tie,omitempty"`

	Battery       string `json:"battery,omitempty"`
	BatterySHA256 string `json:"battery_sha256,omitempty"`
	Steps         int    `json:"steps,omitempty"`
	StopRule      string `json:"stop_rule,omitempty"`
}

// TensorSHA256 is the digest of one tensor, as [ternary.Digest] defines it.
type TensorSHA256 struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// TensorList is the digests of all tensors of a model, in file order.
type TensorList []TensorSHA256

// maxTensors bounds the memory that a list can ask for.
const maxTensors = 50_000

// UnmarshalJSON counts the tensors before it decodes them.
func (l *TensorList) UnmarshalJSON(b []byte) error {
	if n := bytes.Count(b, []byte{','}); n > 2*maxTensors {
		return &FormatError{Place: "tensors", Offset: -1, Found: fmt.Sprintf("%d commas", n), Expected: fmt.Sprintf("at most %d tensors", maxTensors)}
	}
	var plain []TensorSHA256
	if err := json.Unmarshal(b, &plain); err != nil {
		return listError("tensors", err)
	}
	*l = plain
	return nil
}

// Tensors turns digests into the form that files hold.
func Tensors(d *ternary.Digests) TensorList {
	list := make(TensorList, len(d.Tensors))
	for i, t := range d.Tensors {
		list[i] = TensorSHA256{t.Name, t.Digest.String()}
	}
	return list
}

// ParseFile reads a trajectory file: ours, of the smallest form (an object with
// a list "trajectories" of objects with "prompt_ids", "ids" and, optionally,
// "class", "prompt_text", "margins" and "bits"), or a receipt of the fork's
// greedy tool (see [Receipt]). It checks that every id is below vocab, that
// lengths agree, and that no text is longer than context tokens; lists are
// counted before they are decoded, so that memory stays a small multiple of
// len(data). Errors are [*FormatError].
func ParseFile(data []byte, vocab, context int) (*File, error) {
	if len(data) > MaxFile {
		return nil, &FormatError{Offset: -1, Found: fmt.Sprintf("more than %d bytes", MaxFile), Expected: "a trajectory file"}
	}
	var file struct {
		Header
		Trajectories parser        `json:"trajectories"`
		Prompts      receiptParser `json:"prompts"`
		KVType       string        `json:"kv_type"`
	}
	file.Trajectories = parser{vocab: vocab, context: context}
	file.Prompts = receiptParser{vocab: vocab, context: context}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, jsonError(data, err)
	}
	f := &File{Header: file.Header, Trajectories: file.Trajectories.list}
	switch {
	case f.Version < 0 || f.Version > FileVersion:
		return nil, &FormatError{Place: "version", Offset: -1, Found: fmt.Sprintf("version %d", f.Version), Expected: fmt.Sprintf("at most %d", FileVersion), Unsupported: true}
	case f.Format != "" && f.Format != FileFormat:
		return nil, &FormatError{Place: "format", Offset: -1, Found: fmt.Sprintf("%.40q", f.Format), Expected: fmt.Sprintf("%q", FileFormat), Unsupported: true}
	case len(f.Trajectories) == 0 && file.Prompts.list != nil:
		f.Trajectories = file.Prompts.list
		f.KV, f.Arithmetic, f.NearTie = file.KVType, receiptArithmetic, receiptNearTie
	}
	if len(f.Trajectories) == 0 {
		return nil, &FormatError{Place: "trajectories", Offset: -1, Found: "no prompts", Expected: "a list of prompts with prompt_ids and ids"}
	}
	return f, nil
}

// Encode returns the file's bytes. Lists of numbers stand in one line each. The
// error says that the file would be longer than [MaxFile], which no reader
// takes.
func (f *File) Encode() ([]byte, error) {
	f.Format, f.Version = FileFormat, FileVersion
	var b bytes.Buffer
	head := compact(f.Header)
	b.Write(head[:len(head)-1])
	b.WriteString(",\n\"trajectories\":[")
	for i, t := range f.Trajectories {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(compact(trajectoryJSON{t.Class, t.PromptText, t.Prompt, t.IDs, t.Margins, t.MinMargin(), t.Bits}))
	}
	b.WriteString("\n]}\n")
	if b.Len() > MaxFile {
		return nil, fmt.Errorf("the file would have %d bytes, expected at most %d: record fewer prompts or steps, or leave the bits out", b.Len(), MaxFile)
	}
	return b.Bytes(), nil
}

type trajectoryJSON struct {
	Class      string    `json:"class,omitempty"`
	PromptText string    `json:"prompt_text,omitempty"`
	Prompt     []int32   `json:"prompt_ids"`
	IDs        []int32   `json:"ids"`
	Margins    []float64 `json:"margins,omitempty"`
	MinMargin  *float64  `json:"min_margin,omitempty"`
	Bits       []Sum     `json:"bits,omitempty"`
}

// MinMargin is the smallest margin, nil if none are stored.
func (t *Trajectory) MinMargin() *float64 {
	if len(t.Margins) == 0 {
		return nil
	}
	least := math.Inf(1)
	for _, m := range t.Margins {
		least = min(least, m)
	}
	return &least
}

// compact is JSON in one line, with texts as they are.
func compact(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings, integers and finite numbers alone
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// EncodedSize is about how many bytes a file of so many steps takes, so that a
// run whose outcome fits no file is refused before it starts.
func EncodedSize(prompts, steps int, bits bool) int {
	each := 32 // an id and a margin
	if bits {
		each += 67
	}
	return prompts * (200 + steps*each)
}

// Verdict is what a difference means under the arithmetic that a file states.
type Verdict string

const (
	// VerdictFault: both sides follow the same arithmetic, in which no bit may
	// differ, so one of them is wrong.
	VerdictFault Verdict = "a fault: the arithmetic is the same, in which no bit may differ"
	// VerdictWithin: the two arithmetics are that coarse.
	VerdictWithin Verdict = "within the stated arithmetic: a near tie"
	// VerdictBeyond: the difference is larger than the arithmetics explain.
	VerdictBeyond Verdict = "beyond the stated arithmetic: another model, or a fault"
	// VerdictUnknown: the file does not say how it was computed.
	VerdictUnknown Verdict = "not to be judged: the file does not state its arithmetic"
)

// relativeError is the largest error of a logit against float64, relative to
// the largest logit of its step in size: the measurements of NUMERICS.md, "How
// near". NaN where none was made.
func relativeError(a backend.Activations, kv backend.KV) float64 {
	switch {
	case a == backend.Exact && kv == backend.KVF32:
		return 8.46e-07
	case a == backend.Exact && kv == backend.KVF16:
		return 4.96e-04
	case a == backend.Exact && kv == backend.KVInt8:
		return 9.72e-03
	case a == backend.Int16 && kv == backend.KVF16:
		return 6.21e-04
	case a == backend.Int8 && kv == backend.KVF16:
		return 5.12e-02
	}
	return math.NaN()
}

// Same reports whether the file was made in the arithmetic of a run with options
// o, in which every bit is equal.
func (h *Header) Same(o backend.Options) bool {
	return h.Numerics == backend.NumericsVersion && h.Activations == o.Activations.String() && h.KV == o.KV.String()
}

// Judge says whether a difference between a run with options o and the stored
// token is what the arithmetic that the file states can do.
func (h *Header) Judge(d *Difference, o backend.Options) Verdict {
	ours := relativeError(o.Activations, o.KV)
	theirs := math.NaN()
	switch {
	case h.Numerics != 0:
		a, errA := backend.ParseActivations(h.Activations)
		kv, errKV := backend.ParseKV(h.KV)
		if errA != nil || errKV != nil {
			break
		}
		if h.Same(o) {
			return VerdictFault
		}
		theirs = relativeError(a, kv)
	case h.NearTie > 0:
		if d.Behind() < h.NearTie {
			return VerdictWithin
		}
		return VerdictBeyond
	case len(h.Arithmetic) >= 7 && h.Arithmetic[:7] == "float64":
		theirs = 0
	}
	// Two logits, each off by both errors, can change places.
	bound := 2 * (ours + theirs) * float64(d.Largest)
	switch {
	case math.IsNaN(bound):
		return VerdictUnknown
	case d.Behind() <= bound:
		return VerdictWithin
	}
	return VerdictBeyond
}
