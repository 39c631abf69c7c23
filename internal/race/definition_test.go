package race

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDefinition(t *testing.T) {
	for _, c := range []struct {
		text string
		want Definition
		err  string
	}{
		{text: "plain:", want: Definition{Name: "plain"}},
		{text: " a b : backend=cpu  kernel=generic threads=3", want: Definition{Name: "a b", Backend: "cpu", Kernel: "generic", Threads: 3}},
		{text: "z: zero-copy=yes", want: Definition{Name: "z", ZeroCopy: true}},
		{text: `q: model="my models/a b.bin" activations=int8 kv=f32 speed-only=yes`, want: Definition{Name: "q", Model: "my models/a b.bin", Activations: "int8", KV: "f32", SpeedOnly: true}},
		{text: `l: server="llama-server -m 'a b.gguf' --port {port}"`, want: Definition{Name: "l", Server: "llama-server -m 'a b.gguf' --port {port}", URL: "http://127.0.0.1:{port}"}},
		{text: `l: url=http://10.0.0.1:8080/x?a=b speed-only=no`, want: Definition{Name: "l", URL: "http://10.0.0.1:8080/x?a=b"}},
		{text: `l: url=u request='{"top_k": 40}'`, want: Definition{Name: "l", URL: "u", Request: json.RawMessage(`{"top_k": 40}`)}},
		{text: `b: bench='llama-bench -m x.gguf'`, want: Definition{Name: "b", Bench: "llama-bench -m x.gguf", SpeedOnly: true}},
		{text: `d: draft="a b" draft-length=auto`, want: Definition{Name: "d", Draft: "a b", DraftLength: "auto"}},
		{text: `w: model=C:\models\story.bin`, want: Definition{Name: "w", Model: `C:\models\story.bin`}},
		{text: "", err: "want NAME: key=value"},
		{text: "backend=cpu", err: "want NAME: key=value"},
		{text: "model=C:\\x", err: "want NAME: key=value"},
		{text: ": backend=cpu", err: "want NAME"},
		{text: "a: bakend=cpu", err: `unknown key "bakend"`},
		{text: "a: backend", err: "want backend=VALUE"},
		{text: "a: kv=f16 kv=f32", err: "kv is given twice"},
		{text: "a: threads=many", err: `"many" is no number from 1 to 1024`},
		{text: "a: threads=0", err: "no number"},
		{text: "a: model='x", err: "the quote ' is not closed"},
		{text: "a: speed-only=maybe", err: "yes or no"},
		{text: "a: url=u threads=2", err: "threads is for contestants that nrun runs itself"},
		{text: "a: url=u model=m", err: "model is for contestants"},
		{text: "a: url=u bench=b", err: "both a bench and a server"},
		{text: "a: server='llama-server -m x'", err: "no {port}"},
		{text: "a: request={}", err: "a request without a server"},
		{text: "a: url=u request=[1]", err: "want a JSON object"},
	} {
		got, err := ParseDefinition(c.text)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %q", c.text, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
		again, err := ParseDefinition(got.Text())
		if err != nil || !cmp.Equal(again, got) {
			t.Errorf("%q: its text %q gives %+v, %v", c.text, got.Text(), again, err)
		}
	}
	_, err := ParseDefinition("a: bakend=cpu")
	if e := (*KeyError)(nil); !errors.As(err, &e) || e.Key != "bakend" {
		t.Errorf("%#v", err)
	}
}

func TestReadDefinitions(t *testing.T) {
	got, err := ReadDefinitions(strings.NewReader(`[{"name": "a", "threads": 2, "kv": "f32"}, {"name": "b", "bench": "llama-bench -m x"}, {"name": "c", "url": "u", "request": {"n_keep": 1}, "speed_only": true}]`))
	want := []Definition{{Name: "a", Threads: 2, KV: "f32"}, {Name: "b", Bench: "llama-bench -m x", SpeedOnly: true}, {Name: "c", URL: "u", Request: json.RawMessage(`{"n_keep": 1}`), SpeedOnly: true}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for text, want := range map[string]string{
		``: "EOF", `{}`: "cannot unmarshal object", `[{"name": "a", "thread": 2}]`: `unknown field "thread"`, `[{}]`: "no name", `[] []`: "something follows",
		`[{"name": "a", "url": "u", "threads": 1}]`: "threads is for", `[` + strings.Repeat(`{"name":"a"},`, maxContestants) + `{"name":"a"}]`: "65 contestants",
		`[{"name": "a\nb"}]`: "no name",
	} {
		if _, err := ReadDefinitions(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestFields(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil}, {"  ", nil}, {"a  b\tc", []string{"a", "b", "c"}}, {`a "b c" d`, []string{"a", "b c", "d"}}, {`x='a "b"'`, []string{`x=a "b"`}},
		{`a""b ''`, []string{"ab", ""}}, {`\ a`, []string{`\`, "a"}},
	} {
		got, err := Fields(c.text)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", c.text, err, diff)
		}
	}
}
