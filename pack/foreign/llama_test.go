package foreign

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"npack/cpu"
	"npack/gguf"
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
	if testing.Short() {
		t.Skip("SKIP: -short")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("SKIP: node is not installed, so the published llama.cpp cannot be run")
	}
	modules, err := filepath.Abs("../../node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "node-llama-cpp")); err != nil {
		t.Skipf("SKIP: no llama.cpp: %v (.ci/run has the npm command)", err)
	}
	tok, err := tokens.FromPack("../../testdata/story", 4096)
	if err != nil {
		t.Fatal(err)
	}
	type trajectory struct {
		Prompt []int32 `json:"prompt_ids"`
		IDs    []int32 `json:"ids"`
	}
	type job struct {
		Model        string `json:"model"`
		Trajectories string `json:"trajectories"`
		KV           string `json:"kv"`
	}
	dir := t.TempDir()
	var jobs []job
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
		j := job{filepath.Join(dir, name+".gguf"), filepath.Join(dir, name+".json"), "F32"}
		write(t, j.Model, b)
		write(t, j.Trajectories, text)
		jobs, names, want = append(jobs, j), append(names, name), append(want, runs)
	}
	arg, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "../../cmd/npack/testdata/llama/llama.mjs", modules, string(arg))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(jobs) {
		t.Fatalf("%d answers to %d jobs\n%s", len(lines), len(jobs), out)
	}
	for i, line := range lines {
		var got struct {
			Prompts []struct {
				IDs []int32 `json:"ids"`
			} `json:"prompts"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
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
		if least := total; total != 72 || equal < least && strings.HasSuffix(names[i], "F32") || equal < least/2 {
			t.Errorf("%s: %d of %d", names[i], equal, total)
		}
	}
}
