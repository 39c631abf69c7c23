package engine

import "context"

// Lookup drafts without a model: it looks for the last place where the text
// read as it does at its end, and proposes what followed there. Lists, code,
// quotations and summaries repeat themselves; where nothing does it proposes
// nothing. The zero value is ready for use.
type Lookup struct{}

const (
	lookupLeast = 2  // tokens that must agree: one says too little
	lookupMost  = 24 // more say nothing new
)

// Propose implements [Drafter]. It takes time linear in the text, well under
// a microsecond for a thousand tokens.
func (Lookup) Propose(_ context.Context, dst, text []int32, n int, _ *Sampler) ([]int32, error) {
	if n == 0 || len(text) <= lookupLeast {
		return dst, nil
	}
	at, best := 0, lookupLeast-1
	last := text[len(text)-1]
	for i := len(text) - 1; i > best && best < lookupMost; i-- {
		if text[i-1] != last {
			continue
		}
		m := 1
		for m < i && m < lookupMost && text[i-1-m] == text[len(text)-1-m] {
			m++
		}
		if m > best { // of equally long ones, the last is the likeliest
			at, best = i, m
		}
	}
	if at == 0 {
		return dst, nil
	}
	from := len(dst)
	for i := range n { // past its end, a text that repeats itself goes on so
		if at+i < len(text) {
			dst = append(dst, text[at+i])
		} else {
			dst = append(dst, dst[from+at+i-len(text)])
		}
	}
	return dst, nil
}
