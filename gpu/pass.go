package gpu

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"npack/gpu/kernels"
	"npack/runtime/backend"
)

// pass is the state of one call of Forward. Its memory is kept from call to call.
type pass struct {
	launcher
	job    func() error // instance.run and
	record func() error // instance.recorded, bound once: a pass must not allocate

	ctx   context.Context
	runs  []backend.Run
	seqs  []*sequence // by run
	batch []backend.Column
	k     int              // tokens to rank for a wanted one; 0: logits are wanted
	best  []backend.Ranked // [wanted*k], what is left to fill

	// Of the columns that go through the layers together:
	columns  []backend.Column
	segments []segment
	wanted   []int  // of columns, those whose logits are wanted
	host     []byte // what is uploaded and downloaded
	faulty   bool   // the device's fault is another than noFault

	// The token and position that the last pass left in scratch.input: those that
	// follow its own, of its sequence. seq is nil if they are not there.
	next struct {
		seq *sequence
		id  int32
		pos int
	}
}

// segment is the columns of one sequence.
type segment struct {
	seq    *sequence
	first  int // column
	n      int
	chunks int // of 64 positions that hold the last one, in whole steps
}

func (p *pass) prepare(in *instance) {
	p.dev = in.b.dev
	p.job, p.record = in.run, in.recorded
	p.l.Args = make([]Arg, 0, 32)
	p.host = make([]byte, max(4*3*maxColumns, outputHead+headColumns*backend.MaxRanked*8))
}

// Forward implements [backend.Instance].
func (in *instance) Forward(ctx context.Context, runs []backend.Run) error {
	return in.forward(ctx, runs, 0, nil)
}

// ForwardRanked implements [backend.Ranker].
func (in *instance) ForwardRanked(ctx context.Context, runs []backend.Run, k int, best []backend.Ranked) error {
	if k == 0 {
		k = -1 // which is refused; 0 means logits
	}
	return in.forward(ctx, runs, k, best)
}

// forward runs all columns of all runs, at most maxColumns at a time, through the
// layers. No column depends on another but through the cache, so neither batch nor
// split can change a bit.
func (in *instance) forward(ctx context.Context, runs []backend.Run, k int, best []backend.Ranked) (err error) {
	p := &in.pass
	p.seqs = p.seqs[:0]
	for i, r := range runs {
		s, ok := r.Seq.(*sequence)
		if !ok || s.in != in {
			return fmt.Errorf("run %d: the sequence is not of this instance", i)
		}
		p.seqs = append(p.seqs, s)
	}
	if k == 0 {
		p.batch, err = backend.Columns(p.batch[:0], runs, in.c.Vocab)
	} else {
		p.batch, err = backend.RankedColumns(p.batch[:0], runs, in.c.Vocab, k, best)
	}
	if err != nil || len(p.batch) == 0 {
		return err
	}
	p.ctx, p.runs, p.k, p.best = ctx, runs, k, best
	err = in.b.do(p.job)
	p.ctx, p.runs, p.best = nil, nil, nil
	if err != nil {
		p.next.seq = nil
		return err
	}
	for i, r := range runs {
		p.seqs[i].Held += len(r.Tokens)
	}
	return nil
}

// run is forward on the device.
func (in *instance) run() error {
	p := &in.pass
	for i, r := range p.runs {
		n := p.seqs[i].Held + len(r.Tokens)
		if err := p.seqs[i].grow(n); err != nil {
			return err
		}
		if err := in.growRotary(n); err != nil {
			return err
		}
	}
	for rest := p.batch; len(rest) > 0; {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		n := min(len(rest), maxColumns)
		p.columns, rest = rest[:n], rest[n:]
		if err := in.some(); err != nil {
			return err
		}
	}
	return nil
}

// some runs p.columns.
func (in *instance) some() error {
	p := &in.pass
	p.gather()
	if err := in.reserve(len(p.columns)); err != nil {
		return err
	}
	for i := range p.segments {
		if err := in.reservePartials(&p.segments[i]); err != nil {
			return err
		}
	}
	if err := in.input(); err != nil {
		return err
	}
	if len(p.segments) == 1 && len(p.columns) <= headColumns {
		best := p.best
		in.few()
		if err := in.output(p.wanted); err != nil {
			return err
		}
		if len(p.columns) == 1 && len(p.wanted) == 1 && p.k == 1 {
			p.next.seq, p.next.id, p.next.pos = p.segments[0].seq, best[0].ID, p.columns[0].Pos+1
		}
		return nil
	}
	in.body()
	if len(p.wanted) == 0 {
		return in.output(nil)
	}
	for i := 0; i < len(p.wanted); i += headColumns {
		w := p.wanted[i:min(len(p.wanted), i+headColumns)]
		in.logits(i, len(w))
		if err := in.output(w); err != nil {
			return err
		}
	}
	return nil
}

// gather lists the segments and the wanted columns of p.columns.
func (p *pass) gather() {
	p.segments, p.wanted = p.segments[:0], p.wanted[:0]
	for i, c := range p.columns {
		if i == 0 || c.Run != p.columns[i-1].Run {
			p.segments = append(p.segments, segment{seq: p.seqs[c.Run], first: i})
		}
		s := &p.segments[len(p.segments)-1]
		s.n++
		s.chunks = steps(c.Pos+1) * step / kernels.Chunk
		if c.Wanted {
			p.wanted = append(p.wanted, i)
		}
	}
}

// input uploads the ids, positions and wanted columns of the pass, unless the last
// one has left the same there already.
func (in *instance) input() error {
	p := &in.pass
	first := &p.columns[0]
	if s := p.segments[0].seq; p.next.seq == s && len(p.columns) == 1 && len(p.wanted) == 1 && first.ID == p.next.id && first.Pos == p.next.pos {
		return nil
	}
	p.next.seq = nil
	if p.faulty {
		if err := p.dev.Upload(in.scratch.buf, in.scratch.output.off, binary.LittleEndian.AppendUint32(p.host[:0], noFault)); err != nil {
			return err
		}
		p.faulty = false
	}
	b := p.host[:0]
	for _, c := range p.columns {
		b = binary.LittleEndian.AppendUint32(b, uint32(c.ID))
	}
	for _, c := range p.columns {
		b = binary.LittleEndian.AppendUint32(b, uint32(c.Pos))
	}
	for _, w := range p.wanted {
		b = binary.LittleEndian.AppendUint32(b, uint32(w))
	}
	return p.dev.Upload(in.scratch.buf, in.scratch.input.off, b)
}

// output brings the results of the wanted columns to the host and turns a fault
// into an error.
func (in *instance) output(wanted []int) error {
	p := &in.pass
	if p.err != nil {
		err := p.err
		p.err = nil
		return err
	}
	b := p.host[:4]
	if p.k > 0 && len(wanted) > 0 {
		b = p.host[:outputHead+len(wanted)*p.k*8]
	}
	if err := p.dev.Download(b, in.scratch.buf, in.scratch.output.off); err != nil {
		return err
	}
	if code := binary.LittleEndian.Uint32(b); code != noFault {
		p.faulty = true
		return in.fault(int(code))
	}
	if p.k > 0 && len(wanted) > 0 {
		for b = b[outputHead:]; len(b) > 0; b = b[8:] {
			p.best[0] = ranked(binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]))
			p.best = p.best[1:]
		}
		return nil
	}
	for i, w := range wanted {
		to := bytesOf(p.columns[w].Logits)
		if err := p.dev.Download(to, in.scratch.buf, in.scratch.logits.off+int64(i*len(to))); err != nil {
			return err
		}
	}
	return nil
}

// ranked turns the key that orders logits back into one.
func ranked(key, id uint32) backend.Ranked {
	if key>>31 == 1 {
		key ^= 1 << 31
	} else {
		key = ^key
	}
	return backend.Ranked{ID: int32(id), Logit: math.Float32frombits(key)}
}
