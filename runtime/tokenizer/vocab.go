package tokenizer

// alphabetRune maps a byte to its character of the byte-level alphabet.
var alphabetRune = func() (m [256]rune) {
	for r, b := range alphabetByte {
		if b >= 0 {
			m[b] = rune(r)
		}
	}
	return m
}()

// Vocab returns what [New] makes the same tokenizer of: the form in which GGUF
// files hold one. It copies all tokens.
func (t *Tokenizer) Vocab() Vocab {
	v := Vocab{Pre: PreQwen2, NFC: t.nfc, Tokens: make([]string, t.Len()), Merges: make([][2]string, len(t.merges)), Added: t.Added()}
	for _, a := range v.Added {
		v.Tokens[a.ID] = a.Text
	}
	var name []rune
	for id := range v.Tokens {
		if t.flags[id]&flagAdded != 0 {
			continue
		}
		name = name[:0]
		for _, b := range []byte(t.bytesOf(int32(id))) {
			name = append(name, alphabetRune[b])
		}
		v.Tokens[id] = string(name)
	}
	for i, m := range t.merges {
		v.Merges[i] = [2]string{v.Tokens[m.left], v.Tokens[m.right]}
	}
	return v
}
