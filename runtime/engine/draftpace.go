package engine

import (
	"math"
	"slices"
	"time"
)

// pace decides how many tokens to draft. It knows two things, both measured in
// the course of decoding: what a pass of each length and a drafted token cost,
// and how likely the i-th drafted token is accepted after those before it.
//
// A cycle with n drafted tokens makes, with acceptance a, on average
//
//	E(n) = 1 + a1 + a1*a2 + ... + a1*...*an
//
// tokens and costs draft*n + pass(n); a plain pass makes one and costs pass(0).
// The length is the n of the largest ratio of the two. Where none is better than
// plain, drafting rests, and is tried again after a while that doubles with
// every trial that fails.
//
// Trials cost time, too, and a model that drafts has to read what came up while
// it rested. So there is an account of what drafting has lost against plain
// passes, and no trial unless that stays within paceLoss of all time, beside the
// first passes, which are needed to know anything.
type pace struct {
	pass  [MaxDraft + 1]cost // of the model, by drafted tokens
	draft cost               // of a drafted token
	token time.Duration      // the same, the last time, with what was read before

	hit, tried [MaxDraft]float64 // accepted and judged by position, recent ones count more

	rest  int  // passes until the next trial
	wait  int  // length of the next rest
	probe int  // cycles of a trial that are drafted whatever they promise
	woken bool // the next draft reads more than the last tokens

	all    time.Duration // time of all cycles
	lost   time.Duration // of that, more than plain passes would have taken; negative: saved
	before time.Duration // lost when the stretch of drafting began
	trial  time.Duration // what a trial is expected to lose
	plain  int           // passes since one without draft was measured
}

const (
	paceFade   = 0.95    // a pass's weight in the acceptance, against the next one's
	paceLoss   = 0.012   // part of the time that trials may cost
	paceGrant  = 2       // plain passes that they may cost beside that
	paceRest   = 16      // passes of the first rest
	paceRests  = 1024    // and of the longest
	paceProbes = 2       // cycles of a trial
	paceStale  = 64      // passes after which a cost is measured anew
	pacePrior  = 0.7     // acceptance before anything is known
	paceSlope  = 1. / 16 // what a column adds to a pass, before anything is known
)

// cycle is one pass and the draft before it.
type cycle struct {
	drafted, judged, accepted int
	draft, pass               time.Duration
}

// cost is the median of the last measurements: now and then another process
// takes a processor away, and one such time must decide nothing.
type cost struct {
	last [5]time.Duration
	n    int // measurements
	age  int // passes since the last one
}

func (c *cost) add(d time.Duration) {
	c.last[c.n%len(c.last)] = max(d, 1)
	c.n++
	c.age = 0
}

// median is 0 if there is no measurement.
func (c *cost) median() float64 {
	if c.n == 0 {
		return 0
	}
	l := c.last
	m := l[:min(c.n, len(l))]
	slices.Sort(m)
	return float64(m[(len(m)-1)/2])
}

// begin starts an answer. What is known stays.
func (p *pace) begin() {
	p.woken = true
	if p.wait == 0 {
		p.wait = paceRest
	}
}

func (p *pace) resting() bool { return p.rest > 0 }

// length returns how many tokens to draft, at most room.
func (p *pace) length(room int) int {
	if room <= 0 || p.pass[0].n < 3 || p.plain >= paceStale {
		return 0
	}
	if p.rest > 0 {
		if p.rest--; p.rest > 0 || !p.affordable() {
			p.rest = max(p.rest, 1)
			return 0
		}
		p.wake()
	}
	if p.draft.n == 0 {
		room = min(room, 1) // before anything is known of what it costs
	}
	n := p.best(room)
	switch {
	case n > 0:
		return n
	case p.probe > 0:
		return 1
	}
	p.sleep()
	return 0
}

func (p *pace) affordable() bool {
	trial := float64(p.trial)
	if trial == 0 { // reading a token costs no more than drafting one
		trial = float64(min(p.wait, draftTail)) * float64(p.token)
	}
	return float64(p.lost)+trial <= float64(paceLoss*float64(p.all))+float64(paceGrant*p.cost(0))
}

// wake begins a trial. What was seen long ago says little about the text here.
func (p *pace) wake() {
	for i := range p.tried {
		p.hit[i] /= 4
		p.tried[i] /= 4
	}
	p.probe, p.woken, p.before = paceProbes, true, p.lost
}

// sleep ends a stretch of drafting.
func (p *pace) sleep() {
	if p.lost < p.before { // it was worth it
		p.wait = paceRest
	} else if p.wait > paceRest {
		p.trial = max(1, p.lost-p.before)
	}
	p.rest = p.wait
	p.wait = min(2*p.wait, paceRests)
	// Time saved long ago is no reason to lose some now.
	p.lost = max(p.lost, -time.Duration(paceGrant*p.cost(0)))
}

// best is the length with the largest gain over plain passes, 0 if there is
// none.
func (p *pace) best(room int) int {
	var hit, tried float64
	for i := range p.tried {
		hit += p.hit[i]
		tried += p.tried[i]
	}
	prior := (hit + float64(4*pacePrior)) / (tried + 4) // of positions that are not known yet
	best, gain := 0, 1/p.cost(0)
	tokens, reach := 1.0, 1.0
	for n := 1; n <= min(room, MaxDraft); n++ {
		reach = float64(reach * (p.hit[n-1] + float64(2*prior)) / (p.tried[n-1] + 2))
		tokens += reach
		if g := tokens / (float64(p.draft.median()*float64(n)) + p.cost(n)); g > gain {
			best, gain = n, g
		}
	}
	return best
}

// cost estimates a pass with n drafted tokens: from measurements of this length
// or of those next to it. No pass costs more than a longer one.
func (p *pace) cost(n int) float64 {
	lo, hi := n, 0
	for lo > 0 && p.pass[lo].n == 0 {
		lo--
	}
	least := func(n int) (at int, ms float64) { // of passes with n and more
		ms = math.Inf(1)
		for i := n; i <= MaxDraft; i++ {
			if m := p.pass[i].median(); p.pass[i].n > 0 && m < ms {
				at, ms = i, m
			}
		}
		return at, ms
	}
	_, from := least(lo)
	if lo == n {
		return from
	}
	slope := paceSlope * p.cost(0)
	if at, to := least(n + 1); at > 0 {
		hi = at
		slope = (to - from) / float64(hi-lo)
	} else if lo > 0 {
		_, plain := least(0)
		slope = (from - plain) / float64(lo)
	}
	return from + float64(slope*float64(n-lo))
}

// record learns from a cycle.
func (p *pace) record(c *cycle) {
	for i := range p.pass {
		k := &p.pass[i]
		if k.age++; i > 0 && k.age > paceStale {
			k.n = 0 // the text is longer now, or the machine is busy
		}
	}
	p.pass[c.drafted].add(c.pass)
	if p.plain++; c.drafted == 0 {
		p.plain = 0
	}
	p.all += c.draft + c.pass
	p.lost += c.draft
	if c.drafted == 0 {
		return
	}
	p.lost += c.pass - time.Duration(float64(c.accepted+1)*p.cost(0))
	if p.token = c.draft / time.Duration(c.drafted); !p.woken {
		p.draft.add(p.token)
	}
	p.woken = false
	p.probe = max(0, p.probe-1)
	for i := range p.tried {
		p.hit[i] *= paceFade
		p.tried[i] *= paceFade
	}
	for i := range c.judged {
		p.tried[i]++
		if i < c.accepted {
			p.hit[i]++
		}
	}
}
