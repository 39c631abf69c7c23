package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"npack/cuda"
	"npack/internal/cli"
	"npack/internal/machine"
	"npack/runtime/backend"
)

// benchReport is the JSON form. Fields are only ever added.
type benchReport struct {
	Version    string           `json:"version"`
	Model      string           `json:"model"`
	Backend    string           `json:"backend"`
	Kernels    string           `json:"kernels,omitempty"`
	KV         string           `json:"kv"`
	KVPerToken int64            `json:"kv_bytes_per_token"`
	Chunk      int              `json:"chunk"` // tokens of a prompt that go through at once
	Rounds     int              `json:"rounds"`
	CPU        machine.CPU      `json:"cpu"`
	Card       *cuda.Card       `json:"card,omitempty"` // whose memory's speed is by its clock and width
	LoadBefore float64          `json:"load_before"`    // processes that wanted to run, 0 if unknown
	LoadAfter  float64          `json:"load_after"`
	Bandwidth  []benchBandwidth `json:"bandwidth"`
	Results    []benchResult    `json:"results"`
}

// benchBandwidth is how fast so many threads read memory, in bytes a second.
type benchBandwidth struct {
	Threads int       `json:"threads"`
	Rate    benchRate `json:"bytes_per_second"`
}

// benchResult is one line. What is read is counted for decode alone: a prompt
// is not bound by it.
type benchResult struct {
	Test           string    `json:"test"` // "prefill" or "decode"
	Tokens         int       `json:"tokens"`
	Depth          int       `json:"depth"`
	Activations    string    `json:"activations"`
	Threads        int       `json:"threads"`
	Rate           benchRate `json:"tokens_per_second"`
	MsPerToken     float64   `json:"ms_per_token"`
	WeightBytes    int64     `json:"weight_bytes_per_token,omitempty"`
	KVBytes        int64     `json:"kv_bytes_per_token,omitempty"` // read, on average
	BytesPerSecond float64   `json:"bytes_per_second,omitempty"`
	Share          float64   `json:"share_of_bandwidth,omitempty"` // of the median with as many threads
}

const (
	testPrefill = "prefill"
	testDecode  = "decode"
)

// benchRate is a rate over the rounds.
type benchRate struct {
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Samples []float64 `json:"samples"` // in the order of the rounds
}

func (r *benchRate) finish() {
	s := slices.Sorted(slices.Values(r.Samples))
	r.Min, r.Max = s[0], s[len(s)-1]
	r.Median = (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// newBenchReport returns a report without measurements: of the tests, all
// configurations together.
func newBenchReport(model string, b backend.Backend, x *benchmark) *benchReport {
	r := &benchReport{Version: cli.Build(), Model: model, Backend: b.Name(), Kernels: runsOf(b), KV: x.options[0].KV.String(),
		Chunk: x.chunk, Rounds: x.rounds, CPU: machine.ReadCPU()}
	if x.card != nil {
		r.Card = &x.card.Card
	}
	for _, o := range x.options {
		if !slices.ContainsFunc(r.Bandwidth, func(b benchBandwidth) bool { return b.Threads == o.Threads }) {
			r.Bandwidth = append(r.Bandwidth, benchBandwidth{Threads: o.Threads})
		}
	}
	for _, t := range x.tests {
		name := testPrefill
		if t.decode {
			name = testDecode
		}
		for _, o := range x.options {
			r.Results = append(r.Results, benchResult{Test: name, Tokens: t.tokens, Depth: t.depth, Activations: o.Activations.String(), Threads: o.Threads})
		}
	}
	return r
}

// finish computes what follows from the samples.
func (r *benchReport) finish(x *benchmark) {
	reads := map[int]float64{}
	for i := range r.Bandwidth {
		b := &r.Bandwidth[i]
		b.Rate.finish()
		reads[b.Threads] = b.Rate.Median
	}
	for i := range r.Results {
		t := &r.Results[i]
		t.Rate.finish()
		t.MsPerToken = 1000 / t.Rate.Median
		if test := x.tests[i/len(x.configs)]; test.decode {
			t.WeightBytes = x.configs[i%len(x.configs)].token
			t.KVBytes = r.KVPerToken * test.cached() / int64(test.tokens)
			t.BytesPerSecond = float64(t.WeightBytes+t.KVBytes) * t.Rate.Median
			if reads[t.Threads] > 0 {
				t.Share = t.BytesPerSecond / reads[t.Threads]
			}
		}
	}
}

func threadsText(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

func printBench(w io.Writer, r *benchReport) error {
	fmt.Fprintf(w, "%s on %s, KV %s; medians and ranges of %d rounds\n", r.Model, onBackend(r.Backend, r.Kernels), r.KV, r.Rounds)
	fmt.Fprintf(w, "%s, %d cores", orUnknown(r.CPU.Model), max(r.CPU.Physical, 1))
	if r.LoadBefore > 0 || r.LoadAfter > 0 {
		fmt.Fprintf(w, ", load %.1f before and %.1f after", r.LoadBefore, r.LoadAfter)
	}
	fmt.Fprintln(w)
	if r.Card != nil {
		fmt.Fprintf(w, "card %s: memory of %.1f GB/s by its clock and width\n", r.Card, r.Card.Bandwidth()/1e9)
	}
	for _, b := range r.Bandwidth {
		if r.Card != nil {
			break
		}
		fmt.Fprintf(w, "memory read with %s: %.1f GB/s (%.1f-%.1f)\n", threadsText(b.Threads), b.Rate.Median/1e9, b.Rate.Min/1e9, b.Rate.Max/1e9)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "test\tdepth\tactivations\tthreads\ttokens/s\trange\tms/token\tGB/s\tof memory\t\n")
	for _, t := range r.Results {
		speed, share := "-", "-"
		if t.Test == testDecode {
			speed, share = fmt.Sprintf("%.1f", t.BytesPerSecond/1e9), fmt.Sprintf("%.0f %%", 100*t.Share)
		}
		fmt.Fprintf(tw, "%s %d\t%d\t%s\t%d\t%.1f\t%.1f-%.1f\t%.2f\t%s\t%s\t\n",
			t.Test, t.Tokens, t.Depth, t.Activations, t.Threads, t.Rate.Median, t.Rate.Min, t.Rate.Max, t.MsPerToken, speed, share)
	}
	return tw.Flush()
}
