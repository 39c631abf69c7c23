package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"npack/cuda"
	"npack/gpu"
	"npack/gpu/gputest"
	"npack/pack/formats"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/runtime/reference"
)

// pretend names how this binary behaves as a test binary of package cuda.
const pretend = "DEVICECHECK_PRETEND"

func TestMain(m *testing.M) {
	if os.Getenv(pretend) == "deaf" {
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// TestPretend is what TestTests runs.
func TestPretend(t *testing.T) {
	switch os.Getenv(pretend) {
	case "skip":
		t.Run("sub", func(t *testing.T) { t.Skip("no reason") })
	case "fail":
		t.Error("other bits")
	case "hang":
		time.Sleep(time.Hour)
	}
}

// newCheck is a check of a card in plain Go that takes a minute at most.
func newCheck(t *testing.T, limit time.Duration) *check {
	d := gputest.New(89)
	b, err := gpu.New("plain", d, gpu.Options{Unproven: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeoutCause(t.Context(), limit, errTime)
	t.Cleanup(func() {
		stop()
		if d.Buffers() != 0 {
			t.Errorf("%d buffers left", d.Buffers())
		}
	})
	return &check{report: &report{Card: &cuda.Card{}, Bandwidth: 1e9, Threads: 1}, out: filepath.Join(t.TempDir(), "report.json"), log: io.Discard,
		ctx: ctx, start: time.Now(), limit: limit, b: b, free: func() int64 { return d.Info().Free }, rounds: 2, tokens: 3, prompt: 20}
}

// TestTests runs a test binary that passes, and others that say less.
func TestTests(t *testing.T) {
	for _, c := range []struct {
		pretend, pattern string
		limit            time.Duration
		want             string // of the error; "" for none
		wrong            bool
	}{
		{"pass", "Pretend", time.Minute, "", false},
		{"skip", "Pretend", time.Minute, "1 skipped: TestPretend/sub; ", false},
		{"fail", "Pretend", time.Minute, "exit status 1: 1 failed; ", true},
		{"none", "Nothing", time.Minute, "none ran; ", false},
		{"hang", "Pretend", 2 * time.Second, "test timed out after 1s", false},
		{"deaf", "Pretend", time.Second, "ended after 1 s; ", false},
	} {
		t.Run(c.pretend, func(t *testing.T) {
			t.Setenv(pretend, c.pretend)
			x := newCheck(t, c.limit)
			err := x.test(os.Args[0], c.pattern)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || x.Wrong != c.wrong {
				t.Errorf("%v, want %q; wrong: %t", err, c.want, x.Wrong)
			}
		})
	}
}

func TestReadTests(t *testing.T) {
	got := readTests("=== RUN   TestA\n--- PASS: TestA (0.01s)\n    --- SKIP: TestA/b (0.00s)\n    x_test.go:3: --- PASS: not a line of its own\n" +
		"--- FAIL: TestB (1.00s)\n    --- FAIL: TestB/sm_89/forward (0.10s)\nFAIL\n")
	if got.Passed != 1 || !slices.Equal(got.Skipped, []string{"TestA/b"}) || !slices.Equal(got.Failed, []string{"TestB", "TestB/sm_89/forward"}) {
		t.Errorf("%+v", got)
	}
}

func TestVisible(t *testing.T) {
	for _, c := range []struct {
		list  string
		index int
		want  string
	}{{"", 2, "2"}, {"GPU-a,GPU-b", 1, "GPU-b"}, {"5", 0, "5"}, {"5", 3, "3"}} {
		t.Setenv("CUDA_VISIBLE_DEVICES", c.list)
		if got := visible(c.index); got != c.want {
			t.Errorf("%q, card %d: %q, want %q", c.list, c.index, got, c.want)
		}
	}
}

// TestParts: the report is on disk after each part, errors and lost time are named.
func TestParts(t *testing.T) {
	x := newCheck(t, time.Minute)
	var on report
	read := func() report {
		on = report{}
		data, err := os.ReadFile(x.out)
		if err == nil {
			err = json.Unmarshal(data, &on)
		}
		if err != nil {
			t.Fatal(err)
		}
		return on
	}
	if !x.part("one", func() error { x.MemoryFree = 7; return nil }) || read().MemoryFree != 7 {
		t.Errorf("after a part: %+v", on)
	}
	if x.part("two", func() error { return fmt.Errorf("two: %w", gpu.ErrDiffers) }) || !x.Wrong || len(x.Errors) != 1 {
		t.Errorf("after wrong bits: %+v", x.report)
	}
	x = newCheck(t, time.Millisecond)
	x.part("three", func() error { <-x.ctx.Done(); return fmt.Errorf("a pass: %w", x.ctx.Err()) })
	if x.part("four", func() error { return errors.New("it was run") }); !slices.Equal(x.Errors, []string{"three: the time is up", "four: the time is up"}) || x.Wrong {
		t.Errorf("%q", x.Errors)
	}
}

// TestModels measures a small model and its draft on a card in plain Go.
func TestModels(t *testing.T) {
	const file = "../../testdata/tv4z/a3-tied.bin"
	x := newCheck(t, time.Minute)
	if err := x.models(file, file); err != nil || len(x.Errors) > 0 || x.Wrong {
		t.Fatalf("%v, %q", err, x.Errors)
	}
	checkModels(t, x.report, x.chunk())
	x = newCheck(t, time.Minute)
	if err := x.models(file, "nowhere.bin"); !errors.Is(err, os.ErrNotExist) || len(x.Models) != 2 || len(x.Models[0].Passes) == 0 {
		t.Errorf("without a draft: %v, %d models", err, len(x.Models))
	}
}

// TestSimulated: guesses are right as often as is asked for, and none is made behind
// the text whose answer is known.
func TestSimulated(t *testing.T) {
	src, err := formats.Open(t.Context(), "../../testdata/tv4z/a3-tied.bin")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	in, err := reference.Backend{}.Load(t.Context(), src.Model(), backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	greedy, err := engine.NewSampler(engine.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	vocab := in.Config().Vocab
	truth := ids(60, vocab)
	text := slices.Concat(ids(4, vocab), truth)
	for _, right := range []float64{0, 0.5, 1} {
		model, err := engine.NewDraftModel(in, len(text), vocab)
		if err != nil {
			t.Fatal(err)
		}
		d := &simulated{model, truth, 4, vocab, right, rand.New(rand.NewPCG(1, 2))}
		hits, all := 0, 0
		for at := 4; at < len(text); at++ {
			got, err := d.Propose(t.Context(), []int32{-1}, text[:at], 3, greedy)
			if err != nil || len(got) != 1+min(3, len(text)-at) || got[0] != -1 {
				t.Fatalf("at %d: %d, %v", at, got, err)
			}
			for i, id := range got[1:] {
				all++
				if id == text[at+i] {
					hits++
				}
			}
		}
		model.Close()
		if share := float64(hits) / float64(all); share < right-0.1 || share > right+0.1 {
			t.Errorf("right %g: %g of %d", right, share, all)
		}
	}
}
