package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

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
		run := command(t, append([]string{"generate", "-q", "-n", "0", "--ignore-eos", "-p", prompt}, flags...)...)
		run.Env = plan.Env // the same cache of the tokenizer
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		peak := run.ProcessState.SysUsage().(*syscall.Rusage).Maxrss * 1024
		t.Logf("%v: planned %d, peak %d", flags, p.Total, peak)
		if off := float64(peak)/float64(p.Total) - 1; off < -0.08 || off > 0.08 {
			t.Errorf("%v: planned %d bytes, the peak was %d, %+.1f %%", flags, p.Total, peak, 100*off)
		}
	}
}
