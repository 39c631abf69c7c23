// Package llamatest lets llama.cpp, as it is published, decode GGUF files in
// tests: a second opinion. .ci/run installs node-llama-cpp, whose packages carry
// it compiled.
package llamatest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Job is a file to decode, and a trajectories.json of prompts and tokens.
type Job struct {
	Model        string `json:"model"`
	Trajectories string `json:"trajectories"`
	KV           string `json:"kv,omitempty"` // "" is llama.cpp's default, F16
	Free         bool   `json:"free"`         // with its own tokens, one at a time, not behind the stored ones
}

// Answer is what llama.cpp chose for each prompt of a job.
type Answer struct {
	Prompts []struct {
		IDs     []int32   `json:"ids"`
		Margins []float64 `json:"margins"`
	} `json:"prompts"`
}

// root is the folder of go.mod, seen from a package two folders below.
const root = "../.."

// Require skips the test, saying why, where llama.cpp cannot be run.
func Require(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIP: -short: thousands of tokens with llama.cpp")
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("SKIP: node is not installed, so the published llama.cpp cannot be run")
	}
	if _, err := os.Stat(filepath.Join(root, "node_modules/node-llama-cpp")); err != nil {
		t.Skipf("SKIP: no llama.cpp: %v (.ci/run has the npm command)", err)
	}
}

// Decode runs the jobs, one after the other. [Require] has to come before.
func Decode(t testing.TB, jobs []Job) []Answer {
	t.Helper()
	modules, err := filepath.Abs(filepath.Join(root, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(root, "internal/llamatest/llama.mjs"), modules, string(list))
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
	answers := make([]Answer, len(jobs))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &answers[i]); err != nil {
			t.Fatalf("%v: %.200s", err, line)
		}
	}
	return answers
}
