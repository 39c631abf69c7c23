// Command devicecheck looks at a real card in a few minutes and writes all that
// it found into one JSON object: whether the card's bits are right, and how fast
// it is. "make device-check" builds it with all that it needs, runs it, and leaves
// a folder that runs on a machine without Go.
//
// An error ends a part, not the whole; the object names it. The exit status is 0 if
// all parts were done and right, 3 if a bit was wrong, else 1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"npack/cuda"
	"npack/gpu"
	"npack/internal/cli"
	"npack/internal/machine"
	"npack/runtime/backend"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// report is what is written. Durations are in seconds.
type report struct {
	Version  string `json:"version"`
	Numerics int    `json:"numerics"`
	Time     string `json:"time"`
	Platform string `json:"platform"`
	CPU      string `json:"cpu"`
	Threads  int    `json:"threads"`

	Card       *cuda.Card               `json:"card"`
	Bandwidth  float64                  `json:"bandwidth_bytes_per_second"` // by clock and width of the card's memory
	MemoryFree int64                    `json:"memory_free"`                // before anything was loaded
	Open       float64                  `json:"open_seconds"`               // context and compiler
	Probe      float64                  `json:"probe_seconds"`
	Compiled   map[string]cuda.Compiled `json:"compiled"` // by kernel

	Tests   *tests    `json:"tests"`
	Models  []*model  `json:"models"`
	Drafted []drafted `json:"drafted"`

	Errors  []string `json:"errors"`
	Wrong   bool     `json:"wrong"` // a bit was
	Seconds float64  `json:"seconds"`
}

// tests is what the test binary of package cuda said.
type tests struct {
	Command string   `json:"command"`
	Passed  int      `json:"passed"`
	Skipped int      `json:"skipped"`
	Failed  []string `json:"failed"`
	Seconds float64  `json:"seconds"`
}

// check is a run of the program.
type check struct {
	*report
	log    io.Writer
	ctx    context.Context
	start  time.Time
	limit  time.Duration
	dev    *cuda.Device
	b      *gpu.Backend
	rounds int
	tokens int // of a decode measurement
	prompt int // of a prefill measurement
}

func run(ctx context.Context, args []string, log io.Writer) int {
	flag := flag.NewFlagSet("devicecheck", flag.ContinueOnError)
	flag.SetOutput(log)
	device := flag.Int("device", cuda.Any, "card to look at, where there are several")
	out := flag.String("o", "device-check.json", "`FILE` to write")
	binary := flag.String("tests", "", "test `BINARY` of package cuda to run")
	pattern := flag.String("run", "Conformance|SimulationBits|Transfers|Record|Threads", "its tests")
	target := flag.String("target", "", "model to measure, and the one that drafts for it is -draft: `FILE`s")
	draft := flag.String("draft", "", "see -target")
	limit := flag.Duration("limit", 280*time.Second, "begin nothing after this")
	c := &check{report: &report{Models: []*model{}, Drafted: []drafted{}, Errors: []string{}}, log: log, ctx: ctx, start: time.Now()}
	flag.IntVar(&c.rounds, "rounds", 5, "of each measurement")
	flag.IntVar(&c.tokens, "tokens", 64, "of a measurement of decoding")
	flag.IntVar(&c.prompt, "prompt", 2048, "tokens of a measurement of a prompt")
	if flag.Parse(args) != nil || flag.NArg() > 0 {
		return 2
	}
	c.limit = *limit

	c.Version, c.Numerics, c.Time = cli.Build(), backend.NumericsVersion, time.Now().UTC().Format(time.RFC3339)
	c.Platform, c.CPU, c.Threads = runtime.GOOS+"/"+runtime.GOARCH, machine.ReadCPU().Model, machine.ReadThreads().Use
	if c.part("the card", func() error { return c.open(*device) }) {
		if *binary != "" {
			c.part("tests", func() error { return c.test(*binary, *pattern) })
		}
		if *target != "" {
			c.part("models", func() error { return c.models(*target, *draft) })
		}
		c.part("closing", c.dev.Close)
	}
	c.Seconds = since(c.start)
	data, err := json.MarshalIndent(c.report, "", "  ")
	if err == nil {
		err = os.WriteFile(*out, append(data, '\n'), 0o666)
	}
	if err != nil {
		fmt.Fprintln(log, "devicecheck:", err)
		return 1
	}
	fmt.Fprintf(log, "devicecheck: wrote %s after %.0f s\n", *out, c.Seconds)
	switch {
	case c.Wrong:
		return 3
	case len(c.Errors) > 0:
		return 1
	}
	return 0
}

func since(t time.Time) float64 { return time.Since(t).Seconds() }

// part runs a part unless time is up, and says how it went.
func (c *check) part(name string, f func() error) bool {
	if time.Since(c.start) > c.limit {
		c.Errors = append(c.Errors, name+": left out, the time is up")
		return false
	}
	start := time.Now()
	err := c.ctx.Err()
	if err == nil {
		err = f()
	}
	if err != nil {
		c.Wrong = c.Wrong || errors.Is(err, gpu.ErrDiffers)
		c.Errors = append(c.Errors, name+": "+err.Error())
		fmt.Fprintf(c.log, "%6.1f s  %s: %v\n", since(c.start), name, err)
		return false
	}
	fmt.Fprintf(c.log, "%6.1f s  %s: done in %.2f s\n", since(c.start), name, since(start))
	return true
}

// open opens the card and proves it.
func (c *check) open(device int) (err error) {
	start := time.Now()
	if c.dev, err = cuda.Open(device); err != nil {
		return err
	}
	c.Open = since(start)
	card := c.dev.Card()
	c.Card, c.Bandwidth = &card, card.Bandwidth()
	c.MemoryFree = c.dev.Info().Free
	if c.Compiled, err = c.dev.Kernels(); err == nil {
		start = time.Now()
		c.b, err = gpu.New("cuda", c.dev, gpu.Options{})
		c.Probe = since(start)
	}
	if err != nil {
		return errors.Join(err, c.dev.Close())
	}
	return nil
}

// test runs the test binary, which opens the card for itself.
func (c *check) test(binary, pattern string) error {
	start := time.Now()
	path, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(c.ctx, path, "-test.v", "-test.run", "^Test("+pattern+")$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s", visible(c.Card.Index)))
	out, err := cmd.CombinedOutput()
	t := &tests{Command: strings.Join(cmd.Args[1:], " "), Failed: []string{}}
	for line := range strings.SplitSeq(string(out), "\n") {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(strings.TrimLeft(line, "-ABCDEFGHIJKLMNOPQRSTUVWXYZ: "), " ")
		switch {
		case strings.HasPrefix(line, "--- PASS"):
			t.Passed++
		case strings.HasPrefix(line, "--- SKIP"):
			t.Skipped++
		case strings.HasPrefix(line, "--- FAIL"):
			t.Failed = append(t.Failed, name)
		}
	}
	t.Seconds = since(start)
	c.Tests = t
	if err != nil {
		c.Wrong = c.Wrong || len(t.Failed) > 0
		return fmt.Errorf("%w: %d failed; the end of the output: %s", err, len(t.Failed), tail(string(out)))
	}
	return nil
}

// visible lets a child see one card alone, of those that this process sees.
func visible(index int) string {
	if list := os.Getenv("CUDA_VISIBLE_DEVICES"); list != "" {
		if names := strings.Split(list, ","); index < len(names) {
			return names[index]
		}
	}
	return fmt.Sprint(index)
}

func tail(s string) string {
	const most = 1500
	return strings.TrimSpace(s[max(0, len(s)-most):])
}
