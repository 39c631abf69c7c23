package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestValidText holds the examples of the Unicode standard, table 3-8 and
// around: one U+FFFD for each maximal subpart.
func TestValidText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"aé中🙂", "aé中🙂"},
		{"\xff", "\ufffd"},
		{"a\x80b", "a\ufffdb"},
		{"\xf0\x9f\x99", "\ufffd"},
		{"\xf0\x9f\x99x", "\ufffdx"},
		{"\xf0\x9fé", "\ufffdé"},
		{"\xc0\xaf", "\ufffd\ufffd"},
		{"\xe0\x80\xaf", "\ufffd\ufffd\ufffd"},
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
		{"\xf4\x91\x92\x93", "\ufffd\ufffd\ufffd\ufffd"},
		{"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA", "\ufffd\ufffd\ufffd\ufffdA"},
		{"\ufffd", "\ufffd"},
	} {
		if got := validText(c.in); got != c.want {
			t.Errorf("%q: got %+q, expected %+q", c.in, got, c.want)
		}
	}
}

func TestTokens(t *testing.T) {
	tok := tiny(t)
	n := int32(tok.Len())
	end, ok := tok.ID("<|end|>")
	if !ok || end != n-3 {
		t.Errorf("ID(<|end|>) = %d, %v, expected %d", end, ok, n-3)
	}
	for _, c := range []struct {
		id      int32
		bytes   string
		control bool
	}{
		{-1, "", false}, {n, "", false}, {1 << 30, "", false}, {-1 << 31, "", false},
		{n - 1, "<|end|>\n", true}, {n - 2, "<think>", false}, {n - 4, "cb", false}, {end, "<|end|>", true},
		{tok.byteID[' '], " ", false}, {tok.byteID[0xff], "\xff", false},
	} {
		if bytes, control := tok.Token(c.id); bytes != c.bytes || control != c.control {
			t.Errorf("Token(%d) = %q, %v, expected %q, %v", c.id, bytes, control, c.bytes, c.control)
		}
		if got := string(tok.AppendToken([]byte("x"), c.id)); got != "x"+c.bytes {
			t.Errorf("AppendToken(%d) = %q", c.id, got)
		}
		if id, ok := tok.ID(c.bytes); ok != (c.bytes != "") || ok && id != c.id {
			t.Errorf("ID(%q) = %d, %v", c.bytes, id, ok)
		}
	}
	if got := len(tok.Added()); got != 3 {
		t.Errorf("%d added tokens, expected 3", got)
	}
}

// TestHoles: ids that no token has stand for nothing, also past the last token
// of the model and before an added one.
func TestHoles(t *testing.T) {
	v := tinyVocab()
	first := int32(len(v.Tokens) + len(v.Added))
	last := first + 9
	v.Added = append(v.Added, Added{last, "<far>", true})
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	if tok.Len() != int(last)+1 {
		t.Errorf("Len() = %d, expected %d", tok.Len(), last+1)
	}
	for id := first; id < last; id++ {
		if bytes, control := tok.Token(id); bytes != "" || control {
			t.Errorf("Token(%d) = %q, %v", id, bytes, control)
		}
	}
	if got := tok.Encode(nil, "<far>"); len(got) != 1 || got[0] != last {
		t.Errorf("Encode(<far>) = %v, expected %d", got, last)
	}
}

// TestLongestMark: of two added tokens that start alike the longer one wins.
func TestLongestMark(t *testing.T) {
	tok := tiny(t)
	n := int32(tok.Len())
	for _, c := range []struct {
		text string
		want []int32
	}{
		{"<|end|>", []int32{n - 3}},
		{"<|end|>\n", []int32{n - 1}},
		{"<|end|>\n\n", []int32{n - 1, tok.byteID['\n']}},
		{"<<think><|end|><|end|>\n", []int32{tok.byteID['<'], n - 2, n - 3, n - 1}},
	} {
		got := tok.Encode(nil, c.text)
		if len(got) != len(c.want) {
			t.Errorf("%q: %v, expected %v", c.text, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%q: %v, expected %v", c.text, got, c.want)
				break
			}
		}
	}
}

// FuzzStream: whatever the tokens, each chunk is whole characters, little is
// held back, and all chunks are the decoded text.
func FuzzStream(f *testing.F) {
	f.Add([]byte("hello"), false)
	f.Add([]byte("\xf0\x9f\x99\x82"), true)
	f.Add([]byte("\xf0\x9f\x99\xf0\x9f\x99\x82\xe2"), true)
	f.Add([]byte("\xe0\x80\x01\xf0\x02\x9f\xf4\x90"), true)
	tok := tiny(f)
	f.Fuzz(func(t *testing.T, raw []byte, show bool) {
		var ids []int32
		var want []byte
		for _, b := range raw {
			id := tok.byteID[b]
			if b < 5 { // the added tokens, a hole's neighbour and one past the end
				id = int32(tok.Len()) - int32(b)
			}
			ids = append(ids, id)
			if _, control := tok.Token(id); !control || show {
				want = tok.AppendToken(want, id)
			}
		}
		s := tok.NewStream(show)
		var got strings.Builder
		for _, id := range ids {
			chunk := s.Append(nil, id)
			if !utf8.Valid(chunk) {
				t.Fatalf("%q: chunk %q", raw, chunk)
			}
			got.Write(chunk)
		}
		got.Write(s.Flush(nil))
		if got.String() != tok.Decode(ids, show) {
			t.Errorf("%q: stream %q, decoded %q", raw, got.String(), tok.Decode(ids, show))
		}
		if got.String() != validText(string(want)) {
			t.Errorf("%q: stream %q, expected %q", raw, got.String(), validText(string(want)))
		}
		if again := s.Flush(nil); len(again) > 0 {
			t.Errorf("%q: second flush %q", raw, again)
		}
	})
}

// TestStreamSplits cuts valid text into every kind of token and compares.
func TestStreamSplits(t *testing.T) {
	tok := storyTokenizer(t)
	for _, text := range []string{"日本語", "🙂👩‍👩‍👧‍👦!", " é", "a🙂b"} {
		var ids []int32
		for i := range len(text) {
			ids = append(ids, tok.byteID[text[i]])
		}
		s := tok.NewStream(false)
		var out []byte
		for i, id := range ids {
			out = s.Append(out, id)
			whole := i + 1 // out is every character that is complete
			for !utf8.ValidString(text[:whole]) {
				whole--
			}
			if string(out) != text[:whole] {
				t.Errorf("%q: after %d bytes %q, expected %q", text, i+1, out, text[:whole])
			}
		}
	}
}

// TestNoAllocs: a token on its way out costs no memory.
func TestNoAllocs(t *testing.T) {
	tok := storyTokenizer(t)
	ids := tok.EncodeLiteral(nil, "日本語 and 🙂 and more\xff")
	out := make([]byte, 0, 1024)
	s := tok.NewStream(true)
	if n := testing.AllocsPerRun(100, func() {
		out = out[:0]
		for _, id := range ids {
			out = s.Append(out, id)
		}
		out = s.Flush(out)
	}); n != 0 {
		t.Errorf("Stream: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		out = out[:0]
		for _, id := range ids {
			out = tok.AppendToken(out, id)
		}
	}); n != 0 {
		t.Errorf("AppendToken: %v allocations", n)
	}
}
