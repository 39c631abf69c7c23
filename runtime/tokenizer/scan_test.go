package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/google/go-cmp/cmp"
)

func words(text string) []string {
	var out []string
	scan := newScanner()
	for i := 0; i < len(text); {
		end := scan.next(text, i)
		out = append(out, text[i:end])
		i = end
	}
	return out
}

func TestScanner(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"->", []string{"->"}},
		{"Hello world", []string{"Hello", " world"}},
		{"1234", []string{"1", "2", "3", "4"}},
		{"a 12", []string{"a", " ", "1", "2"}},
		{"foo   bar", []string{"foo", "  ", " bar"}},
		{"foo  .bar", []string{"foo", " ", " .", "bar"}},
		{"foo\t.", []string{"foo", "\t", "."}},
		{"foo \t.x", []string{"foo", " ", "\t", ".x"}},
		{"foo \tx", []string{"foo", " ", "\tx"}},
		{"foo   ", []string{"foo", "   "}},
		{"x;\n\n\n  y", []string{"x", ";\n\n\n", " ", " y"}},
		{" \n \n  y", []string{" \n \n", " ", " y"}},
		{"a\r\nb", []string{"a", "\r\n", "b"}},
		{"don'T'LLama'ſ", []string{"don", "'T", "'LL", "ama", "'ſ"}},
		{"'l 'r 'x", []string{"'l", " '", "r", " '", "x"}},
		{"(x):\n", []string{"(x", "):\n"}},
		{"\u2028\u2028x", []string{"\u2028", "\u2028x"}},
		{"\u3000\n x", []string{"\u3000\n", " x"}},
		{"x²½", []string{"x", "²", "½"}},
		{"🙂x🙂", []string{"🙂x", "🙂"}},
		{"a\u0301b", []string{"a", "\u0301b"}},
		{" \u0301b", []string{" \u0301", "b"}},
		{"\x00\x00", []string{"\x00\x00"}},
	} {
		if diff := cmp.Diff(c.want, words(c.text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}

// oracle is qwen2Pattern in an engine with look-ahead. regexp2 folds case by
// lower letters only, so the long s is written out.
var oracle = regexp2.MustCompile(strings.Replace(qwen2Pattern, "'s|", "'[sſ]|", 1), regexp2.None)

// checkOracle compares the scanner with the regular expression. Letters and
// numbers newer than Go's Unicode, which regexp2 takes for neither, are left
// out.
func checkOracle(t *testing.T, text string) {
	t.Helper()
	text = strings.Map(func(r rune) rune {
		if unicode.In(r, letters16, numbers16) {
			return 'x'
		}
		return r
	}, validText(text))
	var want []string
	m, err := oracle.FindStringMatch(text)
	for ; m != nil && err == nil; m, err = oracle.FindNextMatch(m) {
		want = append(want, m.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := words(text); !slices.Equal(got, want) {
		t.Errorf("%+q\n got %+q\nwant %+q", text, got, want)
	}
}

// TestScannerOracle walks through all short strings of one character of each
// kind, then random longer ones.
func TestScannerOracle(t *testing.T) {
	kinds := []rune(" \n\r\t\u00a0'sSlLrevaé1².-\u0301🙂ſ")
	var walk func(s string, depth int)
	walk = func(s string, depth int) {
		checkOracle(t, s)
		if depth > 0 {
			for _, r := range kinds {
				walk(s+string(r), depth-1)
			}
		}
	}
	walk("", 3)
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var b strings.Builder
		for range 4 + r.IntN(12) {
			b.WriteRune(kinds[r.IntN(len(kinds))])
		}
		checkOracle(t, b.String())
	}
}

func FuzzScanner(f *testing.F) {
	for _, s := range []string{"don't  stop\r\n\n  x", "it'ſ ²½ 🙂'LL", "\u2028 \u3000\n\u0085", "a\u0301'Ve(", strings.Repeat(" ", 40) + "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			s = validText(s)
		}
		checkOracle(t, s)
	})
}
