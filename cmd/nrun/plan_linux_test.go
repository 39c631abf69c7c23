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

// TestPlanPeak: what a run has in memory at its peak is what was planned, to 5 %.
func TestPlanPeak(t *testing.T) {
	const own = 4 << 20 // bytes: the test's program has more pages of its own than nrun
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
		if off := peak - p.Total; off < -p.Total/20 || off > p.Total/20+own {
			t.Errorf("%v: planned %d bytes, the peak was %d, %+.1f %%", flags, p.Total, peak, 100*float64(off)/float64(p.Total))
		}
	}
}
