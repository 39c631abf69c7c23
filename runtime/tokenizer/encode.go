package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Piece is a stretch of a prompt. In markup, which the chat template wrote,
// added tokens are recognised. Other pieces are contents, which users, files
// and models wrote: whatever they hold stays text, so that nobody can forge
// the end of a turn by typing it.
type Piece struct {
	Text   string
	Markup bool
}

// Encode appends the ids of text to dst, with added tokens recognised.
func (t *Tokenizer) Encode(dst []int32, text string) []int32 {
	return t.EncodePieces(dst, []Piece{{text, true}})
}

// EncodeLiteral appends the ids of text to dst; no added token is recognised.
func (t *Tokenizer) EncodeLiteral(dst []int32, text string) []int32 {
	return t.EncodePieces(dst, []Piece{{text, false}})
}

// EncodePieces appends the ids of all pieces to dst. Between two added tokens
// the pieces are one text: normalization, words and merges go across their
// borders, as they would if the reference read the whole prompt. An added
// token is recognised only if all of it lies in neighbouring markup pieces.
func (t *Tokenizer) EncodePieces(dst []int32, pieces []Piece) []int32 {
	s := t.pool.Get().(*scratch)
	s.text = s.text[:0]
	for i := 0; i < len(pieces); {
		markup, n := pieces[i].Markup, 1
		for i+n < len(pieces) && pieces[i+n].Markup == markup {
			n++
		}
		text := join(pieces[i : i+n])
		i += n
		for markup {
			start, end, id := t.marks.find(text)
			if id < 0 {
				break
			}
			dst = t.appendText(dst, text[:start], s)
			dst = append(dst, id)
			text = text[end:]
		}
		if i == len(pieces) { // nothing follows: no need to gather
			dst = t.appendText(dst, text, s)
		} else {
			s.text = append(s.text, text...)
		}
	}
	if !s.oversize() {
		t.pool.Put(s)
	}
	return dst
}

// appendText appends the ids of the gathered text and the text that follows
// it, up to an added token or the end.
func (t *Tokenizer) appendText(dst []int32, text string, s *scratch) []int32 {
	if len(s.text) > 0 {
		text = string(append(s.text, text...))
		s.text = s.text[:0]
	}
	if t.nfc {
		text = nfc(text)
	}
	scan := newScanner()
	for i := 0; i < len(text); {
		end := scan.next(text, i)
		dst = t.appendWord(dst, text[i:end], s)
		i = end
	}
	return dst
}

// join returns the text of all pieces, each made valid by itself.
func join(pieces []Piece) string {
	if len(pieces) == 1 {
		return validText(pieces[0].Text)
	}
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(validText(p.Text))
	}
	return b.String()
}

// validText returns text with U+FFFD for each maximal broken sequence.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string(appendValid(make([]byte, 0, len(text)+len(text)/2), text))
}
