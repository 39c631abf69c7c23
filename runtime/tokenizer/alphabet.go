package tokenizer

import "unicode/utf8"

// The byte-level alphabet of GPT-2 writes each byte as one printable
// character: printable Latin-1 as itself, the other 68 bytes as U+0100 and up
// in order of their value. Space is U+0120, "Ġ".

// alphabetByte maps U+0000..U+0143 to a byte, or -1.
var alphabetByte = func() (m [0x144]int16) {
	next := 0x100
	for r := range m {
		m[r] = -1
	}
	for b := range 256 {
		if b > ' ' && b < 0x7f || b > 0xa0 && b != 0xad {
			m[b] = int16(b)
		} else {
			m[next] = int16(b)
			next++
		}
	}
	return m
}()

// appendBytes appends the bytes that name spells in the alphabet. The second
// result is the first character that does not belong to it, or -1.
func appendBytes(dst []byte, name string) ([]byte, rune) {
	for _, r := range name {
		if r == utf8.RuneError || int(r) >= len(alphabetByte) || alphabetByte[r] < 0 {
			return dst, r
		}
		dst = append(dst, byte(alphabetByte[r]))
	}
	return dst, -1
}
