package tokenizer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/testdata/story"
)

// TestWriteJSON writes a tokenizer as tokenizer.json and reads it again: the same
// vocabulary, and the same ids of a text with marks in it.
func TestWriteJSON(t *testing.T) {
	want, err := FromJSON(story.TokenizerJSON)
	if err != nil {
		t.Fatal(err)
	}
	v := want.Vocab()
	for _, nfc := range []bool{true, false} {
		v.NFC = nfc
		b, err := v.JSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := FromJSON(b)
		if err != nil {
			t.Fatal(err)
		}
		w := got.Vocab()
		// An added token may be in the vocabulary or not.
		if d := cmp.Diff(v.tokens(), w.tokens()); d != "" || w.NFC != nfc {
			t.Error(d, w.NFC)
		}
		if d := cmp.Diff(v.Merges, w.Merges) + cmp.Diff(v.Added, w.Added); d != "" {
			t.Error(d)
		}
	}
}
