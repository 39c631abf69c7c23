package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// naive is byte-pair encoding as the literature states it.
func naive(t *Tokenizer, word string) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, t.byteID[word[i]])
	}
	for {
		best, at := -1, 0
		for i := range len(ids) - 1 {
			for rank, m := range t.merges {
				if m.left == ids[i] && m.right == ids[i+1] && (best < 0 || rank < best) {
					best, at = rank, i
				}
			}
		}
		if best < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, t.merges[best].result)
	}
}

// tiny has the 256 bytes, some merges that compete and chain, and three added
// tokens, one of them not special.
func tiny(tb testing.TB) *Tokenizer {
	tb.Helper()
	t, err := New(tinyVocab())
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func tinyVocab() Vocab {
	v := Vocab{Pre: PreQwen2, NFC: true}
	for r, b := range alphabetByte {
		if b >= 0 {
			v.Tokens = append(v.Tokens, string(rune(r)))
		}
	}
	for _, m := range [][2]string{{"a", "a"}, {"b", "c"}, {"a", "b"}, {"aa", "aa"}, {"ab", "ab"}, {"a", "bc"}, {"aaaa", "b"}, {"abab", "abab"}, {"Ġ", "a"}} {
		v.Merges = append(v.Merges, m)
		v.Tokens = append(v.Tokens, m[0]+m[1])
	}
	v.Tokens = append(v.Tokens, "cb") // no merge leads to it
	n := int32(len(v.Tokens))
	v.Added = []Added{{n, "<|end|>", true}, {n + 1, "<think>", false}, {n + 2, "<|end|>\n", true}}
	return v
}

// TestMerges compares both ways of merging with the plain one. Words of three
// letters find every order of competing merges.
func TestMerges(t *testing.T) {
	tok := tiny(t)
	r := rand.New(rand.NewPCG(3, 4))
	for n := 2; n <= 70; n++ {
		for range 20 {
			b := make([]byte, n)
			for i := range b {
				b[i] = "aaabbc"[r.IntN(6)]
			}
			checkMerges(t, tok, string(b))
		}
	}
}

func checkMerges(t *testing.T, tok *Tokenizer, word string) {
	t.Helper()
	want := naive(tok, word)
	if len(word) <= shortWord {
		if got := tok.mergeShort(nil, word); !slices.Equal(got, want) {
			t.Errorf("mergeShort(%q)\n got %v\nwant %v", word, got, want)
		}
	}
	if got := tok.mergeLong(nil, word, new(scratch)); !slices.Equal(got, want) {
		t.Errorf("mergeLong(%q)\n got %v\nwant %v", word, got, want)
	}
	for range 2 { // the second time from what the first one noted
		if got := tok.appendWord(nil, word, new(scratch)); !slices.Equal(got, want) {
			t.Errorf("appendWord(%q)\n got %v\nwant %v", word, got, want)
		}
	}
}

// TestWholeWord: a token that its own merges do not lead to is not used.
func TestWholeWord(t *testing.T) {
	tok := tiny(t)
	id, ok := tok.ID("cb")
	if !ok {
		t.Fatal("no token cb")
	}
	for range 2 {
		if got := tok.Encode(nil, "cb"); len(got) != 2 || slices.Contains(got, id) {
			t.Errorf("Encode(cb) = %v, expected c and b", got)
		}
	}
	if tok.wholeWord(id) != wholeNo {
		t.Errorf("cb noted as %d", tok.wholeWord(id))
	}
}

func FuzzMerges(f *testing.F) {
	f.Add("aabbccabab")
	f.Add(strings.Repeat("a", 50) + "b")
	tok := tiny(f)
	f.Fuzz(func(t *testing.T, word string) {
		if word != "" && len(word) < 200 {
			checkMerges(t, tok, word)
		}
	})
}

// TestLongWord: a megabyte without a space costs a number of steps that grows
// with its length, not with its square.
func TestLongWord(t *testing.T) {
	tok := tiny(t)
	for _, word := range []string{
		strings.Repeat("a", 1<<20),
		strings.Repeat("ab", 1<<17),
		strings.Repeat("aabc", 1<<16),
		strings.Repeat("中", 1<<16),
	} {
		s := new(scratch)
		ids := tok.mergeLong(nil, word, s)
		if got := tok.Decode(ids, true); got != word {
			t.Errorf("%.8q…: not the same text", word)
		}
		// Each merge takes one symbol away and adds two candidates at most.
		if s.steps > 3*len(word) {
			t.Errorf("%.8q…: %d steps for %d bytes", word, s.steps, len(word))
		}
	}
}

// TestConcurrent is for the race detector.
func TestConcurrent(t *testing.T) {
	tok := storyTokenizer(t)
	want := tok.Encode(nil, benchTexts[0].text)
	fresh := storyTokenizer(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := fresh.Encode(nil, benchTexts[0].text); !slices.Equal(got, want) {
				t.Error("other ids")
			}
		})
	}
	wg.Wait()
}
