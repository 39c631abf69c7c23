package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"npack/cuda"
)

// check runs the program on the card there is, with the smallest models, and
// returns its exit status, its report and what it said.
func checkCard(t *testing.T, args ...string) (code int, r report, log string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "report.json")
	var said bytes.Buffer
	code = run(t.Context(), append([]string{"-o", out}, args...), &said)
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("exit %d: %v: %s", code, err, &said)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return code, r, said.String()
}

func TestCheck(t *testing.T) {
	if _, err := cuda.Cards(); errors.Is(err, cuda.ErrUnavailable) {
		t.Skipf("%v (make gpu-proof runs this on a driver of its own)", err)
	}
	const model = "../../testdata/tv4z/a3-tied.bin"
	code, r, log := checkCard(t, "-target", model, "-draft", model, "-prompt", "48", "-tokens", "6", "-rounds", "2")
	if code != 0 || len(r.Errors) > 0 || r.Wrong {
		t.Fatalf("exit %d: %q\n%s", code, r.Errors, log)
	}
	if r.Card == nil || r.Card.Capability < cuda.MinCapability || r.Open <= 0 || r.Probe <= 0 || r.MemoryFree <= 0 || r.Seconds <= 0 || len(r.Compiled) < 10 {
		t.Errorf("the card: %+v", r)
	}
	checkModels(t, &r, 512)
}

// checkModels checks what was measured of a model that drafts for itself.
func checkModels(t *testing.T, r *report, chunk int) {
	t.Helper()
	if len(r.Models) != 2 || len(r.Drafted) != 12 {
		t.Fatalf("%d models, %d drafted runs", len(r.Models), len(r.Drafted))
	}
	for _, m := range r.Models {
		if len(m.Load) != 2 || m.Planned <= 0 || m.Peak < m.Taken || m.Taken <= 0 || m.Peak > m.Planned+1<<20 || m.Token <= 0 || len(m.Prefill) != 2 || len(m.Decode) != 2 || len(m.Passes) != 8 {
			t.Errorf("%+v", m)
		}
		if m.Prefill[1].Chunk != chunk {
			t.Errorf("a prompt in chunks of %d, the backend takes %d", m.Prefill[1].Chunk, chunk)
		}
		for _, rate := range append(m.Prefill, m.Decode...) {
			if !(rate.Min > 0 && rate.Min <= rate.Median && rate.Median <= rate.Max) {
				t.Errorf("%+v", rate)
			}
		}
	}
	for _, d := range r.Drafted {
		if d.Rate <= 0 || d.Plain <= 0 || d.Length > 0 && (d.PerPass <= 1 || d.Accepted <= 0) {
			t.Errorf("%+v", d)
		}
	}
}

// What fails is named, and the rest is still looked at.
func TestCheckFails(t *testing.T) {
	if _, err := cuda.Cards(); errors.Is(err, cuda.ErrUnavailable) {
		code, r, _ := checkCard(t)
		if code != 1 || len(r.Errors) != 1 || !strings.HasPrefix(r.Errors[0], "the card: ") {
			t.Errorf("without a card: exit %d, %q", code, r.Errors)
		}
		return
	}
	code, r, _ := checkCard(t, "-tests", "nowhere.test", "-target", "nowhere.bin", "-limit", "1h")
	if code != 1 || len(r.Errors) != 2 || !strings.HasPrefix(r.Errors[0], "tests: ") || !strings.HasPrefix(r.Errors[1], "models: ") {
		t.Errorf("exit %d, %q", code, r.Errors)
	}
	if code, r, _ := checkCard(t, "-tests", "nowhere.test", "-limit", "0"); code != 1 || !strings.Contains(r.Errors[0], "the time is up") {
		t.Errorf("no time: exit %d, %q", code, r.Errors)
	}
}
