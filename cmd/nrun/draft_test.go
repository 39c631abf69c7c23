package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"npack/testdata/storydraft"
)

// TestDraftVocabulary: a draft whose tokens mean something else is refused; one
// that lacks the last tokens is not.
func TestDraftVocabulary(t *testing.T) {
	replace := func(old, new string) []byte {
		if !bytes.Contains(storydraft.TokenizerJSON, []byte(old)) {
			t.Fatalf("no %s in tokenizer.json", old)
		}
		return bytes.Replace(storydraft.TokenizerJSON, []byte(old), []byte(new), 1)
	}
	for _, c := range []struct {
		name      string
		tokenizer []byte
		code      int
		stderr    string
	}{
		{"same", storydraft.TokenizerJSON, 0, ""},
		{"swapped", bytes.Replace(replace(`"!": 0`, `"!": 1`), []byte(`"\"": 1`), []byte(`"\"": 0`), 1), 1, `token 0 is "!" in the model, "\"" in the draft`},
		{"none", nil, 5, "the tokenizer is not there"},
	} {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"draft.bin": storydraft.Container, "tokenizer.json": c.tokenizer} {
			if data == nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		code, _, stderr := nrun("", "generate", "-q", "-p", "Once upon a time", "-n", "4", "--draft", filepath.Join(dir, "draft.bin"))
		if code != c.code || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: exit %d, %s; want %d, %s", c.name, code, stderr, c.code, c.stderr)
		}
	}
}
