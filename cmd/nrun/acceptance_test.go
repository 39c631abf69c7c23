package main

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"npack/runtime/engine"
)

func TestAcceptanceClass(t *testing.T) {
	var a acceptanceClass
	add := func(steps, passes int, d engine.DraftStats, plain, drafted time.Duration) {
		a.add(&engine.Result{Timings: engine.Timings{Steps: steps, Decode: plain}},
			&engine.Result{Timings: engine.Timings{Steps: steps, Passes: passes, Decode: drafted}, Draft: &d})
	}
	add(10, 4, engine.DraftStats{Drafted: 8, Accepted: 6, Plain: 1, Kept: [8]int{0, 1, 1, 1}, Time: time.Second}, 4*time.Second, 2*time.Second)
	add(6, 4, engine.DraftStats{Drafted: 2, Accepted: 2, Plain: 2, Kept: [8]int{0, 2}, Time: 0}, 2*time.Second, 2*time.Second)
	a.finish()
	want := acceptanceClass{Prompts: 2, Tokens: 16, Passes: 8, Plain: 3, Kept: [8]int{0, 3, 1, 1}, Drafted: 10, Accepted: 8, DraftSeconds: 1, Seconds: 4, PlainSeconds: 6,
		Acceptance: 0.8, TokensPerPass: 2, PassesPer512: 256, DraftShare: 0.25, TimesPlain: 1.5, AcceptedLength: 1.6}
	if a != want {
		t.Errorf("%+v, want %+v", a, want)
	}
	none := acceptanceClass{}
	if none.finish(); none != (acceptanceClass{}) {
		t.Errorf("of nothing: %+v", none)
	}
}

// The figures of a run agree with each other: classes add up, each pass gives one
// token more than it kept.
func TestAcceptance(t *testing.T) {
	code, out, errs := nrun("", "acceptance", "../../testdata/story", "--draft", "../../testdata/storydraft", "--lengths", "1,7,auto", "--battery", "story", "--class", "prose,counting,chat", "-n", "24", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var r acceptanceReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Lengths) != 3 || r.Lengths[0].Length != "1" || r.Lengths[2].Length != "auto" || r.Tokens != 24 {
		t.Fatalf("%+v", r)
	}
	for _, l := range r.Lengths {
		var sum acceptanceClass
		for _, a := range l.Classes {
			sum.Prompts += a.Prompts
			sum.Passes += a.Passes
			sum.Accepted += a.Accepted
			sum.Drafted += a.Drafted
		}
		a := l.Total
		if len(l.Classes) != 3 || sum.Prompts != a.Prompts || sum.Passes != a.Passes || sum.Accepted != a.Accepted || sum.Drafted != a.Drafted {
			t.Errorf("%s: classes add up to %+v, all are %+v", l.Length, sum, a)
		}
		drafts, kept := 0, 0
		for i, n := range a.Kept {
			drafts += n
			kept += i * n
		}
		if a.Tokens != 23*a.Prompts || a.Passes+a.Accepted != a.Tokens || drafts+a.Plain != a.Passes || kept != a.Accepted || a.Accepted > a.Drafted {
			t.Errorf("%s: %+v", l.Length, a)
		}
		if math.Abs(a.PassesPer512-512/a.TokensPerPass) > 1e-9 || a.DraftShare <= 0 || a.DraftShare >= 1 || a.TimesPlain <= 0 {
			t.Errorf("%s: %+v", l.Length, a)
		}
	}
	if one, seven := r.Lengths[0].Total, r.Lengths[1].Total; seven.Passes >= one.Passes || one.TokensPerPass > 2 || seven.TokensPerPass < 2 {
		t.Errorf("passes: %d with 1 token, %d with 7", one.Passes, seven.Passes)
	}
}
