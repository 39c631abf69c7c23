// Package pylib lets Python libraries that run models decode what we stored, in
// tests: a second opinion.
package pylib

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"npack/internal/dense"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
)

// Answer is what a decode.py prints.
type Answer struct {
	Program string `json:"program"` // names and versions
	DType   string `json:"dtype"`
	Runs    []struct {
		Forced  []int32   `json:"forced"`  // chosen with the stored tokens before each step
		Margins []float64 `json:"margins"` // best minus second-best logit there
		Free    []int32   `json:"free"`    // chosen alone
	} `json:"runs"`
	NLL       float64 `json:"nll"` // sum over all windows, a prompt and its tokens
	Predicted int     `json:"predicted"`
}

// Perplexity over all windows.
func (a *Answer) Perplexity() float64 { return math.Exp(a.NLL / float64(a.Predicted)) }

// Stored is the part of a trajectories.json that is compared.
type Stored struct {
	Trajectories []Trajectory `json:"trajectories"`
}

// Trajectory is a prompt and the tokens that follow it.
type Trajectory struct {
	Prompt  []int32   `json:"prompt_ids"`
	IDs     []int32   `json:"ids"`
	Margins []float64 `json:"margins"`
}

// Windows are prompts with their tokens.
func (s *Stored) Windows() (w [][]int32) {
	for _, t := range s.Trajectories {
		w = append(w, slices.Concat(t.Prompt, t.IDs))
	}
	return w
}

// Read reads a trajectories.json.
func Read(t testing.TB, path string) *Stored {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Stored{}
	if err := json.Unmarshal(b, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// exact is a model in memory as its weights are, for float64 arithmetic.
type exact struct {
	m       *ternary.Model
	tensors map[string]ternary.Tensor // by GGUF's names
}

// Exact returns the weights of m, which is in memory, for package dense.
func Exact(m *ternary.Model) dense.Weights {
	w := &exact{m, map[string]ternary.Tensor{}}
	for t := range m.Tensors() {
		w.tensors[t.Name+".weight"] = t
		if t.Ternary != nil && t.Ternary.Bias != nil {
			w.tensors[t.Name+".bias"] = ternary.Tensor{Vector: t.Ternary.Bias}
		}
	}
	return w
}

func (w *exact) Config() *ternary.Config      { return &w.m.Config }
func (w *exact) Vector(name string) []float32 { return w.tensors[name].Vector }
func (w *exact) Round(string, []float64)      {}
func (w *exact) Half() bool                   { return false }

func (w *exact) Rows(dst []float32, name string, r0, r1 int) error {
	t, ok := w.tensors[name]
	if !ok {
		return fmt.Errorf("no tensor %q", name)
	}
	cols := len(dst) / (r1 - r0)
	for r := range r1 - r0 {
		t.Values(dst[r*cols:(r+1)*cols], r0+r)
	}
	return nil
}

// Greedy lets m continue n prompts for some steps and returns the path of a file
// like trajectories.json of the outcome: in float64, or with the reference backend
// where the model is BitNet, which its 8-bit activations define.
func Greedy(t testing.TB, m *ternary.Model, n, steps int) string {
	t.Helper()
	choose := exactly(t, m)
	if m.Arch == ternary.BitNet {
		choose = referenced(t, m)
	}
	s := Stored{make([]Trajectory, n)}
	for i := range s.Trajectories {
		x := &s.Trajectories[i]
		for k := range 4 {
			x.Prompt = append(x.Prompt, int32((7*i+5*k+i*k)%m.Vocab))
		}
		x.IDs, x.Margins = choose(x.Prompt, steps)
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "trajectories.json")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// chooser returns the tokens that a model puts behind a prompt, with their margins.
type chooser func(prompt []int32, steps int) (ids []int32, margins []float64)

func exactly(t testing.TB, m *ternary.Model) chooser {
	w := Exact(m)
	return func(prompt []int32, steps int) (ids []int32, margins []float64) {
		for range steps {
			tokens := slices.Concat(prompt, ids)
			scores, err := dense.Run(t.Context(), w, []dense.Text{{Tokens: tokens, From: len(tokens) - 1, Next: []int32{0}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ids, margins = append(ids, scores[0][0].Best), append(margins, scores[0][0].Margin)
		}
		return ids, margins
	}
}

func referenced(t testing.TB, m *ternary.Model) chooser {
	in, err := reference.Backend{}.Load(t.Context(), m, backend.Options{KV: backend.KVF32})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return func(prompt []int32, steps int) (ids []int32, margins []float64) {
		ids, margins, _ = Continue(t, in, prompt, steps)
		return ids, margins
	}
}

// Continue lets in choose n tokens behind the prompt. It returns them, by how much
// their logits are above the second-largest, and the logits that chose the last.
func Continue(t testing.TB, in backend.Instance, prompt []int32, n int) (ids []int32, margins []float64, logits []float32) {
	t.Helper()
	seq, err := in.NewSequence(len(prompt) + n)
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	logits = make([]float32, in.Config().Vocab)
	for next := prompt; len(ids) < n; next = ids[len(ids)-1:] {
		run := backend.Run{Seq: seq, Tokens: next, Want: []int{len(next) - 1}, Logits: logits}
		if err := in.Forward(t.Context(), []backend.Run{run}); err != nil {
			t.Fatal(err)
		}
		best, second := 0, math.Inf(-1)
		for i, x := range logits[1:] {
			if x > logits[best] {
				best, second = i+1, float64(logits[best])
			} else {
				second = max(second, float64(x))
			}
		}
		ids, margins = append(ids, int32(best)), append(margins, float64(logits[best])-second)
	}
	return ids, margins, logits
}

// Load is how much is decoded of each file.
type Load struct {
	Limit int // trajectories, at most
	Free  int // of them by themselves
	Steps int // of those
}

// Decode runs a decode.py with the Python of NPACK_PYTHON, or python3, on pairs
// of a model and a trajectories.json. It skips the test, saying why, if that
// lacks one of the modules.
func Decode(t testing.TB, modules []string, script string, l Load, pairs ...string) []Answer {
	t.Helper()
	python := os.Getenv("NPACK_PYTHON")
	if python == "" {
		python = "python3"
	}
	for _, m := range modules {
		// Found, not imported: that takes seconds.
		find := exec.CommandContext(t.Context(), python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)", m)
		if err := find.Run(); err != nil {
			t.Skipf("SKIP: %s has no module %s: %v", python, m, err)
		}
	}
	args := append([]string{script, strconv.Itoa(l.Limit), strconv.Itoa(l.Free), strconv.Itoa(l.Steps)}, pairs...)
	out, err := exec.CommandContext(t.Context(), python, args...).Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			err = fmt.Errorf("%w: %s", err, e.Stderr)
		}
		t.Fatal(err)
	}
	var a []Answer
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return a
}

// Differences returns how many tokens differ from the stored ones, and a line
// for each trajectory that does with the first of them and its margin; compared
// is the number of all.
func (a *Answer) Differences(s *Stored) (compared, different int, lines []string) {
	for i, r := range a.Runs {
		want := s.Trajectories[i]
		compared += len(r.Forced) + min(len(r.Free), len(want.IDs))
		first := -1
		for k, id := range r.Forced {
			if id != want.IDs[k] {
				if different++; first < 0 {
					first = k
				}
			}
		}
		if first >= 0 {
			lines = append(lines, fmt.Sprintf("prompt %d, step %d: token %d, stored is %d with a margin of %.2g; its own is %.2g", i, first, r.Forced[first], want.IDs[first], want.Margins[first], r.Margins[first]))
		}
		for k, id := range r.Free[:min(len(r.Free), len(want.IDs))] {
			if id != want.IDs[k] {
				different++
				lines = append(lines, fmt.Sprintf("prompt %d alone, step %d: token %d, stored is %d with a margin of %.2g", i, k, id, want.IDs[k], want.Margins[k]))
				break
			}
		}
	}
	return compared, different, lines
}

// MarginError is the largest difference of a margin from the stored one.
func (a *Answer) MarginError(s *Stored) (worst float64) {
	for i, r := range a.Runs {
		for k, m := range r.Margins {
			worst = max(worst, math.Abs(m-s.Trajectories[i].Margins[k]))
		}
	}
	return worst
}
