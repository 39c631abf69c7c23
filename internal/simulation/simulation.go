// Package simulation holds backends to an implementation of NUMERICS.md that
// shares nothing with this program: testdata/numerics/sim.py, in numpy, whose
// logits on the story models are stored as checksums.
package simulation

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"testing"

	"npack/pack/native"
	"npack/runtime/backend"
	"npack/ternary"
	"npack/testdata/numerics"
	"npack/testdata/story"
	"npack/testdata/storydraft"
)

// Trajectory is one prompt of a trajectories.json with its greedy tokens.
type Trajectory struct {
	PromptIDs []int32   `json:"prompt_ids"`
	IDs       []int32   `json:"ids"`
	Margins   []float64 `json:"margins"`
}

// Trajectories reads a trajectories.json.
func Trajectories(t testing.TB, data []byte) []Trajectory {
	t.Helper()
	var f struct{ Trajectories []Trajectory }
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f.Trajectories
}

// Open opens a container in memory.
func Open(t testing.TB, data []byte) *ternary.Model {
	t.Helper()
	f, err := native.OpenBytes("embedded", data)
	if err != nil {
		t.Fatal(err)
	}
	return f.Model()
}

// Forced returns the logits [len(ids), Vocab] before each of ids, teacher
// forced after the prompt.
func Forced(t testing.TB, in backend.Instance, tr Trajectory) []float32 {
	t.Helper()
	seq, err := in.NewSequence(len(tr.PromptIDs) + len(tr.IDs))
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	r := backend.Run{Seq: seq, Logits: make([]float32, len(tr.IDs)*in.Config().Vocab)}
	r.Tokens = append(append(r.Tokens, tr.PromptIDs...), tr.IDs[:len(tr.IDs)-1]...)
	for i := range tr.IDs {
		r.Want = append(r.Want, len(tr.PromptIDs)-1+i)
	}
	if err := in.Forward(context.Background(), []backend.Run{r}); err != nil {
		t.Fatal(err)
	}
	return r.Logits
}

// Run compares the logits of b with the simulation's, bit for bit, at every
// position of the first prompts (24 are all) of the story model with exact
// activations and an f16 cache, and of at most 6 prompts of the other runs.
func Run(t *testing.T, b backend.Backend, prompts int) {
	for _, name := range []string{"story-exact-f16", "story-exact-f32", "story-int16-f16", "story-int8-f16", "draft-exact-f16"} {
		t.Run(name, func(t *testing.T) {
			var want struct {
				Activations, KV string
				SHA256          [][]string
			}
			data, err := numerics.Files.ReadFile(name + ".json")
			if err == nil {
				err = json.Unmarshal(data, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			var o backend.Options
			if o.Activations, err = backend.ParseActivations(want.Activations); err != nil {
				t.Fatal(err)
			}
			if o.KV, err = backend.ParseKV(want.KV); err != nil {
				t.Fatal(err)
			}
			model, paths := story.Container, story.Trajectories
			if name == "draft-exact-f16" {
				model, paths = storydraft.Container, storydraft.Trajectories
			}
			trs := Trajectories(t, paths)
			if len(trs) != len(want.SHA256) {
				t.Fatalf("%d prompts, %d simulated", len(trs), len(want.SHA256))
			}
			if name != "story-exact-f16" {
				trs = trs[:6]
			}
			trs = trs[:min(prompts, len(trs))]
			in, err := b.Load(context.Background(), Open(t, model), o)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			compare(t, in, trs, want.SHA256)
		})
	}
}

func compare(t *testing.T, in backend.Instance, trs []Trajectory, want [][]string) {
	vocab, positions := in.Config().Vocab, 0
	for i, tr := range trs {
		logits := Forced(t, in, tr)
		for j := range tr.IDs {
			l := logits[j*vocab : (j+1)*vocab]
			sum := sha256.Sum256(littleEndian(l))
			if got := hex.EncodeToString(sum[:8]); got != want[i][j] {
				t.Fatalf("prompt %d, position %d: logits %s, simulated %s", i, j, got, want[i][j])
			}
			if in.Options().Activations == backend.Exact && Argmax(l) != tr.IDs[j] {
				t.Errorf("prompt %d, position %d: token %d, stored %d (margin %g)", i, j, Argmax(l), tr.IDs[j], tr.Margins[j])
			}
			positions++
		}
	}
	t.Logf("%d positions equal", positions)
}

// Argmax returns the smallest index of the largest value.
func Argmax(x []float32) (best int32) {
	for i, v := range x {
		if v > x[best] {
			best = int32(i)
		}
	}
	return best
}

func littleEndian(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
