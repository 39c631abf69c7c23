package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"npack/pack/stock"
	"npack/runtime/identity"
)

// llamaModules is where .ci/run installs node-llama-cpp, whose packages carry
// llama.cpp as it is published, compiled.
const llamaModules = "../../node_modules"

// llamaJob is a run of testdata/llama/llama.mjs.
type llamaJob struct {
	Model        string `json:"model"`
	Trajectories string `json:"trajectories"`
	KV           string `json:"kv,omitempty"` // "" is llama.cpp's default, F16
	Free         bool   `json:"free"`

	what string
	must bool // all tokens
}

// TestLlama lets the published llama.cpp decode files that --stock wrote: it
// must choose every token of the trajectories with f32 and with the type that
// auto takes. With NPACK_EXHAUSTIVE=1 it runs the other types, too; what it
// chooses otherwise there is reported, with the margins.
func TestLlama(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: -short: some 8,000 tokens with llama.cpp")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("SKIP: node is not installed, so the published llama.cpp cannot be run")
	}
	if _, err := os.Stat(filepath.Join(llamaModules, "node-llama-cpp")); err != nil {
		t.Skipf("SKIP: no llama.cpp: %v (.ci/run has the npm command)", err)
	}
	modules, err := filepath.Abs(llamaModules)
	if err != nil {
		t.Fatal(err)
	}
	var jobs []llamaJob
	dir := t.TempDir()
	for _, name := range []string{"story", "storydraft"} {
		paths, err := filepath.Abs("../../testdata/" + name + "/trajectories.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, ty := range stock.Names() {
			// auto takes f16 for the one model and f32 for the other, whose
			// narrowest margin, 0.00016, is within what F16 attention moves.
			auto := map[string]string{"story": "f16", "storydraft": "f32"}[name]
			if ty != "f32" && ty != auto && os.Getenv("NPACK_EXHAUSTIVE") == "" {
				continue
			}
			out := filepath.Join(dir, name+"-"+ty+".gguf")
			var stderr bytes.Buffer
			if code := run([]string{"npack", "to-gguf", "--stock", ty, "--quick", "-q", "../../testdata/" + name, out}, nil, io.Discard, &stderr); code != 0 {
				t.Fatalf("exit %d: %s", code, &stderr)
			}
			job := llamaJob{Model: out, Trajectories: paths, what: name + " " + ty}
			if ty == "f32" { // nothing is rounded anywhere
				exact := job
				exact.KV, exact.must, exact.what = "F32", true, exact.what+", f32 cache"
				jobs = append(jobs, exact)
			}
			// The type of auto as users run it: with its own tokens, one at a time.
			job.Free, job.must = ty == auto, ty == auto || ty == "f32"
			jobs = append(jobs, job)
		}
	}
	arg, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "testdata/llama/llama.mjs", modules, string(arg))
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
	for i, job := range jobs {
		report, equal, total := compareLlama(t, job, lines[i])
		t.Logf("%-26s %4d of %d tokens%s", job.what, equal, total, report)
		if job.must && equal != total {
			t.Errorf("%s: llama.cpp chooses %d of %d tokens%s", job.what, equal, total, report)
		}
	}
}

// compareLlama counts equal tokens; report names the first difference.
func compareLlama(t *testing.T, job llamaJob, line string) (report string, equal, total int) {
	t.Helper()
	data, err := os.ReadFile(job.Trajectories)
	if err != nil {
		t.Fatal(err)
	}
	want, err := identity.Parse(data, 4096, 1024)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Prompts []struct {
			IDs     []int32   `json:"ids"`
			Margins []float64 `json:"margins"`
		} `json:"prompts"`
	}
	if err := json.Unmarshal([]byte(line), &got); err != nil || len(got.Prompts) != len(want) {
		t.Fatalf("%s: %v: %.200s", job.what, err, line)
	}
	worst := 0.0 // stored margin of a token that was chosen otherwise
	for i, p := range got.Prompts {
		if len(p.IDs) != len(want[i].IDs) {
			t.Fatalf("%s: prompt %d: %d tokens, want %d", job.what, i, len(p.IDs), len(want[i].IDs))
		}
		total += len(p.IDs)
		for j, id := range p.IDs {
			if id == want[i].IDs[j] {
				equal++
				continue
			}
			worst = max(worst, want[i].Margins[j])
			if report == "" {
				report = fmt.Sprintf(", first prompt %d token %d: %d instead of %d, margin %.4f, stored %.4f", i, j, id, want[i].IDs[j], p.Margins[j], want[i].Margins[j])
			}
			if job.Free {
				break // another text from here on
			}
		}
	}
	if report != "" {
		report += fmt.Sprintf("; largest stored margin of a difference %.4f", worst)
	}
	return report, equal, total
}
