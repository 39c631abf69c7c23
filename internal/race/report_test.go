package race

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"npack/pack"
)

func write(path string, r *Report) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}

// sample is a whole race as a file has it.
func sample(t testing.TB) string {
	list, r, _ := newRace(2, &runner{name: "a"}, &runner{name: "b"})
	if err := Run(t.Context(), list, r, Options{}); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRead(t *testing.T) {
	good := sample(t)
	path := filepath.Join(t.TempDir(), "race.json")
	for _, c := range []struct {
		old, new string
		kind     error
		want     string
	}{
		{"", "", nil, ""},
		{good, "<html>", pack.ErrCorrupt, "invalid character"},
		{good, good[:200], pack.ErrCorrupt, "unexpected end"},
		{`"schema":1`, `"schema":2`, pack.ErrUnsupported, "schema: 2, expected 1"},
		{`{"name":"a"},`, ``, pack.ErrCorrupt, "contestants: 1, expected 2 or more"},
		{`"ids":[100]`, `"ids":[]`, pack.ErrCorrupt, "prompts[1].ids: no tokens"},
		{`"tokens":4,"rounds_wanted"`, `"tokens":0,"rounds_wanted"`, pack.ErrCorrupt, "prompts: 3 prompts, 0 tokens"},
		{`"tokens":4,"rounds_wanted"`, `"tokens":9223372036854775807,"rounds_wanted"`, pack.ErrCorrupt, "prompts: 3 prompts, 9223372036854775807 tokens"},
		{`"rounds_wanted":2`, `"rounds_wanted":-2`, pack.ErrCorrupt, "rounds_wanted: -2, expected 1 to 10000"},
		{`"contestants":[`, `"contestants":[{"name":"x"},`, pack.ErrCorrupt, "identity.results: 2, expected 3"},
		{`"samples":[{"contestant":"a"`, `"samples":[{"contestant":"z"`, pack.ErrCorrupt, `rounds[0].samples[0].contestant: "z", expected "a"`},
		{`"decode_seconds":9`, `"decode_seconds":0`, pack.ErrCorrupt, "rounds[0].samples[0].total: 9 tokens in 0 s"},
		{`"classes":[{"class":"chat","prompts"`, `"classes":[{"class":"x","prompts"`, pack.ErrCorrupt, `rounds[1].samples[0].classes[0]: "chat", expected the class of the first round`},
		{`"decode_seconds":9`, `"decode_seconds":"9"`, pack.ErrCorrupt, "cannot unmarshal string"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if c.want != "" && text == good {
			t.Fatalf("%q is not in %s", c.old, good)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Read(path)
		if !errors.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

// FuzzReport: what passes the checks can be summed up and written again.
func FuzzReport(f *testing.F) {
	f.Add(sample(f))
	f.Fuzz(func(t *testing.T, text string) {
		r := &Report{}
		if json.Unmarshal([]byte(text), r) != nil {
			return
		}
		if place, _, _ := r.check(); place != "" {
			return
		}
		r.Finish()
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}
