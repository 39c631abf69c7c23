package tokens

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/gguf"
	"npack/pack/fv5"
	"npack/pack/native"
	"npack/testdata/story"
)

// TestFiles brings a tokenizer from a pack into a GGUF file and back: what the two
// packs give a GGUF file is the same.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string][]byte{"tokenizer.json": story.TokenizerJSON, "tokenizer_config.json": story.TokenizerConfigJSON, "chat_template.jinja": story.ChatTemplate} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	c, err := native.OpenBytes("story", story.Container)
	if err != nil {
		t.Fatal(err)
	}
	vocab := c.Model().Vocab
	want, err := FromPack(dir, vocab)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := fv5.Write(&b, c.Model(), fv5.Options{Tokenizer: want}); err != nil {
		t.Fatal(err)
	}
	g, err := gguf.OpenBytes("story.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	files, err := Files(g, vocab)
	if err != nil {
		t.Fatal(err)
	}
	back := t.TempDir()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(back, f.Name), f.Data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := FromPack(back, vocab)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
