// Command devicecheck looks at a real card in a few minutes and writes all that
// it found into one JSON object: whether the card's bits are right, and how fast
// it is. "make device-check" builds it with all that it needs, runs it, and leaves
// a folder that runs on a machine without Go.
//
// An error ends a part, not the whole; the object names it, and is written anew after
// each part, so that a run that is cut off leaves what it found. The exit status is 0
// if all parts were done and right, 3 if a bit was wrong, else 1.
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
	"regexp"
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
	Skipped []string `json:"skipped"` // which is an error: on a card all of them can run
	Failed  []string `json:"failed"`
	Seconds float64  `json:"seconds"`
}

// check is a run of the program.
type check struct {
	*report
	out    string // file of the report
	log    io.Writer
	ctx    context.Context // ends when the time is up
	start  time.Time
	limit  time.Duration
	b      *gpu.Backend
	free   func() int64 // memory of the card
	rounds int
	tokens int // of a decode measurement
	prompt int // of a prefill measurement
}

// errTime is the cause of a context that has ended.
var errTime = errors.New("the time is up")

func run(ctx context.Context, args []string, log io.Writer) int {
	flag := flag.NewFlagSet("devicecheck", flag.ContinueOnError)
	flag.SetOutput(log)
	c := &check{report: &report{Models: []*model{}, Drafted: []drafted{}, Errors: []string{}}, log: log, start: time.Now()}
	device := flag.Int("device", cuda.Any, "card to look at, where there are several")
	flag.StringVar(&c.out, "o", "device-check.json", "`FILE` to write")
	binary := flag.String("tests", "", "test `BINARY` of package cuda to run")
	pattern := flag.String("run", "Conformance|SimulationBits|Transfers|Record|Threads", "its tests")
	target := flag.String("target", "", "model to measure, and the one that drafts for it is -draft: `FILE`s")
	draft := flag.String("draft", "", "see -target")
	flag.DurationVar(&c.limit, "limit", 280*time.Second, "end then; the tests may take half of it")
	flag.IntVar(&c.rounds, "rounds", 5, "of each measurement")
	flag.IntVar(&c.tokens, "tokens", 64, "of a measurement of decoding")
	flag.IntVar(&c.prompt, "prompt", 2048, "tokens of a measurement of a prompt")
	if flag.Parse(args) != nil || flag.NArg() > 0 {
		return 2
	}
	var stop func()
	c.ctx, stop = context.WithTimeoutCause(ctx, c.limit, errTime)
	defer stop()

	c.Version, c.Numerics, c.Time = cli.Build(), backend.NumericsVersion, time.Now().UTC().Format(time.RFC3339)
	c.Platform, c.CPU, c.Threads = runtime.GOOS+"/"+runtime.GOARCH, machine.ReadCPU().Model, machine.ReadThreads().Use
	var d *cuda.Device
	if c.part("the card", func() (err error) { d, err = c.open(*device); return err }) {
		if *binary != "" {
			c.part("tests", func() error { return c.test(*binary, *pattern) })
		}
		if *target != "" {
			c.part("models", func() error { return c.models(*target, *draft) })
		}
		c.note("closing", d.Close())
	}
	if err := c.write(); err != nil {
		fmt.Fprintln(log, "devicecheck:", err)
		return 1
	}
	fmt.Fprintf(log, "devicecheck: wrote %s after %.0f s\n", c.out, c.Seconds)
	switch {
	case c.Wrong:
		return 3
	case len(c.Errors) > 0:
		return 1
	}
	return 0
}

// write writes the report as it is.
func (c *check) write() error {
	c.Seconds = since(c.start)
	data, err := json.MarshalIndent(c.report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.out, append(data, '\n'), 0o666)
}

func since(t time.Time) float64 { return time.Since(t).Seconds() }

// part runs a part unless time is up, says how it went and writes the report.
func (c *check) part(name string, f func() error) bool {
	start := time.Now()
	err := context.Cause(c.ctx)
	if err == nil {
		if err = f(); errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(c.ctx)
		}
	}
	if ok := c.note(name, err); !ok {
		return false
	}
	fmt.Fprintf(c.log, "%6.1f s  %s: done in %.2f s\n", since(c.start), name, since(start))
	c.note("report", c.write())
	return true
}

// note notes an error of a part, if it is one.
func (c *check) note(name string, err error) (ok bool) {
	if err == nil {
		return true
	}
	c.Wrong = c.Wrong || errors.Is(err, gpu.ErrDiffers)
	c.Errors = append(c.Errors, name+": "+err.Error())
	fmt.Fprintf(c.log, "%6.1f s  %s: %v\n", since(c.start), name, err)
	return false
}

// open opens the card and proves it.
func (c *check) open(device int) (*cuda.Device, error) {
	start := time.Now()
	d, err := cuda.Open(device)
	if err != nil {
		return nil, err
	}
	c.Open = since(start)
	card := d.Card()
	c.Card, c.Bandwidth = &card, card.Bandwidth()
	c.free = func() int64 { return d.Info().Free }
	c.MemoryFree = c.free()
	if c.Compiled, err = d.Kernels(); err == nil {
		start = time.Now()
		c.b, err = gpu.New("cuda", d, gpu.Options{})
		c.Probe = since(start)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// test runs the test binary, which opens the card for itself. It ends itself when its
// time is up, and says where it was; if it cannot, it is ended a little later.
func (c *check) test(binary, pattern string) error {
	start := time.Now()
	path, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	limit := c.limit / 2
	ctx, stop := context.WithTimeout(c.ctx, limit+limit/10)
	defer stop()
	cmd := exec.CommandContext(ctx, path, "-test.v", "-test.run", "^Test("+pattern+")$", "-test.timeout", limit.String())
	cmd.WaitDelay = time.Second // for its output, which a child of it may hold
	cmd.Env = append(os.Environ(), fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s", visible(c.Card.Index)))
	out, err := cmd.CombinedOutput()
	t := readTests(string(out))
	t.Command, t.Seconds = strings.Join(cmd.Args[1:], " "), since(start)
	c.Tests = t
	c.Wrong = c.Wrong || len(t.Failed) > 0
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("ended after %.0f s; the end of the output: %s", t.Seconds, tail(string(out)))
	case err != nil:
		return fmt.Errorf("%w: %d failed; the end of the output: %s", err, len(t.Failed), tail(string(out)))
	case len(t.Skipped) > 0:
		return fmt.Errorf("%d skipped: %s; the end of the output: %s", len(t.Skipped), strings.Join(t.Skipped, ", "), tail(string(out)))
	case t.Passed == 0:
		return fmt.Errorf("none ran; the end of the output: %s", tail(string(out)))
	}
	return nil
}

var testLine = regexp.MustCompile(`(?m)^ *--- (PASS|SKIP|FAIL): (\S+)`)

// readTests reads the output of a test binary.
func readTests(out string) *tests {
	t := &tests{Skipped: []string{}, Failed: []string{}}
	for _, m := range testLine.FindAllStringSubmatch(out, -1) {
		switch m[1] {
		case "PASS":
			t.Passed++
		case "SKIP":
			t.Skipped = append(t.Skipped, m[2])
		case "FAIL":
			t.Failed = append(t.Failed, m[2])
		}
	}
	return t
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
