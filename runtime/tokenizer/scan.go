package tokenizer

import "unicode/utf8"

// qwen2Pattern is the one pre-tokenizer of this package, as it stands in
// tokenizer.json. scanner.next matches exactly this; Go's regexp has no
// look-ahead, and a test compares the two with an engine that has.
const qwen2Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// scanner cuts valid UTF-8 into words; every byte belongs to exactly one.
type scanner struct {
	classes *[1 << 17]class
}

func newScanner() scanner { return scanner{lowPlanes()} }

// at returns the class of the character at s[i:] and its length in bytes.
// The class at the end of s is newline with length 0, which ends every run but
// one of newlines; callers of that run check the length.
func (c scanner) at(s string, i int) (class, int) {
	if i >= len(s) {
		return newline, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return c.classes[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if int(r) < len(c.classes) {
		return c.classes[r], n
	}
	return slowClass(r), n
}

// run returns the end of the characters of class k from s[i:] on.
func (c scanner) run(s string, i int, k class) int {
	for {
		got, n := c.at(s, i)
		if got != k || n == 0 {
			return i
		}
		i += n
	}
}

// next returns the end of the word that starts at s[i:]; i < len(s). The cases
// are the alternatives of qwen2Pattern, in its order.
func (c scanner) next(s string, i int) int {
	first, n := c.at(s, i)

	// (?i:'s|'t|'re|'ve|'m|'ll|'d)
	if s[i] == '\'' {
		if k := contraction(s[i+1:]); k > 0 {
			return i + 1 + k
		}
	}
	// [^\r\n\p{L}\p{N}]?\p{L}+
	if first == letter {
		return c.run(s, i+n, letter)
	}
	// \p{N}
	if first == number {
		return i + n
	}
	if first != newline {
		if second, m := c.at(s, i+n); second == letter {
			return c.run(s, i+n+m, letter)
		} else if first == other || s[i] == ' ' && second == other {
			//  ?[^\s\p{L}\p{N}]+[\r\n]*
			return c.run(s, c.run(s, i+n, other), newline)
		}
	}
	// \s*[\r\n]+|\s+(?!\S)|\s+
	return c.blank(s, i)
}

// blank ends a word of white space: after the last newline, if the run of
// white space from s[i:] has one; else before its last character, which goes
// with what follows; else, if it is alone or the text ends, after it.
func (c scanner) blank(s string, i int) int {
	end, last, afterNewline := i, i, -1
	for end < len(s) {
		k, n := c.at(s, end)
		if k != space && k != newline {
			break
		}
		last = end
		end += n
		if k == newline {
			afterNewline = end
		}
	}
	switch {
	case afterNewline >= 0:
		return afterNewline
	case end < len(s) && last > i:
		return last
	}
	return end
}

// contraction returns the length of s, t, re, ve, m, ll or d at the start of
// s, in any case, or 0. The reference folds as Unicode does, which adds the
// long s, U+017F.
func contraction(s string) int {
	if s == "" {
		return 0
	}
	second := byte(0)
	if len(s) > 1 {
		second = s[1] | 0x20
	}
	switch s[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v':
		if second == 'e' {
			return 2
		}
	case 'l':
		if second == 'l' {
			return 2
		}
	}
	if len(s) > 1 && s[:2] == "ſ" {
		return 2
	}
	return 0
}
