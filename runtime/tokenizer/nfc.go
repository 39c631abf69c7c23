package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc brings s to Unicode normal form C. Text without combining marks, which
// is nearly all, comes back as it is.
//
// golang.org/x/text writes the stream-safe variant: it puts a U+034F after 30
// marks in a row, which the reference does not. Text with so many marks is
// rare and real ("zalgo"), so it goes another way.
func nfc(s string) string {
	switch {
	case norm.NFC.IsNormalString(s):
		return s
	case !manyMarks(s):
		return norm.NFC.String(s)
	}
	return composeSlowly(s)
}

// manyMarks reports whether s may hold over 30 combining marks in a row. No
// character decomposes into more than three of them, so it looks for ten
// characters in a row that are or end in one.
func manyMarks(s string) bool {
	run := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			run = 0
			i++
			continue
		}
		p := norm.NFD.PropertiesString(s[i:])
		if run++; p.TrailCCC() == 0 {
			run = 0
		}
		if run == 10 {
			return true
		}
		i += p.Size()
	}
	return false
}

// composeSlowly is the algorithm of the Unicode standard, section 3.11, step by
// step: decompose, order the marks, compose. The tables are x/text's, asked one
// or two characters at a time.
func composeSlowly(s string) string {
	type char struct {
		r   rune
		ccc uint8 // canonical combining class
	}
	var chars []char
	var buf []byte
	for i := 0; i < len(s); {
		_, n := utf8.DecodeRuneInString(s[i:])
		buf = norm.NFD.AppendString(buf[:0], s[i:i+n])
		for k := 0; k < len(buf); {
			r, m := utf8.DecodeRune(buf[k:])
			chars = append(chars, char{r, norm.NFD.Properties(buf[k:]).CCC()})
			k += m
		}
		i += n
	}

	for i := 0; i < len(chars); i++ {
		end := i
		for end < len(chars) && chars[end].ccc != 0 {
			end++
		}
		slices.SortStableFunc(chars[i:end], func(a, b char) int { return int(a.ccc) - int(b.ccc) })
		i = end
	}

	out := chars[:0] // never longer than what was read
	starter := -1    // index in out of the last character of class 0
	for _, c := range chars {
		if starter >= 0 {
			last := out[len(out)-1]
			if starter == len(out)-1 || last.ccc < c.ccc { // not blocked
				if r, ok := compose(out[starter].r, c.r); ok {
					out[starter].r = r
					continue
				}
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	text := make([]byte, 0, len(s))
	for _, c := range out {
		text = utf8.AppendRune(text, c.r)
	}
	return string(text)
}

// compose returns the one character that a and b make, if there is one.
func compose(a, b rune) (rune, bool) {
	var buf [2 * utf8.UTFMax]byte
	pair := utf8.AppendRune(utf8.AppendRune(buf[:0], a), b)
	var one [2 * utf8.UTFMax]byte
	made := norm.NFC.Append(one[:0], pair...)
	r, n := utf8.DecodeRune(made)
	return r, n == len(made)
}
