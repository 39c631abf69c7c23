package engine

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"

	"npack/runtime/backend"
)

// Sampling says how the next token is chosen from the logits. The zero value
// is greedy choice without penalties. The steps are taken in the order of the
// fields; see the package documentation for their arithmetic.
type Sampling struct {
	// Penalties look at the last PenaltyWindow tokens of prompt and answer
	// together; 0 means all of them.
	PenaltyWindow int
	Repetition    float64 // positive logits are divided by it, others multiplied; 0 and 1 are off
	Presence      float64 // subtracted once for a token that occurs
	Frequency     float64 // subtracted once for each time it occurs

	DRY DRY

	Temperature float64 // 0 means greedy: the smallest id among the largest logits
	TopK        int     // keep the k likeliest; 0 is off
	TopP        float64 // keep the likeliest that together reach p; 0 and 1 are off
	MinP        float64 // keep those at least p times as likely as the likeliest; 0 is off
	Seed        uint64
}

// Validate refuses settings that have no meaning, by name.
func (p *Sampling) Validate() error {
	for _, f := range []struct {
		name   string
		v      float64
		lo, hi float64
	}{
		{"repetition penalty", p.Repetition, 0, 100},
		{"presence penalty", p.Presence, -100, 100},
		{"frequency penalty", p.Frequency, -100, 100},
		{"dry multiplier", p.DRY.Multiplier, 0, 100},
		{"dry base", p.DRY.Base, 0, 100},
		{"temperature", p.Temperature, 0, 100},
		{"top-p", p.TopP, 0, 1},
		{"min-p", p.MinP, 0, 1},
	} {
		if !(f.v >= f.lo && f.v <= f.hi) { // also NaN
			return fmt.Errorf("%s %v is outside %v to %v", f.name, f.v, f.lo, f.hi)
		}
	}
	for _, f := range []struct {
		name string
		v    int
	}{
		{"penalty window", p.PenaltyWindow}, {"top-k", p.TopK},
		{"dry window", p.DRY.Window}, {"dry allowed length", p.DRY.AllowedLength},
	} {
		if f.v < 0 {
			return fmt.Errorf("%s %d is negative", f.name, f.v)
		}
	}
	if p.DRY.Multiplier > 0 && p.DRY.Base < 1 {
		return fmt.Errorf("dry base %v is below 1", p.DRY.Base)
	}
	if p.Temperature > 0 && p.Temperature < 1e-6 {
		return fmt.Errorf("temperature %v is too small: use 0 for greedy choice", p.Temperature)
	}
	return nil
}

// penalised is whether logits have to be changed before the choice.
func (p *Sampling) penalised() bool {
	return p.Repetition != 0 && p.Repetition != 1 || p.Presence != 0 || p.Frequency != 0 || p.DRY.Multiplier > 0
}

// ranks is how many of the tokens that rank first decide the choice, for a
// vocabulary of so many: 0 if it is not the first few alone.
func (p *Sampling) ranks(vocab int) int {
	switch {
	case p.penalised():
		return 0
	case p.Temperature == 0:
		return 1
	case p.TopK > 0 && p.TopK <= backend.MaxRanked:
		return min(p.TopK, vocab)
	}
	return 0
}

// weightBits is the number of binary places of a token's weight: the largest
// vocabulary, 2^24 tokens, with weight 1 each still sums to 2^63.
const weightBits = 39

// weightZero is an argument of exp whose weight rounds to 0: ln(2^-40) is -27.73.
const weightZero = -27.8

// candidate is a token that may be drawn.
type candidate struct {
	logit  float64
	weight uint64 // exp((logit-max)/temperature) in units of 2^-weightBits
	id     int32
}

// before is the rank order: larger logits first, among equals smaller ids.
func (a candidate) before(b candidate) bool {
	return a.logit > b.logit || a.logit == b.logit && a.id < b.id
}

// Sampler chooses tokens. It keeps its buffers between calls, so that a choice
// allocates nothing. It is for one text at a time.
type Sampler struct {
	p      Sampling
	rng    rand.PCG
	logits []float64   // [vocab], after penalties
	cand   []candidate // tokens that may still be drawn
	pen    penalties
	dry    drySearch
}

// NewSampler returns a sampler at the start of its seed's sequence. It refuses
// settings that have no meaning.
func NewSampler(p Sampling) (*Sampler, error) {
	s := &Sampler{}
	return s, s.Reset(p)
}

// Reset makes s as new with settings p, but keeps its buffers.
func (s *Sampler) Reset(p Sampling) error {
	if err := p.Validate(); err != nil {
		return err
	}
	s.p = p
	s.rng.Seed(p.Seed, 0)
	s.dry.breakers = s.dry.breakers[:0]
	return nil
}

// Next chooses a token from logits, all of which are finite; history is the
// text so far, prompt and answer. The logits are not changed. With a
// temperature above 0 it takes exactly one number from the generator.
func (s *Sampler) Next(logits []float32, history []int32) int32 {
	if !s.p.penalised() && s.p.Temperature == 0 {
		return Greedy(logits)
	}
	s.logits = resize(s.logits, len(logits))
	for i, l := range logits {
		s.logits[i] = float64(l)
	}
	s.pen.apply(&s.p, s.logits, history)
	s.dry.apply(&s.p.DRY, s.logits, history)
	if s.p.Temperature == 0 {
		return largest(s.logits)
	}
	s.weigh()
	return s.draw(s.rng.Uint64())
}

// choose is Next for a row that suits s.
func (s *Sampler) choose(r row, history []int32) int32 {
	switch {
	case r.best == nil:
		return s.Next(r.logits, history)
	case s.p.Temperature == 0:
		return r.best[0].ID
	}
	s.cand = resize(s.cand, len(r.best))
	for i, b := range r.best {
		s.cand[i] = candidate{logit: float64(b.Logit), id: b.ID}
	}
	s.temper(s.cand[0].logit)
	return s.draw(s.rng.Uint64())
}

// weigh fills cand with the tokens of weight above 0, after temperature and
// top-k, as a heap whose first element ranks first.
func (s *Sampler) weigh() {
	top := s.logits[largest(s.logits)]
	if k := s.p.TopK; k > 0 && k < len(s.logits) {
		s.cand = selectTop(resize(s.cand, k)[:0], s.logits, k)
	} else {
		s.cand = resize(s.cand, len(s.logits))[:0]
		floor := top + float64(weightZero*s.p.Temperature)
		for id, l := range s.logits {
			if l >= floor {
				s.cand = append(s.cand, candidate{logit: l, id: int32(id)})
			}
		}
	}
	s.temper(top)
}

// temper gives the candidates, whose first logit is top, their weights and
// leaves those of weight above 0, as a heap.
func (s *Sampler) temper(top float64) {
	n := 0
	for _, c := range s.cand {
		e := exp((c.logit - top) / s.p.Temperature)
		c.weight = uint64(math.RoundToEven(e * (1 << weightBits)))
		if c.weight > 0 {
			s.cand[n] = c
			n++
		}
	}
	s.cand = s.cand[:n]
	heapify(s.cand)
}

// draw cuts the candidates by top-p and min-p and chooses one of those left by
// the random number u: the one in which the point u/2^64 of the way through
// their weights, in rank order, lies. Candidates leave the heap only as far as
// needed, so a peaked distribution over a large vocabulary costs little.
func (s *Sampler) draw(u uint64) int32 {
	heap, total := s.cand, sum(s.cand)
	ranked := func(i int) candidate { return s.cand[len(s.cand)-1-i] } // pop leaves them there
	if s.p.TopP > 0 && s.p.TopP < 1 || s.p.MinP > 0 {
		need := math.Inf(1)
		if s.p.TopP > 0 && s.p.TopP < 1 {
			need = s.p.TopP * float64(total)
		}
		least := s.p.MinP * float64(heap[0].weight)
		total = 0
		for len(heap) > 0 && float64(total) < need && float64(heap[0].weight) >= least {
			total += heap[0].weight
			heap = pop(heap)
		}
	}
	left, _ := bits.Mul64(u, total) // floor(u/2^64 * total)
	for i := 0; ; i++ {
		if i == len(s.cand)-len(heap) {
			heap = pop(heap)
		}
		c := ranked(i)
		if left < c.weight {
			return c.id
		}
		left -= c.weight
	}
}

func sum(cand []candidate) uint64 {
	var n uint64
	for _, c := range cand {
		n += c.weight
	}
	return n
}

// Greedy returns the smallest id among the largest logits.
func Greedy(logits []float32) int32 { return largest(logits) }

func largest[F float32 | float64](logits []F) int32 {
	best, max := 0, logits[0]
	for i, l := range logits {
		if l > max {
			best, max = i, l
		}
	}
	return int32(best)
}

// Margin returns the greedy choice and by how much its logit exceeds the
// second largest: 0 for a tie, +Inf for a vocabulary of one. The difference is
// taken in float64, where it is exact for all logits within 2^29 of each other.
func Margin(logits []float32) (id int32, margin float64) {
	best := largest(logits)
	second := math.Inf(-1)
	for i, l := range logits {
		if v := float64(l); v > second && i != int(best) {
			second = v
		}
	}
	return best, float64(logits[best]) - second
}

// resize returns b with length n, in new memory only if it has to grow.
func resize[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n)
	}
	return b[:n]
}
