package engine

import "bytes"

// stopper finds stop strings in text that arrives in pieces, and holds back
// every tail that could begin one, so that no part of a stop string is let out.
//
// The string that is complete first ends the text; of several that are
// complete at the same byte, the longest. So the result does not depend on how
// the text is cut into pieces.
type stopper struct {
	stops   [][]byte
	longest int    // bytes
	buf     []byte // text held back, then the piece that came last
	out     int    // bytes at the front of buf that were let out
}

func newStopper(stops []string) *stopper {
	s := &stopper{}
	for _, t := range stops {
		s.stops = append(s.stops, []byte(t))
		s.longest = max(s.longest, len(t))
	}
	return s
}

// next adds a piece and returns the text that can be let out, valid until the
// next call, and the index of the stop string that was found or -1. Once one
// was found, the text before it has been returned and the rest is dropped.
func (s *stopper) next(piece []byte) (text []byte, found int) {
	s.buf = append(s.buf[:copy(s.buf, s.buf[s.out:])], piece...)
	s.out = 0
	found, begin, end := -1, 0, len(s.buf)+1
	for i, stop := range s.stops {
		if at := bytes.Index(s.buf, stop); at >= 0 {
			if e := at + len(stop); e < end || e == end && at < begin {
				found, begin, end = i, at, e
			}
		}
	}
	if found >= 0 {
		s.out = len(s.buf)
		return s.buf[:begin], found
	}
	s.out = len(s.buf) - s.held()
	return s.buf[:s.out], -1
}

// flush returns the text that is still held back: the end has come, so it does
// not begin a stop string after all.
func (s *stopper) flush() []byte {
	text := s.buf[s.out:]
	s.out = len(s.buf)
	return text
}

// held is the length of the longest tail of buf that begins a stop string.
func (s *stopper) held() int {
	for n := min(s.longest-1, len(s.buf)); n > 0; n-- {
		tail := s.buf[len(s.buf)-n:]
		for _, stop := range s.stops {
			if bytes.HasPrefix(stop, tail) {
				return n
			}
		}
	}
	return 0
}
