package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"npack/internal/tokens"
	"npack/pack/formats"
	"npack/pack/fv5"
	"npack/pack/native"
	"npack/runtime/backend"
	"npack/runtime/reference"
	"npack/ternary"
	"npack/testdata/story"
)

// storyGGUF writes the story model as a GGUF file with nothing beside it.
func storyGGUF(t *testing.T) string {
	t.Helper()
	m, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokens.FromPack("../../testdata/story", m.Model().Vocab)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "story-fv5.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := fv5.Write(f, m.Model(), fv5.Options{Name: "story", Tokenizer: tok}); err != nil {
		t.Fatal(err)
	}
	return path
}

// The logits of the GGUF file are the container's, bit for bit.
func TestGGUFLogits(t *testing.T) {
	src, err := formats.Open(t.Context(), storyGGUF(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := src.Model().Load(t.Context(), ternary.WalkOptions{}); err != nil {
		t.Fatal(err)
	}
	bin, err := native.OpenBytes("story.bin", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	ids := stored(t)[5].PromptIDs
	want, got := logits(t, bin.Model(), ids), logits(t, src.Model(), ids)
	if len(want) != len(ids)*4096 {
		t.Fatalf("%d logits", len(want))
	}
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			t.Fatalf("logit %d of token %d is %v, the container's is %v", i%4096, i/4096, got[i], want[i])
		}
	}
}

// logits runs ids and returns the logits after each.
func logits(t *testing.T, m *ternary.Model, ids []int32) []float32 {
	t.Helper()
	inst, err := reference.Backend{}.Load(context.Background(), m, backend.Options{Threads: 2, Activations: backend.Exact, KV: backend.KVF32})
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	seq, err := inst.NewSequence(len(ids))
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	r := backend.Run{Seq: seq, Tokens: ids, Logits: make([]float32, len(ids)*m.Vocab)}
	for i := range ids {
		r.Want = append(r.Want, i)
	}
	if err := inst.Forward(context.Background(), []backend.Run{r}); err != nil {
		t.Fatal(err)
	}
	return r.Logits
}

// A GGUF file alone, or its directory, is enough: its tokenizer, template and end of turn give the
// pack's answer.
func TestGGUFAlone(t *testing.T) {
	path := storyGGUF(t)
	for _, args := range [][]string{
		{"generate", "-q", "-n", "12", "-p", "Once upon a time"},
		{"generate", "-q", "--chat", "-p", "Hello!"},
		{"tokenize", "-p", "naïve <|im_end|>\n x"},
	} {
		code, want, errs := nrun("", append(args, "../../testdata/story")...)
		if code != 0 || want == "" {
			t.Fatalf("%v: exit %d, %s", args, code, errs)
		}
		for _, model := range []string{path, filepath.Dir(path)} {
			if code, got, errs := nrun("", append(args, model)...); code != 0 || got != want {
				t.Errorf("%v: exit %d, %q, the pack says %q; %s", args, code, got, want, errs)
			}
		}
	}
}
