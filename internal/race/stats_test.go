package race

import (
	"math"
	"testing"
)

func TestRange(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    Range
	}{
		{[]float64{3}, Range{3, 3, 3}}, {[]float64{5, 1}, Range{3, 1, 5}}, {[]float64{9, 1, 4}, Range{4, 1, 9}}, {[]float64{8, 1, 2, 4}, Range{3, 1, 8}},
	} {
		if got := rangeOf(c.samples); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.samples, got, c.want)
		}
	}
}

// Sets overlap if neither is wholly above the other; a shared end is shared.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want bool
	}{
		{[]float64{1, 2}, []float64{3, 4}, false},
		{[]float64{1, 3}, []float64{3, 4}, true},
		{[]float64{1, 3.5}, []float64{3, 4}, true},
		{[]float64{1, 9}, []float64{3, 4}, true}, // one within the other
		{[]float64{3}, []float64{3}, true},
		{[]float64{2, 2, 2, 5}, []float64{4, 6, 6, 6}, true}, // one stray is enough
		{[]float64{2, 2, 2, 3}, []float64{4, 6, 6, 6}, false},
	} {
		a, b := rangeOf(c.a), rangeOf(c.b)
		if a.Overlaps(b) != c.want || b.Overlaps(a) != c.want {
			t.Errorf("%v and %v: %v, %v, want %v", c.a, c.b, a.Overlaps(b), b.Overlaps(a), c.want)
		}
	}
}

// What slows a whole round down changes rates, not ratios.
func TestComparison(t *testing.T) {
	a, b := &Summary{Contestant: "a"}, &Summary{Contestant: "b"}
	got := compareRates("decode", "chat", a, b, []float64{20, 10, 40}, []float64{10, 5, 20})
	if want := (Comparison{Test: "decode", Class: "chat", A: "a", B: "b", Ratio: Range{2, 2, 2}, Faster: 3, Overlap: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	got = compareRates("decode", "", a, b, []float64{10, 11, 12}, []float64{11, 11, 10})
	if got.Faster != 1 || !got.Overlap || got.Ratio.Median != 1 || math.Abs(got.Ratio.Min-10.0/11) > 1e-12 {
		t.Errorf("%+v", got)
	}
}

func TestRates(t *testing.T) {
	var w Work
	if w.measured() || w.DecodeRate() != 0 || w.PrefillRate() != 0 {
		t.Errorf("nothing has the rates %g and %g", w.DecodeRate(), w.PrefillRate())
	}
	w.Add(&Work{Prompts: 1, PromptTokens: 10, PrefillSeconds: 2, Tokens: 6, DecodeSeconds: 3, Passes: 2, Drafted: 5, Kept: 4, DraftSeconds: 1})
	w.Add(&Work{Prompts: 1, PromptTokens: 30, PrefillSeconds: 2, Tokens: 2, DecodeSeconds: 1, Passes: 1, Drafted: 1, Kept: 1, DraftSeconds: 0.5})
	if want := (Work{2, 40, 4, 8, 4, 3, 6, 5, 1.5}); w != want || !w.measured() || w.DecodeRate() != 2 || w.PrefillRate() != 10 {
		t.Errorf("%+v, want %+v; %g and %g tokens/s", w, want, w.DecodeRate(), w.PrefillRate())
	}
}
