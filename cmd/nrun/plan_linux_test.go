package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func init() { programs["peak"] = peak }

// peak runs a command and prints the most memory that it had, in bytes. Linux
// counts the memory of the process that starts another to that one's, so a
// small program must start it.
func peak() {
	run := exec.Command(os.Args[1], os.Args[2:]...)
	run.Stderr = os.Stderr
	if err := run.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(run.ProcessState.SysUsage().(*syscall.Rusage).Maxrss * 1024)
}

// TestPlanPeak: what nrun has in memory at its peak is what it planned. It is built
// for that: most of what is measured here is the program, and the test's own is
// larger. The tokenizer's cache is there for both, as it is from the second run on.
func TestPlanPeak(t *testing.T) {
	nrun := filepath.Join(t.TempDir(), "nrun")
	if out, err := exec.Command("go", "build", "-o", nrun, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env := append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	warm := exec.Command(nrun, "plan")
	warm.Env = env
	if out, err := warm.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	prompt := strings.Repeat("Once upon a time there was a king who had three sons. ", 60)
	for _, flags := range [][]string{
		{"-c", "900"}, {"-c", "900", "--kv", "f32", "--activations", "int8", "-t", "1"}, {"-c", "900", "--draft", "../../testdata/storydraft"},
		{"-c", "900", "--zero-copy", "--cpu-kernel", "generic", "--activations", "int8", "../../testdata/story"}, {"-c", "900", "../../testdata/story/story.tv4z"},
	} {
		plan := exec.Command(nrun, append([]string{"plan", "--json"}, flags...)...)
		plan.Env = env
		out, err := plan.Output()
		if err != nil {
			t.Fatal(err)
		}
		var p planned
		if err := json.Unmarshal(out, &p); err != nil {
			t.Fatal(err)
		}
		run := program(t, "peak", append([]string{nrun, "generate", "-q", "-n", "0", "--ignore-eos", "-p", prompt}, flags...)...)
		run.Env = env
		out, err = run.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var peak int64
		if _, err := fmt.Sscan(string(out), &peak); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%v: planned %d, peak %d", flags, p.Total, peak)
		if off := float64(peak)/float64(p.Total) - 1; off < -0.05 || off > 0.05 {
			t.Errorf("%v: planned %d bytes, the peak was %d, %+.1f %%", flags, p.Total, peak, 100*off)
		}
	}
}
