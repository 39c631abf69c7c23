package tokenizer_test

import (
	"slices"
	"testing"

	"npack/runtime/tokenizer"
	"npack/testdata/story"
)

// A tokenizer that is taken apart and put together again is the same.
func TestVocab(t *testing.T) {
	a, err := tokenizer.FromJSON(story.TokenizerJSON)
	if err != nil {
		t.Fatal(err)
	}
	v := a.Vocab()
	b, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	if a.Len() != b.Len() || !slices.Equal(a.Added(), b.Added()) || len(v.Merges) == 0 || v.Merges[0][0] == "" {
		t.Fatalf("%d ids, %d", a.Len(), b.Len())
	}
	for id := range int32(a.Len()) {
		x, c := a.Token(id)
		y, d := b.Token(id)
		if x != y || c != d {
			t.Errorf("token %d: %q, %v; was %q, %v", id, y, d, x, c)
		}
	}
	const text = "Once upon a time, there’s a <|im_end|> naïve «façade» 1234 ≠ x\n\n  e\u0301"
	if x, y := a.Encode(nil, text), b.Encode(nil, text); !slices.Equal(x, y) {
		t.Errorf("%v, was %v", y, x)
	}
}
