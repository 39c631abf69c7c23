package gguf

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// vocabulary writes a file with as many tokens and merges as Qwen3 has, of about
// their lengths: 151,936 and 151,387, 6 MB.
func vocabulary(t testing.TB) string {
	t.Helper()
	tokens, merges, types := make([]string, 151936), make([]string, 151387), make([]int32, 151936)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("Ġtoken%06d", i)[:3+i%9]
	}
	for i := range merges {
		merges[i] = fmt.Sprintf("Ġa%d b", i)
	}
	h := Header{Metadata: []KV{
		{"general.architecture", String("qwen3")}, {"tokenizer.ggml.tokens", Strings(tokens)},
		{"tokenizer.ggml.token_type", Int32s(types)}, {"tokenizer.ggml.merges", Strings(merges)},
	}}
	var b bytes.Buffer
	if _, err := NewWriter(&b, &h); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "vocabulary.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// Opening allocates by the number of keys, not of tokens.
func TestVocabularyAllocations(t *testing.T) {
	path := vocabulary(t)
	if n := testing.AllocsPerRun(3, func() {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}); n > 60 {
		t.Errorf("%v allocations", n)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, _ := f.Value("tokenizer.ggml.tokens")
	if n := testing.AllocsPerRun(3, func() {
		if s, ok := v.Strings(); !ok || len(s) != 151936 || s[9] != "Ġt" {
			t.Fatal("other tokens")
		}
	}); n > 4 {
		t.Errorf("%v allocations for the tokens", n)
	}
}

func BenchmarkOpenVocabulary(b *testing.B) {
	path := vocabulary(b)
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

// BenchmarkReadVocabulary opens the file and takes all strings out of it.
func BenchmarkReadVocabulary(b *testing.B) {
	path := vocabulary(b)
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		for _, kv := range f.Metadata {
			kv.Value.Strings()
		}
		f.Close()
	}
}
