package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestComposeSlowly: where x/text puts in no U+034F, both ways are equal. Long
// runs of marks are among the golden vectors.
func TestComposeSlowly(t *testing.T) {
	runes := []rune("aeoqAx\u0301\u0300\u0302\u0316\u0323\u0327\u0338\u0344\u0345\u0f71\u0f72\u0f73\u1100\u1161\u11a8\uac00\uac01\u0958\u093c\u0928\u212b\u2126é\u1ee5> \u09c7\u09be")
	r := rand.New(rand.NewPCG(5, 6))
	for range 20000 {
		var b strings.Builder
		for range 1 + r.IntN(9) {
			b.WriteRune(runes[r.IntN(len(runes))])
		}
		s := b.String()
		if got, want := composeSlowly(s), norm.NFC.String(s); got != want {
			t.Fatalf("%+q\n got %+q\nwant %+q", s, got, want)
		}
	}
}

// TestMarksPerCharacter is the assumption of differs.
func TestMarksPerCharacter(t *testing.T) {
	for r := range rune(utf8.MaxRune + 1) {
		marks := 0
		for d := norm.NFD.String(string(r)); d != ""; {
			p := norm.NFD.PropertiesString(d)
			if p.CCC() != 0 {
				marks++
			}
			d = d[p.Size():]
		}
		if marks > 3 {
			t.Errorf("%U decomposes into %d marks", r, marks)
		}
	}
}

func FuzzNFC(f *testing.F) {
	f.Add("e\u0301")
	f.Add("Z" + strings.Repeat("\u0316\u0301", 20))
	f.Fuzz(func(t *testing.T, s string) {
		if s = validText(s); len(s) > 4096 {
			return
		}
		got := nfc(s)
		if got != composeSlowly(s) || !utf8.ValidString(got) {
			t.Errorf("%+q: got %+q, slowly %+q", s, got, composeSlowly(s))
		}
		if again := nfc(got); again != got {
			t.Errorf("%+q: %+q, then %+q", s, got, again)
		}
	})
}
