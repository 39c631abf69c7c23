package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"npack/internal/race"
)

// llama returns a program of llama.cpp's, from the directory NPACK_LLAMA or, without
// it, from PATH.
func llama(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if dir := os.Getenv("NPACK_LLAMA"); dir != "" {
		path, err = exec.LookPath(filepath.Join(dir, name))
	}
	if err != nil {
		t.Skipf("SKIP: no %s: %v (make race-llama builds it)", name, err)
	}
	return path
}

// stockGGUF writes models of testdata as an unpatched llama.cpp reads them, with
// their very weights.
func stockGGUF(t *testing.T, models ...string) (files []string) {
	t.Helper()
	dir := t.TempDir()
	npack := filepath.Join(dir, "npack.exe")
	do := func(name string, args ...string) {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
	do("go", "build", "-o", npack, "../npack")
	for _, m := range models {
		f := filepath.Join(dir, m+".gguf")
		do(npack, "to-gguf", "-q", "--quick", "--stock", "f32", "../../testdata/"+m, f)
		files = append(files, f)
	}
	return files
}

// TestRaceLlama races story, plain and drafted, against a real llama-server that
// has the same weights in float32, plain and drafted. All make the tokens that are
// stored; llama.cpp makes none behind the end of a text.
func TestRaceLlama(t *testing.T) {
	server := llama(t, "llama-server")
	files := stockGGUF(t, "story", "storydraft")
	var lines strings.Builder
	var answers [][]int32
	var read, common, short int
	for _, p := range stored(t) {
		lines.WriteString(strings.Trim(strings.Join(strings.Fields(fmt.Sprint(p.PromptIDs)), ","), "[]") + "\n")
		answers = append(answers, p.IDs)
		read += len(p.PromptIDs)
		if common += len(p.IDs); p.FirstStop != nil && *p.FirstStop+1 < len(p.IDs) {
			common -= len(p.IDs) - 1 - *p.FirstStop // the token that ends the text is told
			short++
		}
	}
	battery := filepath.Join(t.TempDir(), "stored.txt")
	if err := os.WriteFile(battery, []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	command := fmt.Sprintf(`"%s" -m "%s" -np 1 -t 1 --port {port}`, server, files[0])
	r := runRaceJSON(t, "--run", "nrun: threads=1", "--run", "drafted: threads=1 draft=../../testdata/storydraft draft-length=3",
		"--run", "llama: server='"+command+" -c 512'", "--run", fmt.Sprintf(`llama-drafted: server='%s -c 512 -md "%s" --spec-type draft-simple -td 1'`, command, files[1]),
		"--battery", battery, "-n", "64", "--rounds", "2")
	all := len(answers) * 64
	for i, want := range []race.Compared{{Status: race.Reference, Tokens: all}, {Status: race.Equal, Tokens: all}, {Status: race.Equal, Tokens: common, Short: short}, {Status: race.Equal, Tokens: common, Short: short}} {
		if c := r.Identity.Results[i]; c.Status != want.Status || c.Tokens != want.Tokens || c.Short != want.Short {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	for _, round := range r.Rounds {
		for i, s := range round.Samples {
			tokens := all - len(answers)
			if i >= 2 {
				tokens = common - len(answers)
			}
			if w := s.Total; w.PromptTokens != read || w.Tokens != tokens {
				t.Errorf("%s: %+v, want %d tokens read and %d made behind the first ones", s.Contestant, w, read, tokens)
			}
			if w := s.Total; i%2 == 1 && (w.Kept == 0 || w.Kept > w.Drafted || w.Passes < w.Tokens/4 || w.Passes >= w.Tokens) { // three are drafted, in both
				t.Errorf("%s: %+v", s.Contestant, w)
			}
		}
	}

	// A server whose context ends before the answer does is refused, not taken for
	// one that ends the text.
	code, _, stderr := nrun("", "race", "--run", "nrun: threads=1", "--run", `llama: request='{"ignore_eos": true}' server='`+command+" -c 256'", "-p", "Once", "-n", "300")
	if code != 1 || !strings.Contains(stderr, "ran out of context at 255 of 300 tokens behind a prompt of 1: ") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// TestRaceLlamaBench races story against a real llama-bench.
func TestRaceLlamaBench(t *testing.T) {
	bench := llama(t, "llama-bench")
	file := stockGGUF(t, "story")[0]
	r := runRaceJSON(t, "--run", "nrun: threads=1", "--run", fmt.Sprintf(`llama: bench='"%s" -m "%s" -t 1'`, bench, file), "-p", "Once upon a time there was a fox", "-n", "17", "--rounds", "1")
	w := r.Rounds[0].Samples[1].Total
	if c := r.Identity.Results[1]; c.Status != race.NotCompared || !c.SpeedOnly || w.Tokens != 16 || w.PromptTokens != len(r.Prompts[0].IDs) || w.DecodeRate() <= 0 {
		t.Errorf("%+v, %+v", c, w)
	}
}
