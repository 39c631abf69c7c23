package identity

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"npack/runtime/backend"
	"npack/runtime/engine"
)

// batch is how many prompts go through the model together. It changes no bit,
// and reading the weights once for all of them makes a run faster.
const batch = 16

// Sum is the sha256 of the logits of one step: all values of the vocabulary as
// float32, little endian. Equal sums mean that two runs agree in every bit, not
// only in the token that they choose.
type Sum [sha256.Size]byte

// MarshalText returns the sum in hex, for JSON.
func (s Sum) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(s[:])), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *Sum) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(s) {
		return fmt.Errorf("%d characters, expected %d hex digits", len(b), hex.EncodedLen(len(s)))
	}
	_, err := hex.Decode(s[:], b)
	return err
}

// hasher makes sums with one buffer.
type hasher struct{ buf []byte }

func (h *hasher) sum(logits []float32) Sum {
	h.buf = h.buf[:0]
	for _, l := range logits {
		h.buf = binary.LittleEndian.AppendUint32(h.buf, math.Float32bits(l))
	}
	return sha256.Sum256(h.buf)
}

// walk is a text on its way through the model.
type walk struct {
	prompt []int32
	steps  int
	// step looks at the logits [Vocab] of step i, from 0, and returns the token
	// with which the text goes on.
	step func(i int, logits []float32) int32

	seq    backend.Sequence
	logits []float32
	done   int
	next   [1]int32
}

// run takes all texts through the model, some at a time, one token a step as a
// user would. progress is told how many steps are done, more at every call.
func run(ctx context.Context, inst backend.Instance, list []*walk, progress func(done int)) error {
	done := 0
	for len(list) > 0 {
		n := min(batch, len(list))
		err := runBatch(ctx, inst, list[:n], func(steps int) {
			if done += steps; progress != nil {
				progress(done)
			}
		})
		if err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func runBatch(ctx context.Context, inst backend.Instance, list []*walk, progress func(steps int)) error {
	defer func() {
		for _, w := range list {
			if w.seq != nil {
				w.seq.Close()
				w.seq, w.logits = nil, nil
			}
		}
	}()
	for _, w := range list {
		var err error
		if w.seq, err = inst.NewSequence(len(w.prompt) + w.steps - 1); err != nil {
			return err
		}
		w.logits = make([]float32, inst.Config().Vocab)
		if err := w.prefill(ctx, inst); err != nil {
			return err
		}
	}
	for {
		var runs []backend.Run
		steps := 0
		for _, w := range list {
			if w.done == w.steps {
				continue
			}
			w.next[0] = w.step(w.done, w.logits)
			w.done++
			if steps++; w.done < w.steps {
				runs = append(runs, backend.Run{Seq: w.seq, Tokens: w.next[:], Want: []int{0}, Logits: w.logits})
			}
		}
		progress(steps)
		if len(runs) == 0 {
			return nil
		}
		if err := inst.Forward(ctx, runs); err != nil {
			return err
		}
	}
}

// prefill feeds the prompt in pieces; the logits behind it stay.
func (w *walk) prefill(ctx context.Context, inst backend.Instance) error {
	for rest := w.prompt; len(rest) > 0; {
		n := min(engine.DefaultChunk, len(rest))
		r := backend.Run{Seq: w.seq, Tokens: rest[:n]}
		if rest = rest[n:]; len(rest) == 0 {
			r.Want, r.Logits = []int{n - 1}, w.logits
		}
		if err := inst.Forward(ctx, []backend.Run{r}); err != nil {
			return err
		}
	}
	return nil
}

// Record continues each of the prompts greedily for steps tokens and returns
// them with ids and margins and, with bits, the sums of all logits. Stop tokens
// do not stop. Prompts are as [Trajectory.Prompt]; what else they hold is kept.
// progress, if not nil, is told how many tokens are made, more at every call.
func Record(ctx context.Context, inst backend.Instance, prompts []Trajectory, steps int, bits bool, progress func(done int)) ([]Trajectory, error) {
	out := make([]Trajectory, len(prompts))
	list := make([]*walk, len(prompts))
	var h hasher
	for i := range prompts {
		t := &out[i]
		*t = prompts[i]
		t.IDs, t.Margins, t.Bits = make([]int32, 0, steps), make([]float64, 0, steps), nil
		list[i] = &walk{prompt: t.Prompt, steps: steps, step: func(_ int, logits []float32) int32 {
			id, margin := engine.Margin(logits)
			t.IDs, t.Margins = append(t.IDs, id), append(t.Margins, finite(margin))
			if bits {
				t.Bits = append(t.Bits, h.sum(logits))
			}
			return id
		}}
	}
	return out, run(ctx, inst, list, progress)
}

// finite bounds the margin of a vocabulary of one token, which JSON cannot say.
func finite(v float64) float64 { return min(v, math.MaxFloat64) }
