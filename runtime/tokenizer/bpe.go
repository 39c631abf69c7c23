package tokenizer

import "sync/atomic"

// shortWord is the length in bytes up to which a word is merged by looking for
// the lowest rank each time. That is quadratic, and faster than a heap for
// nearly every word of every language. Longer words take the heap, so that a
// megabyte without a space costs n log n.
const shortWord = 32

// scratch is what one call of Encode works in; calls share them by a pool.
type scratch struct {
	text  []byte    // text between two added tokens, gathered from pieces
	ids   []int32   // long words: symbols, by the index of their first byte
	pairs []mergeTo // long words: of symbol i with its right neighbour
	next  []int32   // long words: index of the right neighbour, len(ids) at the end
	prev  []int32   // long words: index of the left neighbour, -1 at the start
	heap  []uint64  // long words: rank<<32 | index, smallest first
	steps int       // entries taken off the heap, counted for a test of the bound
}

// maxKept is the capacity, in elements, above which scratch is not kept.
const maxKept = 1 << 16

func (s *scratch) oversize() bool {
	return cap(s.ids) > maxKept || cap(s.heap) > maxKept || cap(s.text) > 16*maxKept
}

// appendWord appends the tokens of one word of the pre-tokenizer.
func (t *Tokenizer) appendWord(dst []int32, word string, s *scratch) []int32 {
	if len(word) == 1 {
		return append(dst, t.byteID[word[0]])
	}
	id, found := t.names.find(t, word)
	if found {
		switch t.wholeWord(id) {
		case wholeYes:
			return append(dst, id)
		case wholeNo:
			found = false
		}
	}
	start := len(dst)
	if len(word) <= shortWord {
		dst = t.mergeShort(dst, word)
	} else {
		dst = t.mergeLong(dst, word, s)
	}
	if found {
		t.noteWhole(id, len(dst) == start+1 && dst[start] == id)
	}
	return dst
}

// Most words are one token. Whether the merges of a token's bytes lead to that
// token, which no rule of the format promises, is found out by merging when
// the word is first met, and remembered: two bits for each id.
const (
	wholeUnknown = 0
	wholeYes     = 1
	wholeNo      = 2
)

func (t *Tokenizer) wholeWord(id int32) uint32 {
	return atomic.LoadUint32(&t.whole[id/16]) >> (id % 16 * 2) & 3
}

func (t *Tokenizer) noteWhole(id int32, yes bool) {
	bit := uint32(wholeNo)
	if yes {
		bit = wholeYes
	}
	atomic.OrUint32(&t.whole[id/16], bit<<(id%16*2))
}

// mergeShort is the definition: again and again the leftmost of the pairs with
// the lowest rank becomes one symbol.
func (t *Tokenizer) mergeShort(dst []int32, word string) []int32 {
	start := len(dst)
	for i := range len(word) {
		dst = append(dst, t.byteID[word[i]])
	}
	ids := dst[start:]
	var buf [shortWord]mergeTo
	pairs := buf[:len(ids)-1] // of each symbol with its right neighbour
	for i := range pairs {
		pairs[i] = t.pairs.find(ids[i], ids[i+1])
	}
	for {
		best, at := noMerge, 0
		for i, p := range pairs {
			if p < best {
				best, at = p, i
			}
		}
		if best == noMerge {
			return dst[:start+len(ids)]
		}
		ids[at] = best.result()
		ids = append(ids[:at+1], ids[at+2:]...)
		pairs = append(pairs[:at], pairs[at+1:]...)
		if at > 0 {
			pairs[at-1] = t.pairs.find(ids[at-1], ids[at])
		}
		if at < len(pairs) {
			pairs[at] = t.pairs.find(ids[at], ids[at+1])
		}
	}
}

// mergeLong gives what mergeShort gives, with a heap of candidate pairs. An
// entry whose rank is no longer the one of its place is stale and skipped.
func (t *Tokenizer) mergeLong(dst []int32, word string, s *scratch) []int32 {
	n := len(word)
	s.ids, s.next, s.prev, s.pairs = grow(s.ids, n), grow(s.next, n), grow(s.prev, n), grow(s.pairs, n)
	s.heap = grow(s.heap, n)[:0]
	for i := range n {
		s.ids[i] = t.byteID[word[i]]
		s.next[i], s.prev[i] = int32(i+1), int32(i-1)
	}
	for i := range int32(n) {
		t.pairUp(s, i)
	}
	for len(s.heap) > 0 {
		rank, i := uint32(s.heap[0]>>32), int32(uint32(s.heap[0]))
		s.pop()
		s.steps++
		if s.pairs[i].rank() != rank {
			continue
		}
		s.ids[i] = s.pairs[i].result()
		j := s.next[i]
		s.pairs[j] = noMerge // symbol j is gone; its entries are stale
		s.next[i] = s.next[j]
		if k := s.next[i]; int(k) < n {
			s.prev[k] = i
		}
		t.pairUp(s, i)
		if p := s.prev[i]; p >= 0 {
			t.pairUp(s, p)
		}
	}
	for i := int32(0); int(i) < n; i = s.next[i] {
		dst = append(dst, s.ids[i])
	}
	return dst
}

// pairUp notes the merge of symbol i with its right neighbour, if any.
func (t *Tokenizer) pairUp(s *scratch, i int32) {
	s.pairs[i] = noMerge
	if j := s.next[i]; int(j) < len(s.ids) {
		s.pairs[i] = t.pairs.find(s.ids[i], s.ids[j])
	}
	if s.pairs[i] != noMerge {
		s.push(uint64(s.pairs[i].rank())<<32 | uint64(i))
	}
}

func grow[E any](b []E, n int) []E {
	if cap(b) < n {
		return make([]E, n)
	}
	return b[:n]
}

// push and pop are container/heap on plain numbers, without its interface
// call for each comparison.
func (s *scratch) push(x uint64) {
	s.heap = append(s.heap, x)
	h, i := s.heap, len(s.heap)-1
	for i > 0 {
		up := (i - 1) / 2
		if h[up] <= x {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = x
}

func (s *scratch) pop() {
	last := len(s.heap) - 1
	x := s.heap[last]
	s.heap = s.heap[:last]
	h, i := s.heap, 0
	for {
		kid := 2*i + 1
		if kid >= last {
			break
		}
		if kid+1 < last && h[kid+1] < h[kid] {
			kid++
		}
		if h[kid] >= x {
			break
		}
		h[i] = h[kid]
		i = kid
	}
	if last > 0 {
		h[i] = x
	}
}
