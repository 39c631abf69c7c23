package modelfile

import (
	"strings"
	"testing"

	"npack/pack/fv5"
)

func TestMake(t *testing.T) {
	chatml := &fv5.Tokenizer{Tokens: []string{"a", "<|im_start|>", "<|im_end|>"}, Types: []int32{fv5.TokenNormal, fv5.TokenControl, fv5.TokenControl}}
	for _, c := range []struct {
		name, config string
		tok          *fv5.Tokenizer
		want         []string
		not          string
	}{
		{"nothing", "", nil, []string{"FROM ./m.gguf\n", "num_ctx 1024"}, "TEMPLATE"},
		{"chatml", `{"eos_token_id":[2,0,99],"temperature":0.6,"top_k":20,"repetition_penalty":1.1}`, chatml,
			[]string{"TEMPLATE \"\"\"", `stop "<|im_end|>"`, "temperature 0.6", "top_k 20", "repeat_penalty 1.1"}, `stop "a"`},
		{"greedy", `{"do_sample":false,"temperature":0.6}`, chatml, []string{"temperature 0\n"}, "0.6"},
		{"other", "{}", &fv5.Tokenizer{Tokens: []string{"a"}, Types: []int32{1}}, []string{"FROM"}, "TEMPLATE"},
	} {
		got, err := Make("m.gguf", c.tok, []byte(c.config), 1024)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %q in\n%s", c.name, w, got)
			}
		}
		if strings.Contains(got, c.not) {
			t.Errorf("%s: %q in\n%s", c.name, c.not, got)
		}
	}
	if _, err := Make("m.gguf", nil, []byte(`{"top_k":"x"}`), 1); err == nil {
		t.Error("a bad configuration was taken")
	}
}
