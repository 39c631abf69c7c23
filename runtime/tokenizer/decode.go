package tokenizer

import "unicode/utf8"

// AppendToken appends the bytes that id stands for, control token or not; they
// need not be whole characters. An id that stands for nothing appends nothing.
func (t *Tokenizer) AppendToken(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(t.ends) {
		return dst
	}
	return append(dst, t.bytesOf(id)...)
}

// Decode returns the text of ids, always valid UTF-8: each maximal sequence of
// bytes that is not UTF-8 becomes U+FFFD. Control tokens are left out unless
// showControl is set; they do not end a character that is being put together.
func (t *Tokenizer) Decode(ids []int32, showControl bool) string {
	s := t.NewStream(showControl)
	var dst []byte
	for _, id := range ids {
		dst = s.Append(dst, id)
	}
	return string(s.Flush(dst))
}

// Stream turns tokens into text as they come. It gives out whole characters
// only and holds back at most three bytes. All that it gave out after Flush
// is, byte for byte, what [Tokenizer.Decode] returns for the same tokens.
// A Stream is for one goroutine.
type Stream struct {
	t           *Tokenizer
	showControl bool
	tail        [utf8.UTFMax - 1]byte // start of a character
	held        int                   // bytes in tail
}

// NewStream returns a stream that shows control tokens or leaves them out.
func (t *Tokenizer) NewStream(showControl bool) *Stream {
	return &Stream{t: t, showControl: showControl}
}

// Append appends to dst the characters that id completes, if any.
func (s *Stream) Append(dst []byte, id int32) []byte {
	token, control := s.t.Token(id)
	if control && !s.showControl {
		return dst
	}
	// A held tail and the first bytes of the token may be a character.
	for s.held > 0 && token != "" {
		var buf [utf8.UTFMax]byte
		n := copy(buf[:], s.tail[:s.held])
		buf[n] = token[0]
		switch joined := buf[:n+1]; {
		case !utf8.FullRune(joined): // still incomplete
			s.tail[s.held] = token[0]
			s.held++
			token = token[1:]
		case utf8.Valid(joined):
			dst = append(dst, joined...)
			s.held = 0
			token = token[1:]
		default: // the tail was broken; the token starts anew
			dst = s.Flush(dst)
		}
	}
	if token == "" {
		return dst
	}
	cut := len(token) - tailLen(token)
	dst = appendValid(dst, token[:cut])
	s.held = copy(s.tail[:], token[cut:])
	return dst
}

// Flush appends U+FFFD if the start of a character is held back, which then
// never came to its end, and makes the stream ready for another text.
func (s *Stream) Flush(dst []byte) []byte {
	if s.held > 0 {
		s.held = 0
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	return dst
}

// tailLen returns how many bytes at the end of s are the start of a character
// that could be completed: 0 to 3.
func tailLen(s string) int {
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		if utf8.RuneStart(s[len(s)-n]) {
			if utf8.FullRuneInString(s[len(s)-n:]) {
				return 0
			}
			return n
		}
	}
	return 0
}

// appendValid appends s with U+FFFD for each maximal subpart of an ill-formed
// sequence, as Unicode recommends (section 3.9) and Rust and Python do. Go's
// own functions give one U+FFFD for each byte, or one for the whole stretch.
func appendValid(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			dst = append(dst, s[i])
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r != utf8.RuneError || n > 1 {
			dst = append(dst, s[i:i+n]...)
			i += n
			continue
		}
		for n < len(s)-i && !utf8.FullRuneInString(s[i:i+n+1]) {
			n++
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		i += n
	}
	return dst
}
