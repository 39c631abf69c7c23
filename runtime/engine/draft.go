package engine

import (
	"context"
	"errors"
	"time"

	"npack/runtime/backend"
)

// MaxDraft is the most tokens that are drafted at a time. Behind the last of
// them comes the model's own, so a pass has up to 8 columns.
const MaxDraft = 7

// Drafter guesses how a text goes on. Its guesses decide how fast a text is
// made and never which: the model judges each of them.
type Drafter interface {
	// Propose appends to dst up to n tokens, 0 to [MaxDraft], that may well
	// follow text. It may propose fewer, or none. With n = 0 it reads text, a
	// prompt, so that later calls cost less.
	//
	// s is the model's sampler, about to choose the token after text; it may be
	// looked at, not used. text is only valid during the call, its tokens are
	// below the model's vocabulary.
	//
	// An error other than the end of ctx ends the drafting of this answer, not
	// the answer.
	Propose(ctx context.Context, dst, text []int32, n int, s *Sampler) ([]int32, error)
}

// DraftStats says what drafting did for an answer.
type DraftStats struct {
	Drafted  int               // tokens
	Accepted int               // of those
	Plain    int               // passes without a drafted token
	Kept     [MaxDraft + 1]int // passes with some, by the number that was accepted
	Read     time.Duration     // for reading the prompt, a part of Timings.Prefill
	Time     time.Duration     // for drafting, a part of Timings.Decode
	Err      error             // what ended drafting, nil if nothing did
}

// Acceptance is the part of the drafted tokens that was accepted, 0 if none was
// drafted.
func (d *DraftStats) Acceptance() float64 { return float64(d.Accepted) / float64(max(1, d.Drafted)) }

// Add adds another answer's.
func (d *DraftStats) Add(o *DraftStats) {
	d.Drafted += o.Drafted
	d.Accepted += o.Accepted
	d.Plain += o.Plain
	for i, n := range o.Kept {
		d.Kept[i] += n
	}
	d.Read += o.Read
	d.Time += o.Time
	if o.Err != nil {
		d.Err = o.Err
	}
}

// Draft lets by draft the session's answers, length tokens at a time or, with
// length 0, as many as pay: the number follows from how many were accepted of
// late and from what passes of each length and drafting are measured to cost,
// and is 0 while drafting loses. nil ends drafting. by is for this session
// alone; the caller closes it.
//
// The text is the one without drafting, for any by, length and sampling: each
// token is chosen from the same logits, after the same text, with the same
// random number, and a drafted token is kept if it is the one chosen.
func (s *Session) Draft(by Drafter, length int) error {
	if length < 0 || length > MaxDraft {
		return errors.New("draft length is outside 0 to 7")
	}
	s.draft = nil
	if by != nil {
		s.draft = &drafting{
			by: by, fixed: length, now: time.Now,
			pass: make([]int32, 0, MaxDraft+1),
			rows: newRows(s.e.inst, MaxDraft+1),
		}
	}
	return nil
}

// drafting is what a session keeps for its drafter.
//
// A pass runs the token chosen last and the drafted ones behind it. As long as
// the tokens chosen from its rows of logits are the drafted ones, they need not
// run again: the session moves on to the next row. When one is not, or all rows
// are used up, the cache is cut back to the text and the next pass begins.
type drafting struct {
	by     Drafter
	fixed  int // length, 0: pace decides
	pace   pace
	now    func() time.Time
	broken bool // by failed in this answer

	pass   []int32 // tokens that ran, the first of them chosen; empty: no pass
	rows   rows    // MaxDraft+1, one after each token of pass
	used   int     // tokens of pass that are in the text
	judged int     // drafted tokens that a choice was compared with
	took   cycle   // what the pass cost

	stats DraftStats
}

// allRows asks for the row of every column of a pass.
var allRows = []int{0, 1, 2, 3, 4, 5, 6, 7}

// begin starts an answer to a prompt that the session has read.
func (d *drafting) begin(ctx context.Context, s *Session, prompt []int32) {
	d.stats, d.broken = DraftStats{}, false
	d.pace.begin()
	if d.fixed == 0 && d.pace.resting() {
		return // reads what it needs when it is tried again
	}
	start := d.now()
	// The end of ctx shows when the first token has been chosen, as without a draft.
	if _, err := d.by.Propose(ctx, d.pass[:0], prompt, 0, &s.sampler); err != nil && ctx.Err() == nil {
		d.fail(err)
	}
	d.stats.Read = d.now().Sub(start)
}

func (d *drafting) fail(err error) { d.broken, d.stats.Err = true, err }

// step makes s.next the row after id, which was just chosen. After it at most
// left tokens will be chosen.
func (d *drafting) step(ctx context.Context, s *Session, id int32, left int) (ran bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if d.used < len(d.pass) {
		d.judged++
		if d.pass[d.used] == id {
			s.ids = append(s.ids, id)
			d.show(s)
			return false, nil
		}
	}
	if err := d.settle(s); err != nil {
		return false, err
	}
	return true, d.run(ctx, s, id, left)
}

// show moves on to the next row.
func (d *drafting) show(s *Session) {
	s.next = d.rows.at(d.used)
	d.used++
}

// settle ends the pass: what was not accepted of it leaves the cache.
func (d *drafting) settle(s *Session) error {
	if len(d.pass) == 0 {
		return nil
	}
	drafted, accepted := len(d.pass)-1, d.used-1
	if drafted == 0 {
		d.stats.Plain++
	} else {
		d.stats.Kept[accepted]++
	}
	d.stats.Drafted += drafted
	d.stats.Accepted += accepted
	d.took.drafted, d.took.judged, d.took.accepted = drafted, d.judged, accepted
	d.pace.record(&d.took)
	d.pass, d.used, d.judged = d.pass[:0], 0, 0
	return s.truncate(len(s.ids))
}

// run starts a pass with id.
func (d *drafting) run(ctx context.Context, s *Session, id int32, left int) error {
	n := min(s.seq.Cap()-len(s.ids)-1, left-1, MaxDraft)
	switch {
	case d.broken:
		n = 0
	case d.fixed > 0:
		n = min(n, d.fixed)
	default:
		n = d.pace.length(n)
	}
	start := d.now()
	pass, err := d.propose(ctx, s, id, n)
	if err != nil {
		return err
	}
	mid := d.now()
	d.rows.ranks = s.rows.ranks
	err = d.rows.forward(ctx, s.seq, pass, allRows[:len(pass)])
	if errors.Is(err, backend.ErrOverflow) && len(pass) > 1 {
		// It may be the drafted tokens that the model cannot run, and it
		// would never have met them.
		pass = pass[:1]
		err = d.rows.forward(ctx, s.seq, pass, allRows[:1])
	}
	if err != nil {
		return err
	}
	d.took = cycle{draft: mid.Sub(start), pass: d.now().Sub(mid)}
	d.stats.Time += d.took.draft
	d.pass = pass
	s.ids = append(s.ids, id)
	d.show(s)
	return nil
}

// propose returns id and up to n drafted tokens behind it, in d.pass's memory.
func (d *drafting) propose(ctx context.Context, s *Session, id int32, n int) ([]int32, error) {
	pass := append(d.pass[:0], id)
	if n <= 0 {
		return pass, nil
	}
	text := append(s.ids, id) // in the room behind the text
	pass, err := d.by.Propose(ctx, pass, text, n, &s.sampler)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		d.fail(err)
		return pass[:1], nil
	}
	pass = pass[:min(len(pass), n+1)]
	for i, id := range pass { // a token that the model does not have would be an error
		if id < 0 || int(id) >= s.e.Config().Vocab {
			return pass[:i], nil
		}
	}
	return pass, nil
}
