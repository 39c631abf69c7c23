package tokenizer

import (
	"slices"
	"strings"
)

// markSet finds added tokens in text: leftmost, then longest.
type markSet struct {
	texts []string // sorted
	ids   []int32  // of texts
	first [256]bool
}

func newMarkSet(texts []string, added []addedToken) markSet {
	var m markSet
	order := make([]int, len(texts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(texts[a], texts[b]) })
	for _, i := range order {
		m.texts = append(m.texts, texts[i])
		m.ids = append(m.ids, added[i].id)
		m.first[texts[i][0]] = true
	}
	return m
}

// find returns the first added token in s as s[start:end], or id -1.
func (m *markSet) find(s string) (start, end int, id int32) {
	for i := range len(s) {
		if m.first[s[i]] {
			if n, id := m.longest(s[i:]); id >= 0 {
				return i, i + n, id
			}
		}
	}
	return 0, 0, -1
}

// longest returns the longest added token that s starts with, or id -1. It
// narrows the sorted texts byte by byte to those that share s's start.
func (m *markSet) longest(s string) (n int, id int32) {
	id = -1
	lo, hi := 0, len(m.texts)
	for k := 0; lo < hi; k++ {
		if len(m.texts[lo]) == k { // the shortest of a common start sorts first
			n, id = k, m.ids[lo]
			lo++
		}
		if k == len(s) {
			break
		}
		c := s[k]
		lo += skip(m.texts[lo:hi], func(t string) bool { return t[k] < c })
		hi = lo + skip(m.texts[lo:hi], func(t string) bool { return t[k] <= c })
	}
	return n, id
}

// skip returns how many texts at the start fulfil before.
func skip(texts []string, before func(string) bool) int {
	n, _ := slices.BinarySearchFunc(texts, true, func(t string, _ bool) int {
		if before(t) {
			return -1
		}
		return 1
	})
	return n
}
