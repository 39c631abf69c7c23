package race

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"npack/pack"
)

// ErrNoLogits is for a [Judge] that cannot tell.
var ErrNoLogits = errors.New("no logits of this token")

// Identity is what the comparison of tokens gave.
type Identity struct {
	Reference string     `json:"reference"` // the contestant with which all others are compared; "" if nothing was
	Tokens    int        `json:"tokens"`    // that it made
	Results   []Compared `json:"results"`   // in the order of the contestants
}

// Compared is how a contestant's tokens compare with the reference's.
type Compared struct {
	Contestant  string       `json:"contestant"`
	Status      string       `json:"status"`           // one of the constants below
	Tokens      int          `json:"tokens"`           // compared, up to the fork of each prompt
	Short       int          `json:"short,omitempty"`  // prompts at which an external contestant ended the answer early
	SHA256      string       `json:"sha256,omitempty"` // of its answers: each its length and its ids as little-endian uint32
	Differences []Difference `json:"differences"`      // the first of each prompt, after which texts are no more comparable
	SpeedOnly   bool         `json:"speed_only,omitempty"`
}

const (
	Reference   = "reference"
	Equal       = "equal"
	Differs     = "differs"
	NotCompared = "not compared" // it tells no tokens, or --no-identity was given
)

// Difference is where two answers fork.
type Difference struct {
	Prompt   int      `json:"prompt"` // from 0
	Class    string   `json:"class,omitempty"`
	Position int      `json:"position"`         // in the answer, from 0
	Got      int32    `json:"got"`              // -1: the answer ends here
	Want     int32    `json:"want"`             // the reference's
	Margin   *float64 `json:"margin,omitempty"` // by which the reference's choice beat its second, in logits; absent if it does not tell
	Behind   *float64 `json:"behind,omitempty"` // by which its choice beat Got
}

// unequal names a contestant whose rates may not count, or "".
func (id *Identity) unequal() string {
	for i := range id.Results {
		if c := &id.Results[i]; c.Status == Differs && !c.SpeedOnly {
			return c.Contestant
		}
	}
	return ""
}

// reference returns the index of whom the others are compared with: the first of
// ours that must be equal or, without ours, the first such; else whoever tells
// tokens; -1 if nobody does.
func reference(contestants []Contestant, answers [][][]int32) int {
	for _, fits := range []func(*Definition) bool{
		func(d *Definition) bool { return d.Ours() && !d.SpeedOnly },
		func(d *Definition) bool { return !d.SpeedOnly },
		func(*Definition) bool { return true },
	} {
		for i := range contestants {
			if answers[i] != nil && fits(&contestants[i].Definition) {
				return i
			}
		}
	}
	return -1
}

// compare compares the answers of the warm-up.
func (h *heat) compare(ctx context.Context) (*Identity, error) {
	id := &Identity{}
	ref := -1
	if !h.o.NoIdentity {
		ref = reference(h.contestants, h.answers)
	}
	for i := range h.contestants {
		c := &h.contestants[i]
		r := Compared{Contestant: c.Name, Status: NotCompared, SpeedOnly: c.SpeedOnly, Differences: []Difference{}}
		if answers := h.answers[i]; answers != nil {
			r.SHA256 = digest(answers)
			if ref >= 0 {
				h.compareTo(&r, c.Ours(), h.answers[ref], answers)
			}
		}
		if i == ref {
			r.Status = Reference
			id.Reference, id.Tokens = c.Name, r.Tokens
		}
		id.Results = append(id.Results, r)
	}
	return id, h.judge(ctx, ref, id)
}

func (h *heat) compareTo(r *Compared, ours bool, want, got [][]int32) {
	r.Status = Equal
	for p := range want {
		at := fork(want[p], got[p])
		r.Tokens += at
		d := Difference{Prompt: p, Class: h.r.Prompts[p].Class, Position: at, Got: -1}
		switch {
		case at == len(want[p]):
			continue
		case at < len(got[p]):
			r.Tokens++
			d.Got = got[p][at]
		case !ours:
			r.Short++ // at its end of text, which nrun goes on behind
			continue
		}
		d.Want = want[p][at]
		r.Status = Differs
		r.Differences = append(r.Differences, d)
	}
}

// fork returns the length of the common beginning.
func fork(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// firstFork returns the first prompt whose answers are not the same, and where;
// -1 if all are.
func firstFork(a, b [][]int32) (prompt, at int) {
	for p := range a {
		if !slices.Equal(a[p], b[p]) {
			return p, fork(a[p], b[p])
		}
	}
	return -1, 0
}

// judge asks the reference how near its choices at the forks were, if it can
// say.
func (h *heat) judge(ctx context.Context, ref int, id *Identity) error {
	for i := range id.Results {
		for k := range id.Results[i].Differences {
			d := &id.Results[i].Differences[k]
			if d.Got < 0 {
				continue
			}
			if err := h.start(ctx, ref); err != nil {
				return err
			}
			j, ok := h.runners[ref].(Judge)
			if !ok {
				return nil
			}
			margin, behind, err := j.Judge(ctx, h.r.Prompts[d.Prompt].IDs, h.answers[i][d.Prompt][:d.Position+1])
			if errors.Is(err, ErrNoLogits) {
				continue
			}
			if err != nil {
				return fmt.Errorf("contestant %q: %w", id.Reference, err)
			}
			d.Margin, d.Behind = &margin, &behind
		}
	}
	if h.o.OneByOne && ref >= 0 && h.runners[ref] != nil {
		err := h.runners[ref].Close()
		h.runners[ref] = nil
		return err
	}
	return nil
}

func digest(answers [][]int32) string {
	h := sha256.New()
	var b []byte
	for _, ids := range answers {
		b = binary.LittleEndian.AppendUint32(b[:0], uint32(len(ids)))
		for _, id := range ids {
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sameAnswers checks that a race that goes on is about the same texts as before.
func (r *Report) sameAnswers(now *Identity) error {
	if len(r.Rounds) == 0 {
		return nil
	}
	for i, before := range r.Identity.Results {
		if b, n := before.SHA256, now.Results[i].SHA256; b != "" && n != "" && b != n {
			return fmt.Errorf("contestant %q makes other tokens than in the rounds before: %w", before.Contestant, pack.ErrNotEqual)
		}
	}
	return nil
}
