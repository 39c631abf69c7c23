package main

import (
	"encoding/json"
	"math"
	"testing"
)

// TestBenchReport: the numbers of a report follow from its samples.
func TestBenchReport(t *testing.T) {
	code, out, errs := nrun("", "bench", "--json", "--rounds", "3", "--prefill", "4", "--tokens", "5", "--depth", "0,7", "--threads", "2,1", "--activations", "int8,exact")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var r benchReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	reads := map[int]float64{}
	for _, b := range r.Bandwidth {
		if len(b.Rate.Samples) != 4 { // before, between and after three rounds
			t.Errorf("%d threads: memory was read %d times", b.Threads, len(b.Rate.Samples))
		}
		reads[b.Threads] = b.Rate.Median
	}
	if len(reads) != 2 || len(r.Results) != 2*2*4 {
		t.Fatalf("%d numbers of threads, %d results", len(reads), len(r.Results))
	}
	weights := map[string]int64{}
	for i, s := range r.Results {
		want := benchResult{Test: "prefill", Tokens: 4, Depth: i / 8 * 7, Activations: []string{"int8", "exact"}[i%2], Threads: 2 - i/2%2}
		if i/4%2 == 1 {
			want.Test, want.Tokens = "decode", 5
		}
		if s.Test != want.Test || s.Tokens != want.Tokens || s.Depth != want.Depth || s.Activations != want.Activations || s.Threads != want.Threads {
			t.Errorf("result %d is %+v, want %+v", i, s, want)
		}
		if len(s.Rate.Samples) != 3 || s.Rate.Min > s.Rate.Median || s.Rate.Median > s.Rate.Max || s.Rate.Min <= 0 || math.Abs(s.MsPerToken*s.Rate.Median-1000) > 1e-6 {
			t.Errorf("%+v", s)
		}
		if s.Test == "prefill" {
			continue
		}
		// Token i of 5 reads depth+i+1 positions: on average depth+3.
		if want := int64(s.Depth+3) * r.KVPerToken; s.KVBytes != want {
			t.Errorf("depth %d: %d bytes of the cache a token, want %d", s.Depth, s.KVBytes, want)
		}
		share := float64(s.WeightBytes+s.KVBytes) * s.Rate.Median / reads[s.Threads]
		if math.Abs(s.Share/share-1) > 1e-9 {
			t.Errorf("share %g, want %g", s.Share, share)
		}
		weights[s.Activations] = s.WeightBytes
	}
	if weights["int8"] != weights["exact"] || weights["exact"] == 0 {
		t.Errorf("bytes of weights: %v", weights)
	}
}

func TestBenchRate(t *testing.T) {
	for _, c := range []struct {
		samples          []float64
		median, min, max float64
	}{{[]float64{3}, 3, 3, 3}, {[]float64{5, 1}, 3, 1, 5}, {[]float64{9, 1, 4}, 4, 1, 9}, {[]float64{8, 1, 2, 4}, 3, 1, 8}} {
		r := benchRate{Samples: c.samples}
		r.finish()
		if r.Median != c.median || r.Min != c.min || r.Max != c.max {
			t.Errorf("%v: %+v", c.samples, r)
		}
	}
}
