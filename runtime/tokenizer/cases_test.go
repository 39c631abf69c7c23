package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCases holds the vectors of testdata/cases for the stock Qwen3 tokenizer.
func TestCases(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/cases/a14_17_text_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		SHA256 string `json:"tokenizer_sha256"`
		A14    []struct {
			Text string
			IDs  []int32
		} `json:"a14_pretokenizer"`
		A15 []struct {
			Content   string
			Literal   []int32 `json:"content_ids_required"`
			Prompt    []int32 `json:"prompt_ids_required"`
			Forbidden []int32 `json:"prompt_ids_forbidden"`
		} `json:"a15_marker_text"`
		A16 []struct {
			Text  string
			IDs   []int32
			After []string `json:"after_each_token"`
		} `json:"a16_streaming"`
		A17 []struct {
			Name   string
			Prompt string
			IDs    []int32
		} `json:"a17_thinking"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.A14) != 25 || len(v.A15) != 4 || len(v.A16) != 7 || len(v.A17) != 4 || v.SHA256 != qwen3SHA256 {
		t.Fatalf("vectors: %d, %d, %d, %d for %s", len(v.A14), len(v.A15), len(v.A16), len(v.A17), v.SHA256)
	}
	tok := qwen3(t)
	equal := func(t *testing.T, what string, got, want []int32) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%q\n got %v\nwant %v", what, got, want)
		}
	}
	t.Run("A-14", func(t *testing.T) {
		for _, c := range v.A14 {
			equal(t, c.Text, tok.Encode(nil, c.Text), c.IDs)
		}
	})
	t.Run("A-15", func(t *testing.T) {
		for _, c := range v.A15 {
			equal(t, c.Content, tok.EncodeLiteral(nil, c.Content), c.Literal)
			got := tok.EncodePieces(nil, []Piece{
				{"<|im_start|>user\n", true}, {c.Content, false}, {"<|im_end|>\n<|im_start|>assistant\n", true},
			})
			equal(t, c.Content, got, c.Prompt)
			if slices.Equal(got, c.Forbidden) {
				t.Errorf("%q: the forbidden ids", c.Content)
			}
		}
	})
	t.Run("A-16", func(t *testing.T) {
		for _, c := range v.A16 {
			equal(t, c.Text, tok.Encode(nil, c.Text), c.IDs)
			s := tok.NewStream(false)
			for i, id := range c.IDs {
				if got := string(s.Append(nil, id)); got != c.After[i] {
					t.Errorf("%q: after token %d: %q, expected %q", c.Text, i, got, c.After[i])
				}
			}
			if left := s.Flush(nil); len(left) > 0 {
				t.Errorf("%q: left %q", c.Text, left)
			}
		}
	})
	t.Run("A-17", func(t *testing.T) {
		for _, c := range v.A17 {
			equal(t, c.Name, tok.Encode(nil, c.Prompt), c.IDs)
		}
	})
}

func TestPieces(t *testing.T) {
	tok := storyTokenizer(t)
	end, ok := tok.ID("<|im_end|>")
	if !ok {
		t.Fatal("no <|im_end|>")
	}
	count := func(ids []int32) (n int) {
		for _, id := range ids {
			if _, control := tok.Token(id); control {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		name    string
		pieces  []Piece
		control int
	}{
		{"none", nil, 0},
		{"empty", []Piece{{"", true}, {"", false}, {"", true}}, 0},
		{"markup", []Piece{{"<|im_end|>", true}}, 1},
		{"contents", []Piece{{"<|im_end|>", false}}, 0},
		{"across markup", []Piece{{"<|im_", true}, {"end|>", true}}, 1},
		{"across markup and an empty piece", []Piece{{"<|im_", true}, {"", true}, {"end|>", true}}, 1},
		{"across contents", []Piece{{"<|im_", false}, {"end|>", false}}, 0},
		{"start in contents", []Piece{{"<|im_", false}, {"end|>", true}}, 0},
		{"end in contents", []Piece{{"<|im_", true}, {"end|>", false}}, 0},
		{"middle in contents", []Piece{{"<|", true}, {"im_end", false}, {"|>", true}}, 0},
		{"split by empty contents", []Piece{{"<|im_", true}, {"", false}, {"end|>", true}}, 0},
		{"all", []Piece{{"<|im_end|><|im_end|>", true}, {"<|im_end|>", false}, {"x<|im_end|>", true}}, 3},
	} {
		got := tok.EncodePieces(nil, c.pieces)
		if n := count(got); n != c.control {
			t.Errorf("%s: %d control tokens in %v, expected %d", c.name, n, got, c.control)
		}
		var text strings.Builder
		for _, p := range c.pieces {
			text.WriteString(p.Text)
		}
		if back := tok.Decode(got, true); back != text.String() {
			t.Errorf("%s: decodes to %q, expected %q", c.name, back, text.String())
		}
	}

	// Between control tokens all pieces are one text, for the words and for NFC.
	for _, c := range [][]Piece{
		{{"Hello wo", true}, {"rld, don", false}, {"'t\n", true}, {"\n  x", false}},
		{{"e", true}, {"\u0301<|im", false}, {"_end", true}},
		{{"<|im_end|>e", true}, {"\u0301 f", false}, {"ox<|im_end|>", true}},
	} {
		var text strings.Builder
		for _, p := range c {
			text.WriteString(p.Text)
		}
		if got, want := tok.EncodePieces(nil, c), tok.Encode(nil, text.String()); !slices.Equal(got, want) {
			t.Errorf("%+v\n got %v\nwant %v", c, got, want)
		}
	}

	// The destination keeps what it held.
	if got := tok.EncodePieces([]int32{7}, []Piece{{"<|im_end|>", true}}); !slices.Equal(got, []int32{7, end}) {
		t.Errorf("appended to [7]: %v", got)
	}
}

// FuzzPieces: contents never become control tokens, nothing is lost, and where
// no added token is typed, borders between pieces change nothing.
func FuzzPieces(f *testing.F) {
	f.Add("<|im_start|>user\n", "hi <|im_end|>", "<|im_end|>\n")
	f.Add("e", "\u0301", "x")
	f.Add("<|im_", "end|>", "\xf0\x9f")
	f.Add("it", "'", "s")
	tok := storyTokenizer(f)
	f.Fuzz(func(t *testing.T, a, b, c string) {
		pieces := []Piece{{a, true}, {b, false}, {c, true}}
		ids := tok.EncodePieces(nil, pieces)
		allowed := 0
		for _, s := range []string{a, c} {
			for _, id := range tok.Encode(nil, s) {
				if _, control := tok.Token(id); control {
					allowed++
				}
			}
		}
		for _, id := range ids {
			if _, control := tok.Token(id); control {
				allowed--
			}
		}
		if allowed != 0 {
			t.Errorf("%+v: %d control tokens too few", pieces, allowed)
		}
		joined := validText(a) + validText(b) + validText(c)
		if !strings.Contains(joined, "<|") {
			if want := tok.Encode(nil, joined); !slices.Equal(ids, want) {
				t.Errorf("%+v\n got %v\nwant %v", pieces, ids, want)
			}
			if got := tok.Decode(ids, true); got != nfc(joined) {
				t.Errorf("%+v: decodes to %q", pieces, got)
			}
		}
	})
}

// FuzzRoundTrip: decoding gives the NFC of what was encoded.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", "Hello world", "e\u0301", "\xff\xf0\x9f\x99", "a\u0316\u0301", "\u1100\u1161", strings.Repeat("x", 100)} {
		f.Add(s)
	}
	tok := storyTokenizer(f)
	f.Fuzz(func(t *testing.T, s string) {
		ids := tok.EncodeLiteral(nil, s)
		if got, want := tok.Decode(ids, false), nfc(validText(s)); got != want {
			t.Errorf("%q: %v decode to %q, expected %q", s, ids, got, want)
		}
		if utf8.ValidString(s) && nfc(s) == s {
			var raw []byte
			for _, id := range ids {
				raw = tok.AppendToken(raw, id)
			}
			if string(raw) != s {
				t.Errorf("%q: bytes %q", s, raw)
			}
		}
	})
}
