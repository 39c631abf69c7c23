package engine

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// stopOracle is the definition: the stop string that ends first, of those the
// longest.
func stopOracle(text string, stops []string) string {
	for end := 1; end <= len(text); end++ {
		best := -1
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				best = max(best, len(s))
			}
		}
		if best >= 0 {
			return text[:end-best]
		}
	}
	return text
}

// runStopper feeds text in pieces of n bytes. It fails if a piece let out is
// text that a later stop string would take back.
func runStopper(t *testing.T, text string, stops []string, n int) string {
	t.Helper()
	want := stopOracle(text, stops)
	s, out := newStopper(stops), ""
	for rest := text; rest != ""; rest = rest[min(n, len(rest)):] {
		piece, found := s.next([]byte(rest[:min(n, len(rest))]))
		out += string(piece)
		if !strings.HasPrefix(want, out) {
			t.Fatalf("pieces of %d: %q leaked, want %q", n, out, want)
		}
		if found >= 0 {
			if s.flush(); want == text {
				t.Fatalf("pieces of %d: found %q in %q", n, stops[found], text)
			}
			return out
		}
	}
	return out + string(s.flush())
}

func TestStopper(t *testing.T) {
	for _, c := range []struct {
		text  string
		stops []string
		want  string
	}{
		{"no stop at all", nil, "no stop at all"},
		{"alpha beta gamma delta", []string{"beta gamma", "\nUser:"}, "alpha "},
		{"alpha beta gamm", []string{"beta gamma"}, "alpha beta gamm"}, // the tail comes out at the end
		{"hello\nUser: more", []string{"beta gamma", "\nUser:"}, "hello"},
		{"aab", []string{"ab"}, "a"},
		{"ababac", []string{"abac"}, "ab"}, // a match that begins inside a held tail
		{"xabcd", []string{"bc", "abcd"}, "xa"},
		{"xabc", []string{"bc", "abc"}, "x"},
		{"stop", []string{"stop"}, ""},
		{"日本語です。終わり", []string{"終わり"}, "日本語です。"},
		{"日本語です。終", []string{"終わり"}, "日本語です。終"},
		{"\n\n\n", []string{"\n\n"}, ""},
		{"<|im_en <|im_end|>", []string{"<|im_end|>"}, "<|im_en "},
	} {
		if got := stopOracle(c.text, c.stops); got != c.want {
			t.Errorf("oracle: %q, want %q", got, c.want)
		}
		for n := 1; n <= len(c.text); n++ {
			if got := runStopper(t, c.text, c.stops, n); got != c.want {
				t.Errorf("%q in pieces of %d: %q, want %q", c.text, n, got, c.want)
			}
		}
	}
}

// TestStopperCaseA26 runs the request of case A-26: a stop string that spans
// several tokens, with every cut of the answer into three pieces.
func TestStopperCaseA26(t *testing.T) {
	var req struct{ Stop []string }
	data, err := os.ReadFile("../../testdata/cases/a26_stop.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &req); err != nil {
		t.Fatal(err)
	}
	const answer = "alpha beta gamma delta"
	for i := range answer {
		for j := i; j <= len(answer); j++ {
			s, out := newStopper(req.Stop), ""
			for _, piece := range []string{answer[:i], answer[i:j], answer[j:]} {
				text, found := s.next([]byte(piece))
				out += string(text)
				if found >= 0 {
					if req.Stop[found] != "beta gamma" {
						t.Errorf("found %q", req.Stop[found])
					}
					break
				}
			}
			if out != "alpha " {
				t.Fatalf("cut at %d and %d: %q let out, want %q", i, j, out, "alpha ")
			}
		}
	}
}

func FuzzStopper(f *testing.F) {
	f.Add("alpha beta gamma", "beta gamma", "a b", uint8(3))
	f.Add("ababac", "abac", "bab", uint8(1))
	f.Add("aé日", "é日", "日", uint8(2))
	f.Fuzz(func(t *testing.T, text, a, b string, n uint8) {
		if len(text) > 200 || a == "" || b == "" || n == 0 {
			return
		}
		if got, want := runStopper(t, text, []string{a, b}, int(n)), stopOracle(text, []string{a, b}); got != want {
			t.Errorf("%q, stops %q and %q, pieces of %d: %q, want %q", text, a, b, n, got, want)
		}
	})
}

// TestStopperKeepsCharacters: what is let out is valid UTF-8 if what comes in is.
func TestStopperKeepsCharacters(t *testing.T) {
	s := newStopper([]string{"日本", "é!"})
	for _, piece := range []string{"日", "日", "é", "本é", "é", "?"} {
		if text, _ := s.next([]byte(piece)); !utf8.Valid(text) {
			t.Errorf("%q is not valid UTF-8", text)
		}
	}
}
