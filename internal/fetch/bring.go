package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"npack/pack"
)

// bring fetches what is missing.
func (d *download) bring(ctx context.Context) error {
	todo := d.rec.missing()
	if len(todo) == 0 {
		return nil // an earlier run ended before the file had its name
	}
	to := int64(-1)
	if last := todo[0].To; last >= 0 && last < d.rec.Size {
		to = last
	}
	first, err := d.begin(ctx, todo[0].From, to)
	if err != nil {
		return err
	}
	defer first.close()
	piece, workers := int64(math.MaxInt64), 1
	if first.ranges && !d.noRanges.Load() && d.t.joins(d.rec.Entity) && d.rec.Size >= 0 && d.c.o.Connections > 1 {
		piece, workers = d.c.o.Segment, d.c.o.Connections
	}
	q := &queue{pieces: d.rec.Done.missing(d.rec.Size, piece)}
	if len(q.pieces) == 0 {
		return nil // an empty file
	}
	q.workers = min(workers, len(q.pieces))

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := d.journal(cancel)
	defer stop()
	var wg sync.WaitGroup
	todo, q.pieces = q.pieces[:q.workers], q.pieces[q.workers:]
	for i, p := range todo {
		r := first
		if i > 0 {
			r = nil
		}
		wg.Go(func() {
			if err := d.work(ctx, q, p, r, len(todo) == 1); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// queue holds the pieces that nobody fetches yet.
type queue struct {
	mu      sync.Mutex
	pieces  spans
	workers int // that may take pieces
}

// take returns the next piece. A worker that is told that there is none must
// not take again.
func (q *queue) take() (span, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pieces) == 0 {
		q.workers--
		return span{}, false
	}
	p := q.pieces[0]
	q.pieces = q.pieces[1:]
	return p, true
}

// leave gives a piece back from a worker that stops, if there is another
// worker to take it.
func (q *queue) leave(p span) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.workers == 1 {
		return false
	}
	q.workers--
	q.pieces = append(q.pieces, p)
	return true
}

// work fetches p and then other pieces until there are none. Servers may allow
// fewer connections than we open: a worker that fails leaves its piece to the
// others, if there are any.
func (d *download) work(ctx context.Context, q *queue, p span, first *response, alone bool) error {
	for {
		at, err := d.piece(ctx, p, first)
		first = nil
		if errors.Is(err, pack.ErrNetwork) && ctx.Err() == nil && !alone {
			p.From = at
			if q.leave(p) {
				return nil
			}
			alone = true // the last one left: the server may like that better
			continue
		}
		if err != nil {
			return err
		}
		var ok bool
		if p, ok = q.take(); !ok {
			return nil
		}
	}
}

// journal saves the record every second until stop is called.
func (d *download) journal(cancel context.CancelCauseFunc) (stop func()) {
	done, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := d.save(); err != nil {
					cancel(err)
				}
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// begin gets the first answer of a run and compares it with what is known.
func (d *download) begin(ctx context.Context, from, to int64) (*response, error) {
	var r *response
	t := &tries{c: d.c}
	for {
		var err error
		if r, err = d.ask(ctx, from, to); err == nil {
			break
		}
		if err := t.again(ctx, err); err != nil {
			return nil, err
		}
	}
	fail := func(err error) (*response, error) {
		r.close()
		return nil, err
	}
	if from > 0 && r.from == 0 {
		// Not what was asked: another file, or a server without ranges.
		if err := d.reset(); err != nil {
			return fail(err)
		}
		d.res.Restarts++
		from = 0
	}
	var head []byte
	if from == 0 {
		head, _ = r.r.Peek(pack.SniffLen) // an error comes again when reading
	}
	size, err := d.t.accept(r.Size, head)
	if err != nil {
		return fail(errJunk{err})
	}
	d.mu.Lock()
	if len(d.rec.Done) == 0 {
		d.rec.Entity = r.Entity
	}
	d.rec.Size = size
	left := size - d.rec.Done.total()
	d.mu.Unlock()
	if size >= 0 {
		if err := d.part.Room(left); err != nil {
			return fail(err)
		}
	}
	return r, nil
}

// ask is Client.once with what is known about the file. Its error is a restart
// where the answer is of another file, or no answer to a range.
func (d *download) ask(ctx context.Context, from, to int64) (*response, error) {
	var known *Entity
	if d.rec.Entity != (Entity{Size: -1}) {
		known = &d.rec.Entity
	}
	switch {
	case d.noRanges.Load() && from > 0:
		return nil, &restart{"the server does not send parts of files"}
	case d.noRanges.Load():
		to = -1
	case from > 0 && !d.t.joins(d.rec.Entity):
		return nil, &restart{"nothing tells whether the server's file is still the same"}
	}
	r, err := d.c.once(ctx, d.t.URL, from, to, known)
	past := (*pastEnd)(nil)
	switch {
	case errors.Is(err, errBadRange):
		d.noRanges.Store(true)
		return nil, &restart{"the server " + err.Error()}
	case errors.As(err, &past) && (past.size != from || d.rec.Size >= 0):
		return nil, &restart{fmt.Sprintf("the server said that the file has %d bytes, and then that it has no byte %d", d.rec.Size, from)}
	case err != nil:
		return nil, err
	case known != nil && known.differs(r.Entity):
		r.close()
		return nil, &restart{"the file on the server changed meanwhile"}
	}
	return r, nil
}

// piece fetches the bytes of p, in as many tries as it takes, and returns how
// far it came. first is an answer that starts there, or nil.
func (d *download) piece(ctx context.Context, p span, first *response) (int64, error) {
	t := &tries{c: d.c, answer: true}
	r, at := first, p.From
	for {
		var err error
		if r == nil {
			r, err = d.ask(ctx, at, p.To)
		}
		if past := (*pastEnd)(nil); errors.As(err, &past) { // the end, where it was not known
			d.endsAt(at, true)
			return at, nil
		}
		if err == nil && at > 0 && r.from == 0 {
			r.close()
			d.noRanges.Store(true)
			return at, &restart{"the server does not send parts of files"}
		}
		if err == nil {
			if p.To < 0 && r.part && r.Size >= 0 { // now it is known
				p.To = r.Size
				d.endsAt(r.Size, true)
			}
			from, got := at, r
			at, err = d.copy(r, at, p.To)
			r.close()
			r = nil
			t.progress(at - from)
			switch {
			case err == nil:
				return at, nil
			case err != io.EOF:
			case p.To >= 0 && got.framed && !got.part:
				return at, &restart{fmt.Sprintf("the server's file ends after %d bytes, not %d", at, d.rec.Size)}
			case p.To >= 0:
				err = &transient{err: fail(d.t.URL, hintResume, "the answer ended early")}
			case got.framed || !got.ranges || d.noRanges.Load() || !d.t.joins(d.rec.Entity):
				d.endsAt(at, got.framed)
				return at, nil
			default: // nothing marked the end: ask whether there is more
				err = &transient{err: fail(d.t.URL, hintResume, "the file's end cannot be told from a broken line")}
			}
		}
		if err := t.again(ctx, err); err != nil {
			return at, err
		}
	}
}

// endsAt notes the size of a file that was not known before.
func (d *download) endsAt(size int64, sure bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rec.Size = size
	d.res.Unsure = !sure && d.t.SHA256 == "" && d.t.Git == ""
}

// copy writes an answer's bytes from at on, up to to, into the part. It returns
// io.EOF if the answer ends there or before.
func (d *download) copy(r *response, at, to int64) (int64, error) {
	buf := make([]byte, 256<<10)
	for to < 0 || at < to {
		b := buf
		if to >= 0 {
			b = b[:min(int64(len(b)), to-at)]
		}
		n, err := r.r.Read(b)
		if n > 0 {
			if _, err := d.part.WriteAt(b[:n], at); err != nil {
				return at, err
			}
			d.note(at, at+int64(n))
			at += int64(n)
		}
		if err != nil && (to < 0 || at < to) {
			return at, err
		}
	}
	return at, nil
}
