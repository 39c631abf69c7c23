package engine

import (
	"math/rand/v2"
	"testing"
	"time"
)

// pair is a model and its draft as the controller sees them: what they cost, in
// milliseconds, and how likely the drafted token at each position is right.
type pair struct {
	pass   func(n int) float64 // with n drafted tokens
	draft  float64             // a drafted token
	lag    float64             // the draft's reading of a token that it missed
	accept func(token, position int) float64
	noise  float64 // one measurement in ten is so many times too long
}

// decode makes tokens with the controller, or with a fixed length, and returns
// the time that it takes in milliseconds.
func (m *pair) decode(tokens, fixed int, seed uint64) (ms float64, passes int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	spend := func(cost float64) time.Duration {
		ms += cost
		if m.noise > 0 && rng.IntN(10) == 0 {
			cost *= m.noise
		}
		return time.Duration(cost * float64(time.Millisecond))
	}
	p := pace{}
	p.begin()
	missed := 0
	for done := 0; done < tokens; passes++ {
		n := fixed
		if n < 0 {
			n = p.length(min(MaxDraft, tokens-done-1))
		}
		c := cycle{drafted: n}
		if n > 0 {
			c.draft = spend(m.draft*float64(n) + m.lag*float64(min(missed, draftTail)))
			missed = 0
		}
		c.pass = spend(m.pass(n))
		for c.judged < n {
			c.judged++
			if rng.Float64() >= m.accept(done+c.accepted, c.judged-1) {
				break
			}
			c.accepted++
		}
		if n == 0 {
			missed++
		}
		done += c.accepted + 1
		p.record(&c)
	}
	return ms, passes
}

func always(p float64) func(int, int) float64 { return func(int, int) float64 { return p } }

// pairs are models and drafts of different kinds.
var pairs = []struct {
	name string
	pair
}{
	{"memory bound", pair{pass: func(n int) float64 { return 100 + 2*float64(n) }, draft: 12, lag: 1}},
	{"8B and 0.6B", pair{pass: func(n int) float64 { return 100 + 8*float64(n) }, draft: 8, lag: 3}},
	{"lookup", pair{pass: func(n int) float64 { return 100 + 8*float64(n) }, draft: 0.01}},
	{"a step in the cost", pair{pass: func(n int) float64 { return []float64{100, 105, 160, 162, 164, 166, 168, 170}[n] }, draft: 5, lag: 1}},
	{"dear draft", pair{pass: func(n int) float64 { return 100 + 25*float64(n) }, draft: 35, lag: 20}},
	{"bound by arithmetic", pair{pass: func(n int) float64 { return 100 + 80*float64(n) }, draft: 30, lag: 25}},
}

// speed is the controller's in plain decoding's, over some runs.
func (m *pair) speed(tokens, fixed int) float64 {
	const runs = 20
	total := 0.0
	for seed := range uint64(runs) {
		ms, _ := m.decode(tokens, fixed, seed)
		total += ms
	}
	return float64(tokens) * m.pass(0) * runs / total
}

// TestPace: whatever a draft is worth, the controller is near the best fixed
// length, which it does not know, and where none pays within 0.97 of plain.
func TestPace(t *testing.T) {
	for _, m := range pairs {
		for _, p := range []float64{0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1} {
			m.accept = always(p)
			best, length := 1.0, 0
			for n := 1; n <= MaxDraft; n++ {
				if s := m.speed(1024, n); s > best {
					best, length = s, n
				}
			}
			long, short := m.speed(1024, -1), m.speed(256, -1)
			t.Logf("%s, accepted %.1f: %.3f times plain, in the first 256 tokens %.3f; at the best length, %d, %.3f", m.name, p, long, short, length, best)
			if long < 0.92*best || long < 0.97 || short < 0.97 {
				t.Errorf("%s, accepted %.1f: %.3f and %.3f times plain, the best length, %d, gives %.3f", m.name, p, long, short, length, best)
			}
		}
	}
}

// TestPaceDisturbed: the same where one measurement in ten is five times too
// long, with a margin for what cannot be known then.
func TestPaceDisturbed(t *testing.T) {
	for _, m := range pairs {
		m.noise = 5
		for _, p := range []float64{0, 0.5, 0.9} {
			m.accept = always(p)
			if s := m.speed(1024, -1); s < 0.9 {
				t.Errorf("%s, accepted %.1f: %.3f times plain", m.name, p, s)
			}
		}
	}
}

// TestPaceReturns: a draft that was useless for a long time is tried again, and
// used once it is right.
func TestPaceReturns(t *testing.T) {
	for _, m := range pairs[:4] {
		m.accept = func(token, _ int) float64 {
			if token < 400 {
				return 0
			}
			return 0.9
		}
		if s, plain := m.speed(1600, -1), m.speed(1600, 0); s < 1.4*plain {
			t.Errorf("%s: %.3f times plain, with 3/4 of the text drafted well", m.name, s)
		}
		m.accept = func(token, _ int) float64 {
			if token < 400 {
				return 0.9
			}
			return 0
		}
		if s := m.speed(1600, -1); s < 1.05 {
			t.Errorf("%s: %.3f times plain, with 1/4 of the text drafted well", m.name, s)
		}
	}
}

// TestPaceRests: rests double up to their limit, and an answer that drafting
// helped makes the next rest short.
func TestPaceRests(t *testing.T) {
	p := pace{}
	p.begin()
	step := func(accept bool) (n int) {
		n = p.length(MaxDraft)
		c := cycle{drafted: n, judged: min(n, 1), draft: time.Duration(n), pass: time.Duration(100+5*n) * time.Microsecond}
		if accept {
			c.judged, c.accepted = n, n
		}
		p.record(&c)
		return n
	}
	var rests []int
	for rest, steps := 0, 0; len(rests) < 9; steps++ {
		if steps > 10000 {
			t.Fatalf("rests %v", rests)
		}
		if step(false) == 0 {
			rest++
			continue
		}
		if rest > 3 {
			rests = append(rests, rest)
		}
		rest = 0
	}
	for i, want := range []int{16, 32, 64, 128, 256, 512, 1024, 1024, 1024} {
		if rests[i] < want || rests[i] > want+2 {
			t.Fatalf("rests %v", rests)
		}
	}
	for range 300 {
		step(true)
	}
	rest := 0
	for range 200 {
		if step(false) == 0 {
			rest++
		} else if rest > 3 {
			break
		}
	}
	if rest < paceRest || rest > paceRest+2 {
		t.Errorf("a rest of %d passes after a useful stretch", rest)
	}
}
