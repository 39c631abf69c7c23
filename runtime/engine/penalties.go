package engine

// penalties counts tokens of the recent text. Its buffers are reused.
type penalties struct {
	count []int32 // [vocab], all 0 between calls
	seen  []int32 // distinct ids of the window, in order of first sight
}

// apply lowers the logits of tokens that occur in the window:
//
//	l = l > 0 ? l/Repetition : l*Repetition
//	l = (l - Presence) - count*Frequency
func (s *penalties) apply(p *Sampling, logits []float64, history []int32) {
	rep := p.Repetition != 0 && p.Repetition != 1
	if !rep && p.Presence == 0 && p.Frequency == 0 {
		return
	}
	if p.PenaltyWindow > 0 && len(history) > p.PenaltyWindow {
		history = history[len(history)-p.PenaltyWindow:]
	}
	s.count = resize(s.count, len(logits))
	s.seen = resize(s.seen, min(cap(history), len(logits)))[:0]
	for _, id := range history {
		if s.count[id] == 0 {
			s.seen = append(s.seen, id)
		}
		s.count[id]++
	}
	for _, id := range s.seen {
		l := logits[id]
		if rep && l > 0 {
			l /= p.Repetition
		} else if rep {
			l *= p.Repetition
		}
		l -= p.Presence
		l -= float64(float64(s.count[id]) * p.Frequency)
		logits[id] = l
		s.count[id] = 0
	}
}
