package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"npack/pack/formats"
	"npack/runtime/backend"
	"npack/runtime/engine"
)

// model is a model's file and what was measured of it.
type model struct {
	File    string    `json:"file"`
	Bytes   int64     `json:"file_bytes"`
	Layers  int       `json:"layers"`
	Load    []float64 `json:"load_seconds"` // the second time from the page cache
	Planned int64     `json:"planned_bytes"`
	Taken   int64     `json:"taken_bytes"` // of the card by weights and buffers, and
	Peak    int64     `json:"peak_bytes"`  // with the longest text
	Token   int64     `json:"weight_bytes_per_token"`

	Decode  []rate `json:"decode"`
	Passes  []pass `json:"passes"`
	Prefill []rate `json:"prefill"`

	src  formats.Source // open as long as inst, which may read from it
	inst backend.Ranker
	free int64 // of the card before it was loaded
}

// close unloads the model and closes its file; it may be called again.
func (m *model) close() (err error) {
	if m.inst != nil {
		err = m.inst.Close()
	}
	if m.src != nil {
		err = errors.Join(err, m.src.Close())
	}
	m.inst, m.src = nil, nil
	return err
}

// rate is a speed in tokens a second, over rounds.
type rate struct {
	Tokens int     `json:"tokens"`          // measured in a round
	Depth  int     `json:"depth,omitempty"` // tokens that were there before
	Chunk  int     `json:"chunk,omitempty"` // of a prompt that go through the model at once
	Median float64 `json:"tokens_per_second"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Share  float64 `json:"share_of_bandwidth,omitempty"` // weights and cache that were read, of what the memory can deliver
}

// pass is what a pass of some columns costs.
type pass struct {
	Columns int     `json:"columns"`
	Median  float64 `json:"milliseconds"`
}

// drafted is decoding with a draft whose guesses are right as often as is said.
type drafted struct {
	Acceptance float64 `json:"acceptance"`
	Length     int     `json:"length"` // 0: what the engine chooses
	Rate       float64 `json:"tokens_per_second"`
	Plain      float64 `json:"plain_tokens_per_second"` // in the same minute
	Accepted   float64 `json:"accepted_share"`
	PerPass    float64 `json:"tokens_per_pass"`
}

// models measures a model, its draft, and both together.
func (c *check) models(target, draft string) (err error) {
	big, err := c.load(target)
	defer func() { err = errors.Join(err, big.close()) }()
	if err != nil {
		return err
	}
	c.part(big.File, func() error { return c.measure(big) })
	if draft == "" {
		return nil
	}
	small, err := c.load(draft)
	defer func() { err = errors.Join(err, small.close()) }()
	if err != nil {
		return err
	}
	c.part(small.File, func() error { return c.measure(small) })
	c.part("drafted", func() error { return c.drafted(big, small) })
	return nil
}

// load loads a file twice and keeps it. The caller closes the model, also after an
// error.
func (c *check) load(path string) (*model, error) {
	m := &model{File: filepath.Base(path)}
	c.Models = append(c.Models, m)
	m.free = c.free()
	o := backend.Options{Threads: c.Threads}
	for range 2 {
		if err := m.close(); err != nil {
			return m, err
		}
		start := time.Now()
		var err error
		if m.src, err = formats.Open(c.ctx, path); err != nil {
			return m, err
		}
		inst, err := c.b.Load(c.ctx, m.src.Model(), o)
		if err != nil {
			return m, m.src.Place(err)
		}
		m.inst = inst.(backend.Ranker)
		m.Load = append(m.Load, since(start))
	}
	m.Bytes, m.Layers = m.src.Size(), m.inst.Config().Layers
	plan := c.b.Plan(m.src.Model(), o, c.room(m.inst), c.chunk())
	m.Planned, m.Token = plan.Weights+plan.Cache+plan.Buffers, plan.Token
	m.Taken = m.free - c.free()
	return m, nil
}

// chunk is how many tokens of a prompt go through a model at once.
func (c *check) chunk() int { return engine.ChunkOf(c.b) }

// room is the longest text that is measured.
func (c *check) room(inst backend.Instance) int {
	return min(2*c.prompt+2*c.tokens, engine.ModelContext(inst.Config()))
}

// measure measures decoding at two depths, passes of a few columns as drafts are
// verified with, and prompts.
func (c *check) measure(m *model) error {
	room := c.room(m.inst)
	seq, err := m.inst.NewSequence(room)
	if err != nil {
		return err
	}
	defer seq.Close()
	x := &feeder{ctx: c.ctx, m: m, seq: seq, ids: ids(room, m.inst.Config().Vocab), best: make([]backend.Ranked, 1)}
	for _, chunk := range []int{engine.DefaultChunk, c.chunk()} {
		n := min(c.prompt, room-c.tokens)
		r := rate{Tokens: n, Chunk: chunk}
		if err := c.rate(&r, func() error { return errors.Join(seq.Truncate(0), x.feed(n, chunk)) }); err != nil {
			return err
		}
		m.Prefill = append(m.Prefill, r)
	}
	for _, depth := range []int{min(128, room/4), room - c.tokens} {
		if err := errors.Join(seq.Truncate(0), x.feed(depth, c.chunk())); err != nil {
			return err
		}
		r := rate{Tokens: c.tokens, Depth: depth}
		if err := c.rate(&r, func() error { return errors.Join(seq.Truncate(depth), x.feed(c.tokens, 1)) }); err != nil {
			return err
		}
		if o := m.inst.Options(); c.Bandwidth > 0 {
			read := m.Token + o.KV.BytesPerToken(m.inst.Config())*int64(depth+c.tokens/2)
			r.Share = float64(read) * r.Median / c.Bandwidth
		}
		m.Decode = append(m.Decode, r)
	}
	m.Peak = m.free - c.free()
	for n := 1; n <= engine.MaxDraft+1; n++ {
		r := rate{Tokens: n}
		if err := errors.Join(seq.Truncate(min(128, room/4)), x.feed(n, n), x.feed(n, n)); err != nil { // to record it
			return err
		}
		if err := c.rate(&r, func() error { return errors.Join(seq.Truncate(min(128, room/4)), x.feed(n, n)) }); err != nil {
			return err
		}
		m.Passes = append(m.Passes, pass{n, 1e3 * float64(n) / r.Median})
	}
	return nil
}

// rate measures f, which makes r.Tokens tokens, in rounds.
func (c *check) rate(r *rate, f func() error) error {
	if err := f(); err != nil { // once to warm up
		return err
	}
	var all []float64
	for range c.rounds {
		start := time.Now()
		if err := f(); err != nil {
			return err
		}
		all = append(all, float64(r.Tokens)/since(start))
	}
	slices.Sort(all)
	r.Min, r.Median, r.Max = all[0], all[len(all)/2], all[len(all)-1]
	return nil
}

func ids(n, vocab int) []int32 {
	list, rng := make([]int32, n), rand.New(rand.NewPCG(1, 2))
	for i := range list {
		list[i] = rng.Int32N(int32(vocab))
	}
	return list
}

// feeder puts tokens through a model, which ranks what follows the last of each
// call.
type feeder struct {
	ctx  context.Context
	m    *model
	seq  backend.Sequence
	ids  []int32
	best []backend.Ranked
	run  [1]backend.Run
	want [1]int
}

// feed appends the next n tokens in calls of at most chunk.
func (x *feeder) feed(n, chunk int) error {
	for end := x.seq.Len() + n; x.seq.Len() < end; {
		at := x.seq.Len()
		part := x.ids[at:min(at+chunk, end)]
		x.want[0] = len(part) - 1
		x.run[0] = backend.Run{Seq: x.seq, Tokens: part, Want: x.want[:]}
		if err := x.m.inst.ForwardRanked(x.ctx, x.run[:], 1, x.best); err != nil {
			return err
		}
	}
	return nil
}

// drafted measures what the engine makes of a draft whose guesses are right as
// often as real ones are, or more and less often. What the draft costs is real.
func (c *check) drafted(big, small *model) error {
	prompt := ids(64, big.inst.Config().Vocab)
	e := engine.New(big.inst, 0)
	s, err := e.NewSession(len(prompt) + 4*c.tokens)
	if err != nil {
		return err
	}
	defer s.Close()
	req := engine.Request{Prompt: prompt, MaxTokens: 4 * c.tokens}
	plain, err := s.Generate(c.ctx, req)
	if err != nil {
		return err
	}
	truth := slices.Clone(plain.IDs)
	for _, right := range []float64{0.6, 0.8, 0.9} {
		for _, length := range []int{0, 2, 4, 7} {
			if err := c.draftedRun(s, req, big, small, truth, right, length); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *check) draftedRun(s *engine.Session, req engine.Request, big, small *model, truth []int32, right float64, length int) error {
	d, err := engine.NewDraftModel(small.inst, len(req.Prompt)+req.MaxTokens, min(big.inst.Config().Vocab, small.inst.Config().Vocab))
	if err != nil {
		return err
	}
	defer d.Close()
	out := drafted{Acceptance: right, Length: length}
	var rates [2]float64
	for i, by := range []engine.Drafter{nil, &simulated{d, truth, len(req.Prompt), big.inst.Config().Vocab, right, rand.New(rand.NewPCG(3, uint64(length)))}} {
		if i == 0 {
			err = s.Draft(nil, 0)
		} else {
			err = s.Draft(by, length)
		}
		if err != nil {
			return err
		}
		for range 2 { // the first time records the passes
			if err := s.Reset(); err != nil {
				return err
			}
			res, err := s.Generate(c.ctx, req)
			if err != nil {
				return err
			}
			if !slices.Equal(res.IDs, truth) {
				c.Wrong = true
				return fmt.Errorf("acceptance %g, length %d: other tokens than without a draft", right, length)
			}
			rates[i] = float64(res.Timings.Steps) / res.Timings.Decode.Seconds()
			if res.Draft != nil {
				out.Accepted, out.PerPass = res.Draft.Acceptance(), float64(res.Timings.Steps)/float64(res.Timings.Passes)
			}
		}
	}
	out.Plain, out.Rate = rates[0], rates[1]
	c.Drafted = append(c.Drafted, out)
	return nil
}

// simulated drafts with a model and then replaces its guesses: they are right
// with the probability that was asked for.
type simulated struct {
	*engine.DraftModel
	truth  []int32 // of the answer
	prompt int     // tokens before it
	vocab  int
	right  float64
	rng    *rand.Rand
}

// Propose implements [engine.Drafter].
func (d *simulated) Propose(ctx context.Context, dst, text []int32, n int, s *engine.Sampler) ([]int32, error) {
	first := len(dst)
	dst, err := d.DraftModel.Propose(ctx, dst, text, n, s)
	for i := range dst[first:] {
		at := len(text) + i - d.prompt
		if at >= len(d.truth) {
			return dst[:first+i], err
		}
		dst[first+i] = d.truth[at]
		if d.rng.Float64() >= d.right {
			dst[first+i] = (dst[first+i] + 1) % int32(d.vocab)
		}
	}
	return dst, err
}
