package identity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

func load(t *testing.T) backend.Instance {
	t.Helper()
	inst, err := reference.Backend{}.Load(context.Background(), ternarytest.Model(ternarytest.All()[0].Spec), backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return inst
}

// greedy makes trajectories with the engine: an independent loop.
func greedy(t *testing.T, inst backend.Instance, lengths ...int) []Trajectory {
	t.Helper()
	var list []Trajectory
	for i, n := range lengths {
		prompt := []int32{int32(i), int32(i * 7 % 96), 3}
		s, err := engine.New(inst, 0).NewSession(len(prompt) + n)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Generate(t.Context(), engine.Request{Prompt: prompt, MaxTokens: n})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, Trajectory{Prompt: prompt, IDs: res.IDs})
	}
	return list
}

func TestCompare(t *testing.T) {
	inst := load(t)
	// More than one batch, of unequal lengths.
	list := greedy(t, inst, 5, 1, 12, 3, 9, 9, 2, 7, 8, 4, 6)
	var seen []int
	r, err := Compare(t.Context(), inst, list, false, func(done int) { seen = append(seen, done) })
	if err != nil {
		t.Fatal(err)
	}
	if r.Tokens != 66 || r.Differ != 0 || r.Margins != 0 || len(r.Prompts) != len(list) {
		t.Fatalf("%+v", r)
	}
	if !slices.IsSorted(seen) || seen[len(seen)-1] != 66 {
		t.Errorf("progress %v", seen)
	}
	for i, p := range r.Prompts {
		if p.Tokens != len(list[i].IDs) || !(p.MinMargin > 0) {
			t.Errorf("prompt %d: %+v", i, p)
		}
	}

	// A wrong token is found where it is; the tokens behind it are judged on
	// the stored text, so they differ from the free run but not from the model.
	const step = 4
	bad := slices.Clone(list[2].IDs)
	bad[step] = (bad[step] + 1) % 96
	forced := Trajectory{Prompt: slices.Concat(list[2].Prompt, bad[:step+1]), IDs: slices.Clone(bad[step+1:])}
	s, _ := engine.New(inst, 0).NewSession(100)
	res, err := s.Generate(t.Context(), engine.Request{Prompt: forced.Prompt, MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	bad[step+1] = res.IDs[0]
	r, err = Compare(t.Context(), inst, []Trajectory{{Prompt: list[2].Prompt, IDs: bad[:step+2], Margins: []float64{0, 0, 0, 0, 7, 0}}}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Differ != 1 || r.Margins != step+1 {
		t.Fatalf("%+v", r)
	}
	d := r.Prompts[0].Differences[0]
	if d.Step != step || d.Got != list[2].IDs[step] || d.Want != bad[step] || d.Stored != 7 || !(d.GotLogit > d.WantLogit) || !(d.Margin > 0) {
		t.Errorf("%+v", d)
	}
}

func TestMarginError(t *testing.T) {
	inst := load(t)
	list := greedy(t, inst, 3)
	seq, _ := inst.NewSequence(10)
	logits := make([]float32, 3*96)
	tokens := slices.Concat(list[0].Prompt, list[0].IDs[:2])
	if err := inst.Forward(t.Context(), []backend.Run{{Seq: seq, Tokens: tokens, Want: []int{2, 3, 4}, Logits: logits}}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		_, m := engine.Margin(logits[i*96 : (i+1)*96])
		list[0].Margins = append(list[0].Margins, m)
	}
	r, err := Compare(t.Context(), inst, list, false, nil)
	if err != nil || r.MarginError != 0 || r.Margins != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	list[0].Margins[1] += 0.5
	r, err = Compare(t.Context(), inst, list, false, nil)
	if err != nil || math.Abs(r.MarginError-0.5) > 1e-12 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestCompareCancel(t *testing.T) {
	inst := load(t)
	list := greedy(t, inst, 20)
	ctx, cancel := context.WithCancel(t.Context())
	last := 0
	_, err := Compare(ctx, inst, list, false, func(done int) {
		if last = done; done == 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || last != 3 {
		t.Errorf("%v after %d tokens", err, last)
	}
}

func TestParse(t *testing.T) {
	const ok = `{"steps":2,"stop_ids":[1],"trajectories":[{"prompt_text":"a","prompt_ids":[1,2],"ids":[3,9],"margins":[0.5,0]},{"prompt_ids":[0],"ids":[0]}]}`
	list, err := Parse([]byte(ok), 10, 3)
	if err != nil || len(list) != 2 || list[0].Margins[0] != 0.5 || list[1].Margins != nil || list[0].PromptText != "a" {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"", "", ""},
		{"[3,9]", "[3,10]", "trajectories[0].ids[1]: token id 10, expected 0 to 9, the vocabulary of this model"},
		{"[3,9]", "[-3,9]", "trajectories[0].ids[0]: token id -3"},
		{"[1,2]", "[1,99999]", "trajectories[0].prompt_ids[1]: token id 99999"},
		{"[1,2]", "[1,9999999999]", "number 9999999999, expected int32"},
		{"[1,2]", "[1,2.5]", "number 2.5, expected int32"},
		{"[1,2]", "[]", "trajectories[0].prompt_ids: no tokens, expected one or more"},
		{"[1,2]", "null", "prompt_ids: no tokens"},
		{"[3,9]", "[]", "trajectories[0].ids: no tokens"},
		{"[0.5,0]", "[0.5]", "trajectories[0].margins: 1 margins, expected 2, one for each of ids"},
		{"[0.5,0]", "[0.5,-1]", "trajectories[0].margins[1]: margin -1"},
		{"[0.5,0]", "[0.5,1e999]", "1e999"},
		{"[3,9]", "[3,9,9]", "margins: 2 margins, expected 3"},
		{`"prompt_ids":[0]`, `"prompt_ids":[0,1,2,3]`, "trajectories[1].prompt_ids: 4 values, expected at most 3, the context"},
		{`"prompt_ids":[0],"ids":[0]`, `"prompt_ids":[0,1],"ids":[0,1,2]`, "trajectories[1]: 4 tokens of prompt and answer, expected at most 3, the context"},
		{`"trajectories":[`, `"trajectories":{},"x":[`, "trajectories: {}, expected a list"},
		{`{"steps":2,`, `[{"steps":2,`, "not JSON"},
		{`[{"prompt_text"`, `[7,{"prompt_text"`, "trajectories[0]: number, expected"},
		{`"trajectories"`, `"others"`, "trajectories: no prompts"},
		{`"trajectories"`, `"prompts"`, "prompts[0].free_ids: no tokens"},
		{`"steps":2`, `"format":"npack-trajectories","version":2`, "version: version 2, expected at most 1"},
		{`"steps":2`, `"format":"other"`, "format: \"other\", expected \"npack-trajectories\""},
		{`"steps":2`, `"tensors":{}`, "tensors: object, expected"},
		{`[0.5,0]}`, `[0.5,0],"bits":["00"]}`, "trajectories[0].bits: 2 characters, expected 64 hex digits"},
		{`[0.5,0]}`, `[0.5,0],"bits":["` + strings.Repeat("0", 64) + `"]}`, "trajectories[0].bits: 1 sums, expected 2"},
		{`[0.5,0]}`, `[0.5,0],"bits":["` + strings.Repeat("x", 64) + `"]}`, "trajectories[0].bits: encoding/hex: invalid byte"},
		{`"prompt_text":"a"`, `"prompt_text":7`, "number, expected string"},
		{`]}]}`, ``, "not JSON"},
	} {
		_, err := Parse([]byte(strings.Replace(ok, c.from, c.to, 1)), 10, 3)
		if c.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		var fe *FormatError
		if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: error %v, want %q", c.from, c.to, err, c.want)
		}
		if c.to == "" && !fe.Truncated {
			t.Error("a cut file is not called truncated")
		}
	}
	if _, err := Parse(make([]byte, MaxFile+1), 10, 3); err == nil {
		t.Error("a file above the limit was read")
	}
}

// TestParseMemory: large files of small lies are refused before they take
// memory for what they announce.
func TestParseMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: -short: 20 MB of JSON")
	}
	fill := func(front, item string) []byte {
		return []byte(front + strings.Repeat(item+",", (MaxFile-100)/(len(item)+1)) + item + "]}]}")
	}
	for _, data := range [][]byte{
		fill(`{"trajectories":[{"ids":[1],"margins":[1`, "0"),
		fill(`{"trajectories":[{"prompt_ids":[`, "0"),
		[]byte(`{"trajectories":[` + strings.Repeat("{},", MaxFile/3-20) + `{}]}`),
		[]byte(`{"trajectories":` + strings.Repeat("[", 9000)),
		[]byte(`{"tensors":[` + strings.Repeat("{},", MaxFile/3-20) + `{}]}`),
		[]byte(`{"prompts":[{"free_ids":[` + strings.Repeat("0,", MaxFile/2-40) + `0]}]}`),
		[]byte(`{"trajectories":[{"ids":[` + strings.Repeat("[],", MaxFile/3-20) + `[]]}]}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(data, 10, 1000)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("accepted %.40s", data)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 8*MaxFile {
			t.Errorf("%.40s: %d bytes allocated for a file of %d", data, took, len(data))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"trajectories":[{"prompt_ids":[1,2],"ids":[3],"margins":[0.5]}]}`))
	f.Add([]byte(`{"trajectories":[{}]}`))
	f.Add([]byte(`[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Parse(data, 10, 100)
		if err != nil {
			return
		}
		for _, tr := range list {
			if len(tr.Prompt) == 0 || len(tr.IDs) == 0 || slices.Max(tr.IDs) > 9 || slices.Min(tr.Prompt) < 0 || tr.Margins != nil && len(tr.Margins) != len(tr.IDs) {
				t.Errorf("accepted %+v", tr)
			}
		}
	})
}

func ExampleCompare() {
	inst, _ := reference.Backend{}.Load(context.Background(), ternarytest.Model(ternarytest.Spec{Seed: 1, Config: ternary.Config{
		Arch: ternary.Qwen3, Layers: 1, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 16, RotaryDims: 16,
		Intermediate: 64, Vocab: 16, MaxPosition: 64, RMSEps: 1e-6, RopeTheta: 10000, Tied: true}}), backend.Options{})
	r, err := Compare(context.Background(), inst, []Trajectory{{Prompt: []int32{1, 2}, IDs: []int32{3}}}, false, nil)
	fmt.Println(r.Tokens, "token compared", err)
	// Output: 1 token compared <nil>
}
