package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"npack/internal/llamatest"
	"npack/pack/stock"
	"npack/runtime/identity"
)

// llamaJob is a run of llama.cpp.
type llamaJob struct {
	llamatest.Job
	what string
	must bool // all tokens
}

// TestLlama lets the published llama.cpp decode files that --stock wrote: it
// must choose every token of the trajectories with f32 and with the type that
// auto takes. With NPACK_EXHAUSTIVE=1 it runs the other types, too; what it
// chooses otherwise there is reported, with the margins.
func TestLlama(t *testing.T) {
	llamatest.Require(t)
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
			job := llamaJob{Job: llamatest.Job{Model: out, Trajectories: paths}, what: name + " " + ty}
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
	list := make([]llamatest.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].Job
	}
	answers := llamatest.Decode(t, list)
	for i, job := range jobs {
		report, equal, total := compareLlama(t, job, &answers[i])
		t.Logf("%-26s %4d of %d tokens%s", job.what, equal, total, report)
		if job.must && equal != total {
			t.Errorf("%s: llama.cpp chooses %d of %d tokens%s", job.what, equal, total, report)
		}
	}
}

// compareLlama counts equal tokens; report names the first difference.
func compareLlama(t *testing.T, job llamaJob, got *llamatest.Answer) (report string, equal, total int) {
	t.Helper()
	data, err := os.ReadFile(job.Trajectories)
	if err != nil {
		t.Fatal(err)
	}
	want, err := identity.Parse(data, 4096, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Prompts) != len(want) {
		t.Fatalf("%s: %d prompts, want %d", job.what, len(got.Prompts), len(want))
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
