package fetch

import "slices"

// span is the bytes from From to To (exclusive).
type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// spans are sorted and do not touch.
type spans []span

// add joins s with the spans that it overlaps or touches.
func (a spans) add(s span) spans {
	if s.From >= s.To {
		return a
	}
	i := 0
	for i < len(a) && a[i].To < s.From {
		i++
	}
	j := i
	for j < len(a) && a[j].From <= s.To {
		s.From, s.To = min(s.From, a[j].From), max(s.To, a[j].To)
		j++
	}
	return slices.Replace(a, i, j, s)
}

// total is the number of bytes in all spans.
func (a spans) total() (n int64) {
	for _, s := range a {
		n += s.To - s.From
	}
	return n
}

// missing returns what is not in a of the bytes up to size, in pieces of at
// most piece bytes. A size of -1 stands for an unknown end, and so does the
// last piece's To.
func (a spans) missing(size, piece int64) (m spans) {
	at := int64(0)
	gap := func(to int64) {
		for at < to {
			end := to
			if to-at > piece {
				end = at + piece
			}
			m = append(m, span{at, end})
			at = end
		}
	}
	for _, s := range a {
		gap(s.From)
		at = s.To
	}
	if size < 0 {
		return append(m, span{at, -1})
	}
	gap(size)
	return m
}

// valid reports whether spans from a file are sorted, apart and within size.
func (a spans) valid(size int64) bool {
	at := int64(-1)
	for _, s := range a {
		if s.From <= at || s.To <= s.From || s.To > size {
			return false
		}
		at = s.To
	}
	return true
}
