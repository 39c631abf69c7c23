package pylib

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// What a library chooses otherwise is counted and named with its margin.
func TestDifferences(t *testing.T) {
	s := &Stored{[]Trajectory{
		{Prompt: []int32{1}, IDs: []int32{5, 6, 7}, Margins: []float64{1, 2, 3}},
		{Prompt: []int32{2}, IDs: []int32{8, 9, 8}, Margins: []float64{4, 5, 6}},
	}}
	for _, tt := range []struct {
		answer              string
		compared, different int
		lines               []string
		margin              float64
	}{
		{`{"runs":[{"forced":[5,6,7],"margins":[1,2,3],"free":[5,6]},{"forced":[8,9,8],"margins":[4,5,6.5]}]}`, 8, 0, nil, 0.5},
		{`{"runs":[{"forced":[5,0,0],"margins":[1,0.25,3]},{"forced":[8,9,8],"margins":[4,5,6],"free":[8,0,0]}]}`, 9, 3,
			[]string{"prompt 0, step 1: token 0, stored is 6 with a margin of 2; its own is 0.25", "prompt 1 alone, step 1: token 0, stored is 9"}, 1.75},
		// Alone it may go on longer than is stored.
		{`{"runs":[{"forced":[5,6,7],"margins":[1,2,3],"free":[5,6,7,0,0]}]}`, 6, 0, nil, 0},
	} {
		var a Answer
		if err := json.Unmarshal([]byte(tt.answer), &a); err != nil {
			t.Fatal(err)
		}
		compared, different, lines := a.Differences(s)
		if compared != tt.compared || different != tt.different || len(lines) != len(tt.lines) || a.MarginError(s) != tt.margin {
			t.Errorf("%s: %d of %d, %q, margin %g", tt.answer, different, compared, lines, a.MarginError(s))
			continue
		}
		for i, l := range tt.lines {
			if !strings.HasPrefix(lines[i], l) {
				t.Errorf("%q, want %q", lines[i], l)
			}
		}
	}
	if p := (&Answer{NLL: 3 * math.Ln2, Predicted: 3}).Perplexity(); math.Abs(p-2) > 1e-12 {
		t.Errorf("perplexity %v", p)
	}
}
