package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/runtime/backend"
)

func TestRecord(t *testing.T) {
	inst := load(t)
	want := greedy(t, inst, 9, 9, 9)
	prompts := make([]Trajectory, len(want))
	for i := range want {
		prompts[i] = Trajectory{Class: "prose", PromptText: "p", Prompt: want[i].Prompt}
	}
	list, err := Record(t.Context(), inst, prompts, 9, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if d := cmp.Diff(want[i].IDs, list[i].IDs); d != "" {
			t.Errorf("prompt %d: %s", i, d)
		}
		if len(list[i].Margins) != 9 || len(list[i].Bits) != 9 || list[i].Class != "prose" {
			t.Errorf("%+v", list[i])
		}
	}
	f := File{Header: Header{Model: "m <a&b>", Numerics: 1, Activations: "exact", KV: "f16", Steps: 9, StopRule: StopNone, Tensors: TensorList{{"blk.0.attn_q", "00"}}}, Trajectories: list}
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseFile(data, 96, 100)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&f, back); d != "" {
		t.Error(d)
	}
	r, err := Compare(t.Context(), inst, back.Trajectories, true, nil)
	if err != nil || r.Differ != 0 || r.Bits != 27 || r.BitsDiffer != 0 || r.MarginError != 0 || r.Margins != 27 {
		t.Errorf("%+v, %v", r, err)
	}
	back.Trajectories[1].Bits[4][7] ^= 1
	r, err = Compare(t.Context(), inst, back.Trajectories, true, nil)
	if err != nil || r.Differ != 0 || r.BitsDiffer != 1 || r.Prompts[1].FirstBits != 4 || r.Prompts[0].FirstBits != -1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = Compare(t.Context(), inst, back.Trajectories, false, nil); err != nil || r.Bits != 0 || r.Prompts[0].Sums != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestReceipt: the fields of llama-fermion-greedy, no others, and its numbers.
func TestReceipt(t *testing.T) {
	inst := load(t)
	want := greedy(t, inst, 6, 6)
	prompts := [][]int32{want[0].Prompt, want[1].Prompt}
	other := (want[1].IDs[2] + 1) % 96
	refs := [][]int32{append(want[0].IDs[:6:6], 1, 2, 3), {want[1].IDs[0], want[1].IDs[1], other}}
	r, err := MakeReceipt(t.Context(), inst, prompts, refs, 6, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := r.Prompts[1]
	if r.Passed() || !r.Prompts[0].FreeMatch || r.Prompts[0].FirstDivergence != -1 || p.FreeMatch || p.FirstDivergence != 2 || p.MismatchCount != 1 || r.Totals.MismatchTotal != 1 || r.Totals.GenTokens != 12 {
		t.Errorf("%+v", r)
	}
	if m := p.Mismatches[0]; m.Step != 2 || m.Got != want[1].IDs[2] || m.Want != other || !(m.Margin > 0) || m.Margin != m.LogitGot-m.LogitWant {
		t.Errorf("%+v", m)
	}
	for _, tc := range []struct {
		refs   [][]int32
		fields string
	}{
		{nil, "free_ids free_min_top2_margin gen_seconds prompt_ids prompt_seconds"},
		{refs, "first_divergence forced_mismatch_count forced_mismatches free_ids free_match free_min_top2_margin gen_seconds prompt_ids prompt_seconds"},
	} {
		r, err := MakeReceipt(t.Context(), inst, prompts, tc.refs, 6, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Model = `a"b\c`
		var o struct {
			Model   string
			Prompts []map[string]json.RawMessage
			Totals  map[string]json.RawMessage
		}
		all := map[string]json.RawMessage{}
		for _, to := range []any{&o, &all} {
			if err := json.Unmarshal(r.Encode(), to); err != nil {
				t.Fatal(err)
			}
		}
		if o.Model != r.Model || r.Passed() != (tc.refs == nil) {
			t.Errorf("model %q, passed %v", o.Model, r.Passed())
		}
		for _, f := range []struct {
			got  map[string]json.RawMessage
			want string
		}{
			{all, "kv_type load_seconds model n_gpu_layers n_threads prompts steps totals"},
			{o.Prompts[0], tc.fields},
			{o.Totals, "all_free_match forced_mismatch_total gen_tok_per_s gen_tokens prompt_tok_per_s prompt_tokens"},
		} {
			if d := cmp.Diff(f.want, strings.Join(slices.Sorted(maps.Keys(f.got)), " ")); d != "" {
				t.Error(d)
			}
		}
		if s := string(o.Prompts[0]["free_min_top2_margin"]); len(s)-strings.IndexByte(s, '.') != 7 {
			t.Errorf("margin %s has not six decimals", s)
		}
		// What is written is read again, as another program's.
		f, err := ParseFile(r.Encode(), 96, 100)
		if err != nil || f.NearTie != 1e-3 || f.KV != "f16" || cmp.Diff(r.Prompts[1].FreeIDs, f.Trajectories[1].IDs) != "" {
			t.Errorf("%+v, %v", f, err)
		}
	}
	if _, err := MakeReceipt(t.Context(), inst, prompts, refs[:1], 6, nil); err == nil {
		t.Error("2 prompts and 1 reference")
	}
	// The first version had no n_gpu_layers; unknown fields are no error.
	f, err := ParseFile([]byte(`{"model":"m","steps":2,"kv_type":"f32","prompts":[{"prompt_ids":[1],"free_ids":[2,3],"free_min_top2_margin":0.5}],"totals":{}}`), 10, 10)
	if err != nil || f.KV != "f32" || len(f.Trajectories) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestParseIDs(t *testing.T) {
	list, err := ParseIDs([]byte("1,2,3\n\n  \r\n4, 5\r\n0"), 6, 3)
	if d := cmp.Diff([][]int32{{1, 2, 3}, {4, 5}, {0}}, list); d != "" || err != nil {
		t.Error(d, err)
	}
	if d := cmp.Diff("1,2,3\n4,5\n0\n", string(FormatIDs(list))); d != "" {
		t.Error(d)
	}
	for in, want := range map[string]string{
		"":                     "no line with ids",
		"\n\n":                 "no line with ids",
		"1,2,3,4":              "byte 0: line 1: 4 ids, expected at most 3",
		"1\n6":                 `byte 2: line 2: "6", expected token ids from 0 to 5`,
		"1,,2":                 `line 1: ""`,
		"1,-2":                 `line 1: "-2"`,
		"+1":                   `line 1: "+1"`,
		"99999999999999999999": `line 1: "99999999999999999999"`,
		"1 2":                  `line 1: "1 2"`,
		"{}":                   `line 1: "{}"`,
	} {
		if _, err := ParseIDs([]byte(in), 6, 3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func TestParseBattery(t *testing.T) {
	const ok = `{"format":"npack-battery","version":1,"name":"n","steps":3,"prompts":[{"class":"counting","text":"ab"},{"class":"code","ids":[1,2]},{"class":"chat","text":"c","ids":[7]}]}`
	b, err := ParseBattery([]byte(ok))
	if err != nil || len(b.Prompts) != 3 || b.Steps != 3 || len(b.SHA256) != 64 {
		t.Fatalf("%+v, %v", b, err)
	}
	if d := cmp.Diff([][]int{{0, 2}, {1}}, [][]int{b.Shard(0, 2), b.Shard(1, 2)}); d != "" {
		t.Error(d)
	}
	encode := func(text string) []int32 { return make([]int32, len(text)) }
	seven := func(text string) []int32 { return []int32{7} }
	list, err := b.Encode(b.Shard(0, 1), 3, seven, 8, 10)
	if err != nil || list[0].Prompt[0] != 7 || list[1].Prompt[1] != 2 || list[2].Class != "chat" || list[0].IDs != nil {
		t.Errorf("%+v, %v", list, err)
	}
	for _, c := range []struct {
		encode         func(string) []int32
		vocab, context int
		want           string
	}{
		{encode, 8, 10, "prompts[2].ids[0]: the tokenizer makes id 0 of the text, expected id 7"},
		{nil, 8, 10, "prompts[0]: text alone, expected ids"},
		{seven, 7, 10, "prompts[0].prompt_ids[0]: token id 7"},
		{seven, 8, 3, "prompts[1]: 4 tokens of prompt and answer"},
	} {
		if _, err := b.Encode(b.Shard(0, 1), 3, c.encode, c.vocab, c.context); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	for _, c := range []struct{ from, to, want string }{
		{"npack-battery", "other", `format: "other"`},
		{`"version":1`, `"version":0`, "version: version 0"},
		{`"steps":3`, `"steps":0`, "steps: 0 steps"},
		{`"steps":3`, `"steps":9999999`, "steps: 9999999 steps"},
		{`"class":"code"`, `"class":"poem"`, `prompts[1].class: "poem"`},
		{`"text":"ab"`, `"text":""`, "prompts[0]: neither text nor ids"},
		{`"ids":[7]`, `"ids":["7"]`, "prompts[2].ids: string, expected int32"},
		{`"prompts":[`, `"prompts":[],"x":[`, "prompts: no prompts"},
		{`"prompts":[`, `"prompts":{},"x":[`, "prompts: {}, expected a list"},
	} {
		var fe *FormatError
		if _, err := ParseBattery([]byte(strings.Replace(ok, c.from, c.to, 1))); !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: %v, want %q", c.from, c.to, err, c.want)
		}
	}
}

// TestShippedBatteries: what the program ships has prompts of every class.
func TestShippedBatteries(t *testing.T) {
	for _, name := range []string{"story.json", "battery.json"} {
		data, err := os.ReadFile(filepath.Join("../../testdata/battery", name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := ParseBattery(data)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, p := range b.Prompts {
			seen[p.Class]++
			if (p.IDs != nil) != (name == "story.json") || p.Text == "" {
				t.Errorf("%s: %+v", name, p)
			}
		}
		for _, c := range Classes {
			if seen[c] == 0 {
				t.Errorf("%s: no prompt of class %q", name, c)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	same := Header{Numerics: 1, Activations: "exact", KV: "f16"}
	o := backend.Options{Activations: backend.Exact, KV: backend.KVF16}
	for _, c := range []struct {
		name   string
		h      Header
		behind float32
		want   Verdict
	}{
		{"same arithmetic", same, 1e-6, VerdictFault},
		{"another cache", Header{Numerics: 1, Activations: "exact", KV: "f32"}, 1e-3, VerdictWithin},
		{"another cache, far", Header{Numerics: 1, Activations: "exact", KV: "f32"}, 1, VerdictBeyond},
		{"int8", Header{Numerics: 1, Activations: "int8", KV: "f16"}, 0.5, VerdictWithin},
		{"never measured", Header{Numerics: 1, Activations: "int8", KV: "int8"}, 1e-3, VerdictUnknown},
		{"another version", Header{Numerics: 2, Activations: "exact", KV: "f16"}, 1e-3, VerdictWithin},
		{"nonsense", Header{Numerics: 1, Activations: "x", KV: "f16"}, 1e-3, VerdictUnknown},
		{"the fork, as published: margin 6.51e-4", Header{NearTie: 1e-3}, 6.51e-4, VerdictWithin},
		{"the fork, far", Header{NearTie: 1e-3}, 2e-3, VerdictBeyond},
		{"float64", Header{Arithmetic: "float64 from the container bytes"}, 5e-3, VerdictWithin},
		{"float64, far", Header{Arithmetic: "float64 from the container bytes"}, 0.1, VerdictBeyond},
		{"nothing said", Header{}, 1e-6, VerdictUnknown},
	} {
		d := &Difference{GotLogit: c.behind, Largest: 10}
		if got := c.h.Judge(d, o); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestParseFilesMemory: no file takes much more memory than it has bytes.
func TestParseFilesMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: -short: 30 MB of JSON")
	}
	big := func(front, item, end string) []byte {
		return []byte(front + strings.Repeat(item, (MaxFile-200)/len(item)) + end)
	}
	for name, parse := range map[string]func() error{
		"battery, ids": func() error {
			_, err := ParseBattery(big(`{"prompts":[{"class":"code","ids":[`, "0,", "0]}]}"))
			return err
		},
		"battery, empty prompts": func() error { _, err := ParseBattery(big(`{"prompts":[`, "{},", "{}]}")); return err },
		"ids in one line":        func() error { _, err := ParseIDs(big("", "1,", "x"), 10, 1000); return err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := parse()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 9*MaxFile { // in all, not at once
			t.Errorf("%s: %v, %d bytes allocated", name, err, took)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("1,2\n3"))
	f.Add([]byte(`{"format":"npack-battery","version":1,"steps":1,"prompts":[{"class":"code","text":"a"}]}`))
	f.Add([]byte(`{"prompts":[{"prompt_ids":[1],"free_ids":[2]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if list, err := ParseIDs(data, 10, 100); err == nil {
			back, err := ParseIDs(FormatIDs(list), 10, 100)
			if d := cmp.Diff(list, back); d != "" || err != nil {
				t.Error(d, err)
			}
		}
		if b, err := ParseBattery(data); err == nil {
			if list, err := b.Encode(b.Shard(0, 1), b.Steps, func(s string) []int32 { return make([]int32, min(len(s), 5)) }, 10, 100); err == nil && len(list) != len(b.Prompts) {
				t.Errorf("%d of %d prompts", len(list), len(b.Prompts))
			}
		}
		if file, err := ParseFile(data, 10, 100); err == nil {
			file.Judge(&Difference{Largest: float32(math.Pi)}, backend.Options{Activations: backend.Exact})
			if out, err := file.Encode(); err == nil && !bytes.Contains(out, []byte(FileFormat)) {
				t.Errorf("%s", out)
			}
		}
	})
}

// TestErrorsAsMeasured: what Judge counts with is what NUMERICS.md states.
func TestErrorsAsMeasured(t *testing.T) {
	data, err := os.ReadFile("../../NUMERICS.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "*", "")
	rows := 0
	for _, a := range []backend.Activations{backend.Exact, backend.Int16, backend.Int8} {
		for _, kv := range []backend.KV{backend.KVF16, backend.KVF32, backend.KVInt8} {
			row := regexp.MustCompile(`(?m)^\| ` + a.String() + `[^|]* \| ` + kv.String() + `[^|]* \| ([0-9.e-]+) \|`).FindStringSubmatch(text)
			got := relativeError(a, kv)
			if row == nil {
				if !math.IsNaN(got) {
					t.Errorf("%s/%s: %g, which NUMERICS.md does not have", a, kv, got)
				}
				continue
			}
			rows++
			if want, err := strconv.ParseFloat(row[1], 64); err != nil || got != want {
				t.Errorf("%s/%s: %g, NUMERICS.md says %s", a, kv, got, row[1])
			}
		}
	}
	if rows != 5 {
		t.Errorf("%d rows of measurements in NUMERICS.md, want 5", rows)
	}
}
