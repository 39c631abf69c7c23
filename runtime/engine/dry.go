package engine

// DRY ("don't repeat yourself") lowers the logits of tokens that would
// lengthen a repetition: if the last m tokens have occurred before, the token
// that followed them there loses Multiplier * Base^(m-AllowedLength), for
// m >= AllowedLength. The idea and the parameters are p-e-w's
// (oobabooga/text-generation-webui#5677), as users of llama.cpp know them.
type DRY struct {
	Multiplier    float64 // 0 is off; 0.8 is usual
	Base          float64 // 1.75 is usual
	AllowedLength int     // repetitions shorter than this are free; 2 is usual
	Window        int     // tokens looked back; 0 means all
	Breakers      []int32 // ids that a repetition does not reach across
}

// dryMaxGrowth caps Base^(m-AllowedLength): a logit that is lower by this much
// is never chosen, and nothing becomes infinite.
const dryMaxGrowth = 1e9

// drySearch finds repetitions. Its buffers are reused.
type drySearch struct {
	z     []int32 // [window], see apply
	match []int32 // [vocab], longest repetition that the token would lengthen
	seen  []int32 // ids with match > 0

	breakers []bool // [vocab], made at the first call
}

// apply takes time linear in the window.
func (s *drySearch) apply(p *DRY, logits []float64, history []int32) {
	if p.Multiplier == 0 {
		return
	}
	if p.Window > 0 && len(history) > p.Window {
		history = history[len(history)-p.Window:]
	}
	if len(s.breakers) == 0 {
		s.breakers = resize(s.breakers, len(logits))
		clear(s.breakers)
		for _, id := range p.Breakers {
			if id >= 0 && int(id) < len(logits) {
				s.breakers[id] = true
			}
		}
	}
	n := len(history)
	limit := int32(0) // tokens at the end that hold no breaker
	for int(limit) < n && !s.breakers[history[n-1-int(limit)]] {
		limit++
	}
	if limit == 0 {
		return
	}

	// z[i] is how many tokens before and at n-1-i equal those before and at
	// n-1: the Z function of the text read backwards. left and right delimit
	// the stretch found so far that reaches farthest.
	s.z = resize(s.z, max(cap(history), n))
	s.match = resize(s.match, len(logits))
	s.seen = resize(s.seen, min(cap(history), len(logits)))[:0]
	left, right := 0, 0
	for i := 1; i < n; i++ {
		z := 0
		if i < right {
			z = min(right-i, int(s.z[i-left]))
		}
		for i+z < n && history[n-1-z] == history[n-1-i-z] {
			z++
		}
		if i+z > right {
			left, right = i, i+z
		}
		s.z[i] = int32(z)
		if m := min(int32(z), limit); m > 0 {
			next := history[n-i] // what followed the repetition
			if s.match[next] == 0 {
				s.seen = append(s.seen, next)
			}
			s.match[next] = max(s.match[next], m)
		}
	}
	for _, id := range s.seen {
		if m := int(s.match[id]); m >= p.AllowedLength {
			growth := 1.0
			for i := p.AllowedLength; i < m && growth < dryMaxGrowth; i++ {
				growth *= p.Base
			}
			logits[id] -= float64(p.Multiplier * growth)
		}
		s.match[id] = 0
	}
}
