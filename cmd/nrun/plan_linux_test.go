package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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

// TestPlanPeak: what a run has in memory at its peak is what was planned. nrun
// itself is within 5 %; the test's program, most of what is measured here, has
// pages of its own that only a run touches.
func TestPlanPeak(t *testing.T) {
	prompt := strings.Repeat("Once upon a time there was a king who had three sons. ", 60)
	for _, flags := range [][]string{{"-c", "900"}, {"-c", "900", "--kv", "f32", "--activations", "int8", "-t", "1"}} {
		plan := command(t, append([]string{"plan", "--json"}, flags...)...)
		out, err := plan.Output()
		if err != nil {
			t.Fatal(err)
		}
		var p planned
		if err := json.Unmarshal(out, &p); err != nil {
			t.Fatal(err)
		}
		run := program(t, "peak", append([]string{"nrun", "generate", "-q", "-n", "0", "--ignore-eos", "-p", prompt}, flags...)...)
		run.Env = plan.Env // the same cache of the tokenizer
		out, err = run.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var peak int64
		if _, err := fmt.Sscan(string(out), &peak); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%v: planned %d, peak %d", flags, p.Total, peak)
		if off := float64(peak)/float64(p.Total) - 1; off < -0.08 || off > 0.08 {
			t.Errorf("%v: planned %d bytes, the peak was %d, %+.1f %%", flags, p.Total, peak, 100*off)
		}
	}
}
