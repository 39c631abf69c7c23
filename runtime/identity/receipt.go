package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"npack/runtime/backend"
	"npack/runtime/engine"
)

// The forms of llama-fermion-greedy, the greedy tool of the llama.cpp fork that
// runs this family of models: prompts and references as lines of ids, and a
// receipt in JSON.

// What a receipt states about its arithmetic, and the margin below which its
// makers call a flip a near tie.
const (
	receiptArithmetic = "llama-fermion-greedy: f32 KV, flash attention off"
	receiptNearTie    = 1e-3
)

// ParseIDs reads the fork's files of prompts and references: one line a prompt,
// decimal ids separated by commas. Empty lines are skipped. No id is outside
// 0 to vocab-1, no line longer than context tokens. Errors are [*FormatError].
func ParseIDs(data []byte, vocab, context int) ([][]int32, error) {
	if len(data) > MaxFile {
		return nil, &FormatError{Offset: -1, Found: fmt.Sprintf("more than %d bytes", MaxFile), Expected: "a file of token ids"}
	}
	var list [][]int32
	offset, n := 0, 0
	for line := range bytes.Lines(data) {
		n++
		start := offset
		offset += len(line)
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		bad := func(found, expected string) error {
			return &FormatError{Place: fmt.Sprintf("line %d", n), Offset: int64(start), Found: found, Expected: expected}
		}
		if count := bytes.Count(line, []byte{','}) + 1; count > context {
			return nil, bad(fmt.Sprintf("%d ids", count), fmt.Sprintf("at most %d, the context of this model", context))
		}
		var ids []int32
		for field := range bytes.SplitSeq(line, []byte{','}) {
			id, err := strconv.ParseUint(string(bytes.TrimSpace(field)), 10, 31)
			if err != nil || id >= uint64(vocab) {
				return nil, bad(fmt.Sprintf("%.40q", field), fmt.Sprintf("token ids from 0 to %d, separated by commas", vocab-1))
			}
			ids = append(ids, int32(id))
		}
		list = append(list, ids)
	}
	if len(list) == 0 {
		return nil, &FormatError{Offset: -1, Found: "no line with ids", Expected: "one line a prompt"}
	}
	return list, nil
}

// FormatIDs is the inverse of [ParseIDs].
func FormatIDs(list [][]int32) []byte {
	var b []byte
	for _, ids := range list {
		for i, id := range ids {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(id), 10)
		}
		b = append(b, '\n')
	}
	return b
}

// Receipt is what llama-fermion-greedy writes, with its fields and no others.
type Receipt struct {
	Model     string          `json:"model"`
	Steps     int             `json:"steps"`
	Threads   int             `json:"n_threads"`
	GPULayers int             `json:"n_gpu_layers"`
	Load      Fixed3          `json:"load_seconds"`
	KV        string          `json:"kv_type"`
	Prompts   []ReceiptPrompt `json:"prompts"`
	Totals    ReceiptTotals   `json:"totals"`
}

// ReceiptPrompt is a free greedy run and, with a reference, a teacher-forced
// one.
type ReceiptPrompt struct {
	PromptIDs     []int32 `json:"prompt_ids"`
	FreeIDs       []int32 `json:"free_ids"`
	MinMargin     Fixed6  `json:"free_min_top2_margin"`
	PromptSeconds Fixed3  `json:"prompt_seconds"`
	GenSeconds    Fixed3  `json:"gen_seconds"`
	*ReceiptForced
}

// ReceiptForced compares with a reference, over min(len(reference), steps).
type ReceiptForced struct {
	FreeMatch       bool              `json:"free_match"`
	FirstDivergence int               `json:"first_divergence"` // -1 if none
	MismatchCount   int               `json:"forced_mismatch_count"`
	Mismatches      []ReceiptMismatch `json:"forced_mismatches"`
}

// ReceiptMismatch is a step at which the teacher-forced run chose otherwise.
type ReceiptMismatch struct {
	Step      int    `json:"step"`
	Got       int32  `json:"got"`
	Want      int32  `json:"want"`
	LogitGot  Fixed6 `json:"logit_got"`
	LogitWant Fixed6 `json:"logit_want"`
	Margin    Fixed6 `json:"margin"`
}

// ReceiptTotals sums up a receipt.
type ReceiptTotals struct {
	PromptTokens  int    `json:"prompt_tokens"`
	GenTokens     int    `json:"gen_tokens"`
	PromptRate    Fixed3 `json:"prompt_tok_per_s"`
	GenRate       Fixed3 `json:"gen_tok_per_s"`
	MismatchTotal int    `json:"forced_mismatch_total"`
	AllFreeMatch  *bool  `json:"all_free_match"` // null without a reference
}

// Fixed3 and Fixed6 are written with so many decimals.
type (
	Fixed3 float64
	Fixed6 float64
)

// MarshalJSON writes three decimals.
func (f Fixed3) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, finite(float64(f)), 'f', 3, 64), nil
}

// MarshalJSON writes six decimals.
func (f Fixed6) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, finite(float64(f)), 'f', 6, 64), nil
}

// Passed reports whether every free run matches and no forced step differs. A
// receipt without references passes.
func (r *Receipt) Passed() bool {
	return r.Totals.MismatchTotal == 0 && (r.Totals.AllFreeMatch == nil || *r.Totals.AllFreeMatch)
}

// MakeReceipt does what llama-fermion-greedy does, prompt by prompt: a free
// greedy run of steps tokens and, if refs is not nil, a teacher-forced run over
// the reference, which must have as many lines. Model, load time and threads
// are the caller's to fill in. progress, if not nil, is told how many tokens
// are done.
func MakeReceipt(ctx context.Context, inst backend.Instance, prompts, refs [][]int32, steps int, progress func(done int)) (*Receipt, error) {
	if refs != nil && len(refs) != len(prompts) {
		return nil, fmt.Errorf("%d prompts and %d references: the files must have as many lines", len(prompts), len(refs))
	}
	r := &Receipt{Steps: steps, KV: inst.Options().KV.String(), Threads: inst.Options().Threads, Prompts: make([]ReceiptPrompt, len(prompts))}
	var reading, making time.Duration
	done := 0
	tell := func(n int) {
		if progress != nil {
			progress(done + n)
		}
	}
	all := true
	for i, ids := range prompts {
		p := &r.Prompts[i]
		start := time.Now()
		var first time.Time // when the prompt is read
		w := &walk{prompt: ids, steps: steps, step: func(step int, logits []float32) int32 {
			if step == 0 {
				first = time.Now()
			}
			id, margin := engine.Margin(logits)
			if p.FreeIDs = append(p.FreeIDs, id); step == 0 || Fixed6(margin) < p.MinMargin {
				p.MinMargin = Fixed6(margin)
			}
			return id
		}}
		if err := run(ctx, inst, []*walk{w}, tell); err != nil {
			return nil, err
		}
		end := time.Now()
		done += steps
		p.PromptIDs, p.PromptSeconds, p.GenSeconds = ids, Fixed3(first.Sub(start).Seconds()), Fixed3(end.Sub(first).Seconds())
		reading, making = reading+first.Sub(start), making+end.Sub(first)
		r.Totals.PromptTokens += len(ids)
		r.Totals.GenTokens += steps
		if refs == nil {
			continue
		}
		ref := refs[i][:min(len(refs[i]), steps)]
		report, err := Compare(ctx, inst, []Trajectory{{Prompt: ids, IDs: ref}}, false, tell)
		if err != nil {
			return nil, err
		}
		done += len(ref)
		p.ReceiptForced = forced(&report.Prompts[0], p.FreeIDs, ref)
		r.Totals.MismatchTotal += p.MismatchCount
		all = all && p.FreeMatch
	}
	r.Totals.PromptRate, r.Totals.GenRate = rate(r.Totals.PromptTokens, reading), rate(r.Totals.GenTokens, making)
	if refs != nil {
		r.Totals.AllFreeMatch = &all
	}
	return r, nil
}

func forced(q *Prompt, free, ref []int32) *ReceiptForced {
	f := &ReceiptForced{FreeMatch: true, FirstDivergence: -1, MismatchCount: len(q.Differences), Mismatches: []ReceiptMismatch{}}
	for i, id := range ref {
		if free[i] != id {
			f.FreeMatch, f.FirstDivergence = false, i
			break
		}
	}
	for _, d := range q.Differences {
		f.Mismatches = append(f.Mismatches, ReceiptMismatch{d.Step, d.Got, d.Want, Fixed6(d.GotLogit), Fixed6(d.WantLogit), Fixed6(d.Behind())})
	}
	return f
}

func rate(tokens int, d time.Duration) Fixed3 {
	if d <= 0 {
		return 0
	}
	return Fixed3(float64(tokens) / d.Seconds())
}

// Encode returns the receipt's bytes, indented.
func (r *Receipt) Encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		panic(err) // strings and finite numbers alone
	}
	return b.Bytes()
}

// receiptParser decodes the prompts of a receipt into trajectories.
type receiptParser struct {
	vocab, context int
	list           []Trajectory
}

// UnmarshalJSON gets the whole list, whose syntax was checked.
func (p *receiptParser) UnmarshalJSON(b []byte) error {
	var err error
	p.list, err = parseList(b, "prompts", func(raw json.RawMessage, place string) (t Trajectory, err error) {
		var o struct {
			PromptIDs json.RawMessage `json:"prompt_ids"`
			FreeIDs   json.RawMessage `json:"free_ids"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return t, listError(place, err)
		}
		for _, l := range []field{{"prompt_ids", o.PromptIDs, &t.Prompt}, {"free_ids", o.FreeIDs, &t.IDs}} {
			if err := l.decode(place, p.context); err != nil {
				return t, err
			}
		}
		return t, t.check(place, "free_ids", p.vocab, p.context)
	})
	return err
}
