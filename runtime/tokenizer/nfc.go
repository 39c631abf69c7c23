package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc brings s to Unicode normal form C, as the reference has it. Text without
// combining marks, which is nearly all, comes back as it is.
//
// golang.org/x/text differs in two ways. It writes the stream-safe variant:
// after 30 marks in a row it puts a U+034F. And it knows marks that the
// reference takes for unassigned. Text with so many marks ("zalgo") or such
// marks is rare and real, so it goes another way.
func nfc(s string) string {
	switch {
	case norm.NFC.IsNormalString(s):
		return s
	case !differs(s):
		return norm.NFC.String(s)
	}
	return composeSlowly(s)
}

// unknown holds the characters whose combining class or decomposition is newer
// than Unicode 9, where the tables of the reference's normalizer end
// (tokenizers 0.23.3). To it they are letters like others.
var unknown = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x07fd, 0x07fd, 1}, {0x0898, 0x089f, 1}, {0x08ca, 0x08d3, 1}, {0x09fe, 0x09fe, 1},
		{0x0c3c, 0x0c3c, 1}, {0x0d3b, 0x0d3c, 1}, {0x0eba, 0x0eba, 1}, {0x1715, 0x1715, 1},
		{0x1abf, 0x1ace, 1}, {0x1df6, 0x1dfa, 1}, {0xa82c, 0xa82c, 1},
	},
	R32: []unicode.Range32{
		{0x10d24, 0x10d27, 1}, {0x10eab, 0x10eac, 1}, {0x10efd, 0x10eff, 1}, {0x10f46, 0x10f50, 1},
		{0x10f82, 0x10f85, 1}, {0x11070, 0x11070, 1}, {0x1133b, 0x1133b, 1}, {0x1145e, 0x1145e, 1},
		{0x11839, 0x1183a, 1}, {0x11930, 0x11930, 1}, {0x11938, 0x11938, 1}, {0x1193d, 0x1193e, 1},
		{0x11943, 0x11943, 1}, {0x119e0, 0x119e0, 1}, {0x11a34, 0x11a34, 1}, {0x11a47, 0x11a47, 1},
		{0x11a99, 0x11a99, 1}, {0x11d42, 0x11d42, 1}, {0x11d44, 0x11d45, 1}, {0x11d97, 0x11d97, 1},
		{0x11f41, 0x11f42, 1}, {0x16ff0, 0x16ff1, 1}, {0x1e08f, 0x1e08f, 1}, {0x1e130, 0x1e136, 1},
		{0x1e2ae, 0x1e2ae, 1}, {0x1e2ec, 0x1e2ef, 1}, {0x1e4ec, 0x1e4ef, 1},
	},
}

// differs reports whether x/text's result may not be the reference's: s holds
// an unknown character, or over 30 combining marks in a row. No character
// decomposes into more than three of them, so it looks for ten characters in a
// row that are or end in one.
func differs(s string) bool {
	run := 0
	for i, r := range s {
		if r < utf8.RuneSelf {
			run = 0
			continue
		}
		if unicode.Is(unknown, r) {
			return true
		}
		if run++; norm.NFD.PropertiesString(s[i:]).TrailCCC() == 0 {
			run = 0
		}
		if run == 10 {
			return true
		}
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
	for _, r := range s {
		if unicode.Is(unknown, r) {
			chars = append(chars, char{r, 0})
			continue
		}
		buf = norm.NFD.Append(buf[:0], utf8.AppendRune(nil, r)...)
		for k := 0; k < len(buf); {
			r, n := utf8.DecodeRune(buf[k:])
			chars = append(chars, char{r, norm.NFD.Properties(buf[k:]).CCC()})
			k += n
		}
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
	if unicode.Is(unknown, b) {
		return 0, false
	}
	var buf [2 * utf8.UTFMax]byte
	pair := utf8.AppendRune(utf8.AppendRune(buf[:0], a), b)
	var one [2 * utf8.UTFMax]byte
	made := norm.NFC.Append(one[:0], pair...)
	r, n := utf8.DecodeRune(made)
	return r, n == len(made)
}
