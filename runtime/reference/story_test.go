package reference_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"npack/pack/native"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/testdata/story"
	"npack/testdata/storydraft"
)

// trajectory is one prompt of a trajectories.json with its greedy tokens.
type trajectory struct {
	PromptIDs []int32   `json:"prompt_ids"`
	IDs       []int32   `json:"ids"`
	Margins   []float64 `json:"margins"`
}

func trajectories(t testing.TB, data []byte) []trajectory {
	t.Helper()
	var f struct{ Trajectories []trajectory }
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f.Trajectories
}

func open(t testing.TB, data []byte) *ternary.Model {
	t.Helper()
	f, err := native.OpenBytes("embedded", data)
	if err != nil {
		t.Fatal(err)
	}
	return f.Model()
}

// forced returns the logits [len(ids), Vocab] before each of ids, teacher
// forced after the prompt.
func forced(t testing.TB, in backend.Instance, tr trajectory) []float32 {
	t.Helper()
	seq, err := in.NewSequence(len(tr.PromptIDs) + len(tr.IDs))
	if err != nil {
		t.Fatal(err)
	}
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

func argmax(x []float32) (best int32) {
	for i, v := range x {
		if v > x[best] {
			best = int32(i)
		}
	}
	return best
}

func leBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// The logits equal those of testdata/numerics/sim.py, an independent
// simulation in numpy, bit for bit, at every position of every stored prompt.
func TestSimulationBits(t *testing.T) {
	for _, name := range []string{"story-exact-f16", "story-exact-f32", "story-int16-f16", "story-int8-f16", "draft-exact-f16"} {
		t.Run(name, func(t *testing.T) {
			var want struct {
				Activations, KV string
				SHA256          [][]string
			}
			data, err := os.ReadFile("../../testdata/numerics/" + name + ".json")
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
			m := open(t, model)
			in, err := reference.Backend{}.Load(context.Background(), m, o)
			if err != nil {
				t.Fatal(err)
			}
			trs := trajectories(t, paths)
			if len(trs) != len(want.SHA256) {
				t.Fatalf("%d prompts, %d simulated", len(trs), len(want.SHA256))
			}
			if testing.Short() || name != "story-exact-f16" {
				trs = trs[:6]
			}
			positions := 0
			for i, tr := range trs {
				logits := forced(t, in, tr)
				for j := range tr.IDs {
					l := logits[j*m.Vocab : (j+1)*m.Vocab]
					sum := sha256.Sum256(leBytes(l))
					if got := hex.EncodeToString(sum[:8]); got != want.SHA256[i][j] {
						t.Fatalf("prompt %d, position %d: logits %s, simulated %s", i, j, got, want.SHA256[i][j])
					}
					if o.Activations == backend.Exact && argmax(l) != tr.IDs[j] {
						t.Errorf("prompt %d, position %d: token %d, stored %d (margin %g)", i, j, argmax(l), tr.IDs[j], tr.Margins[j])
					}
					positions++
				}
			}
			t.Logf("%d positions equal", positions)
		})
	}
}
