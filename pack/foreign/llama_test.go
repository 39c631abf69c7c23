package foreign

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"npack/cpu"
	"npack/gguf"
	"npack/internal/llamatest"
	"npack/internal/pylib"
	"npack/internal/tokens"
	"npack/pack/fv5"
	"npack/runtime/backend"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// TestLlamaAgrees lets the published llama.cpp decode GGUF files and compares its
// tokens with those of the containers that are imported from them: with f32
// linears all of them, with ternary ones, where llama.cpp rounds activations to 8
// bits, most. An architecture whose rows were in another order, or a scale taken
// the other way, would agree in one of 4,096.
func TestLlamaAgrees(t *testing.T) {
	llamatest.Require(t)
	tok, err := tokens.FromPack("../../testdata/story", 4096)
	if err != nil {
		t.Fatal(err)
	}
	type trajectory struct {
		Prompt []int32 `json:"prompt_ids"`
		IDs    []int32 `json:"ids"`
	}
	dir := t.TempDir()
	var jobs []llamatest.Job
	var names []string
	var want [][]trajectory
	for _, tt := range []struct {
		name string
		arch ternary.Arch
		typ  gguf.Type
	}{
		{"llama", ternary.Qwen2, gguf.F32}, {"qwen2", ternary.Qwen2, gguf.F32}, {"qwen3", ternary.Qwen3, gguf.F32},
		{"llama", ternary.Qwen2, gguf.TQ1_0}, {"qwen3", ternary.Qwen3, gguf.TQ2_0},
	} {
		m := ternarytest.Model(ternarytest.Spec{Seed: 21, Bias: tt.name == "qwen2", Config: ternary.Config{Arch: tt.arch, Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64,
			RotaryDims: 64, Intermediate: 512, Vocab: 4096, MaxPosition: 512, RMSEps: 1e-5, RopeTheta: 10000}})
		oneMagnitude(m)
		described := fv5.Describe(&m.Config, fv5.Options{Tokenizer: tok})
		var keys []gguf.KV
		for _, kv := range described {
			if strings.HasPrefix(kv.Key, "tokenizer.") {
				keys = append(keys, kv)
			}
		}
		b := ggufOf(t, m, tt.name, tt.typ, nil, keys...)
		f, err := openBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Model().Load(context.Background(), ternary.WalkOptions{}); err != nil {
			t.Fatal(err)
		}
		in, err := cpu.Backend{}.Load(context.Background(), f.Model(), backend.Options{KV: backend.KVF32})
		if err != nil {
			t.Fatal(err)
		}
		var runs []trajectory
		for _, prompt := range [][]int32{{5, 900, 17, 2222}, {4000, 1}, {77, 3000, 12, 1, 2048, 640, 31}} {
			ids, _, _ := pylib.Continue(t, in, prompt, 24)
			runs = append(runs, trajectory{prompt, ids})
		}
		in.Close()
		name := tt.name + "-" + tt.typ.Name()
		text, err := json.Marshal(map[string]any{"trajectories": runs})
		if err != nil {
			t.Fatal(err)
		}
		j := llamatest.Job{Model: filepath.Join(dir, name+".gguf"), Trajectories: filepath.Join(dir, name+".json"), KV: "F32"}
		write(t, j.Model, b)
		write(t, j.Trajectories, text)
		jobs, names, want = append(jobs, j), append(names, name), append(want, runs)
	}
	for i, got := range llamatest.Decode(t, jobs) {
		equal, total := 0, 0
		for k, p := range got.Prompts {
			for n, id := range p.IDs {
				total++
				if id == want[i][k].IDs[n] {
					equal++
				}
			}
		}
		t.Logf("%s: llama.cpp chooses %d of %d tokens", names[i], equal, total)
		if total != 72 || equal < total/2 || equal < total && strings.HasSuffix(names[i], "F32") {
			t.Errorf("%s: %d of %d", names[i], equal, total)
		}
	}
}
