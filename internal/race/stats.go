package race

import "slices"

// Work is what was done in which time.
type Work struct {
	Prompts        int     `json:"prompts"`
	PromptTokens   int     `json:"prompt_tokens"`
	PrefillSeconds float64 `json:"prefill_seconds"`
	Tokens         int     `json:"tokens"`         // of answers, but the first of each, which the prompt's pass gives
	DecodeSeconds  float64 `json:"decode_seconds"` // for these
	// With a draft, of ours or of an external program that tells:
	Passes       int     `json:"passes,omitempty"`        // of the target
	Drafted      int     `json:"drafted,omitempty"`       // tokens that a draft proposed
	Kept         int     `json:"kept,omitempty"`          // of these
	DraftSeconds float64 `json:"draft_seconds,omitempty"` // of DecodeSeconds
}

// ClassWork is the part of the prompts of a class.
type ClassWork struct {
	Class string `json:"class"`
	Work
}

// Add adds what was done elsewhere.
func (w *Work) Add(v *Work) {
	w.Prompts += v.Prompts
	w.PromptTokens += v.PromptTokens
	w.PrefillSeconds += v.PrefillSeconds
	w.Tokens += v.Tokens
	w.DecodeSeconds += v.DecodeSeconds
	w.Passes += v.Passes
	w.Drafted += v.Drafted
	w.Kept += v.Kept
	w.DraftSeconds += v.DraftSeconds
}

// DecodeRate is in tokens a second, 0 if nothing was measured.
func (w *Work) DecodeRate() float64 { return per(float64(w.Tokens), w.DecodeSeconds) }

// PrefillRate is in tokens a second, 0 if nothing was measured.
func (w *Work) PrefillRate() float64 { return per(float64(w.PromptTokens), w.PrefillSeconds) }

// measured reports whether there are rates.
func (w *Work) measured() bool { return w.DecodeRate() > 0 && w.PrefillRate() > 0 }

// per returns n a second; 0 for what no program can do, which a file may hold.
func per(n, seconds float64) float64 {
	if rate := n / seconds; rate > 1e-9 && rate < 1e12 {
		return rate
	}
	return 0
}

// Range is a figure over the rounds.
type Range struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// rangeOf returns the range of one or more samples.
func rangeOf(samples []float64) Range {
	s := slices.Sorted(slices.Values(samples))
	return Range{Median: (s[(len(s)-1)/2] + s[len(s)/2]) / 2, Min: s[0], Max: s[len(s)-1]}
}

// Overlaps reports whether two sets of samples cannot be told apart: a sample of
// the slower lies on or above one of the faster.
func (r Range) Overlaps(s Range) bool { return r.Min <= s.Max && s.Min <= r.Max }

// Comparison is how two contestants compare in a test. The ratio is of each
// round: what slows both down, another program or heat, cancels out.
type Comparison struct {
	Test    string `json:"test"`            // decode or prefill
	Class   string `json:"class,omitempty"` // of the prompts, all if absent
	A       string `json:"a"`
	B       string `json:"b"`
	Ratio   Range  `json:"ratio"`   // of A's rate to B's, round by round
	Faster  int    `json:"faster"`  // rounds in which A was faster
	Overlap bool   `json:"overlap"` // of the two sets of rates
}

func compareRates(test, class string, a, b *Summary, x, y []float64) Comparison {
	c := Comparison{Test: test, Class: class, A: a.Contestant, B: b.Contestant, Overlap: rangeOf(x).Overlaps(rangeOf(y))}
	ratios := make([]float64, len(x))
	for i := range x {
		ratios[i] = x[i] / y[i]
		if x[i] > y[i] {
			c.Faster++
		}
	}
	c.Ratio = rangeOf(ratios)
	return c
}
