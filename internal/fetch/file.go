package fetch

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"npack/internal/outfile"
	"npack/pack"
)

// Target is a file on a server and what is known about it beforehand.
type Target struct {
	URL    string
	Size   int64  // -1 if not known
	SHA256 string // hex, "" if not known
	Git    string // hex sha1 of the file as a blob of git, "" if not known

	// Look, if not nil, is given the start of the file, up to
	// [pack.SniffLen] bytes, as soon as it is there, and the size or -1. Its
	// error ends the transfer and removes the part.
	Look func(head []byte, size int64) error
	// Progress is told how many bytes of how many (-1: not known) are there.
	// Several goroutines call it.
	Progress func(done, total int64)
	// Checking is told how many bytes of how many have been hashed.
	Checking func(done, total int64)
}

// joins reports whether parts of the file from different answers can be told
// to belong together.
func (t *Target) joins(e Entity) bool {
	return e.ETag != "" || e.Modified != "" || t.SHA256 != "" || t.Git != ""
}

// accept compares the size (-1: not given) and the start of the file (empty:
// not seen) with what is known, and returns the size.
func (t *Target) accept(size int64, head []byte) (int64, error) {
	if t.Size >= 0 && size >= 0 && size != t.Size {
		e := &pack.Error{Kind: pack.ErrNotEqual, File: Public(t.URL), Offset: -1,
			Found: fmt.Sprintf("the server's file has %d bytes", size), Expected: fmt.Sprint(t.Size)}
		if kind := pack.Sniff(head, size); kind == pack.KindHTML || kind == pack.KindLFS {
			e.Found += " and is a " + kind.String()
			e.Hint = "networks that want you to sign in, and servers that want a token, send pages in place of files"
		}
		return size, e
	}
	if size < 0 {
		size = t.Size
	}
	if t.Look != nil && len(head) > 0 {
		return size, t.Look(head, size)
	}
	return size, nil
}

// Result says what File did.
type Result struct {
	Bytes    int64
	SHA256   string
	Fetched  int64 // bytes that came in this run
	Resumed  int64 // bytes that an earlier run left
	Restarts int   // times the file was begun again
	// Unsure is set if nothing tells the file's end from a broken line: no
	// size, no sha256, and a server that ends by hanging up.
	Unsure bool
}

// record is what is kept beside a part.
type record struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256,omitempty"`
	Entity
	Done spans `json:"done"`
}

// maxRestarts bounds how often a file that changes on the server, or a server
// that ignores ranges, makes a transfer begin again.
const maxRestarts = 4

// File brings t to path. It goes on with the part of an earlier run where the
// server still has the same file, checks size and sums and gives the file its
// name last. If it fails, what came stays beside path as NAME.part, unless
// that is known to be wrong.
func (c *Client) File(ctx context.Context, path string, t Target) (*Result, error) {
	part, err := outfile.OpenPart(path)
	if err != nil {
		return nil, err
	}
	defer part.Close()
	d := &download{c: c, t: t, part: part}
	d.load()
	d.res.Resumed = d.rec.Done.total()
	for {
		err := d.bring(ctx)
		if err == nil {
			err = d.check(ctx)
		}
		var again *restart
		if err == nil || !errors.As(err, &again) {
			if err == nil {
				err = part.Commit()
			}
			return &d.res, d.end(err)
		}
		if d.res.Restarts++; d.res.Restarts > maxRestarts {
			return nil, d.end(fail(t.URL, "", "begun %d times: %s", d.res.Restarts, again.why))
		}
		if err := d.reset(); err != nil {
			return nil, err
		}
	}
}

// download is one run of File.
type download struct {
	c        *Client
	t        Target
	part     *outfile.Part
	noRanges atomic.Bool // the server was asked for a part and did not send it
	res      Result

	mu  sync.Mutex
	rec record

	fetched atomic.Int64
}

// restart says that what is there is not of the file that the server has.
type restart struct{ why string }

func (r *restart) Error() string { return r.why }

// errJunk marks errors after which the part is worth nothing.
type errJunk struct{ error }

func (e errJunk) Unwrap() error { return e.error }

// end keeps the part or removes it.
func (d *download) end(err error) error {
	d.res.Fetched = d.fetched.Load()
	if junk := (errJunk{}); errors.As(err, &junk) {
		d.part.Remove()
		return junk.error
	}
	if err != nil {
		d.save()
	}
	return err
}

// load reads the record of an earlier run, if it is of this file.
func (d *download) load() {
	var r record
	n, err := d.part.Size()
	ok := err == nil && d.part.LoadState(&r) && r.Done.valid(n) && (r.Size < 0 || r.Done.valid(r.Size))
	same := r.URL == d.t.URL || r.SHA256 != "" && strings.EqualFold(r.SHA256, d.t.SHA256)
	if !ok || !same || d.t.Size >= 0 && r.Size >= 0 && d.t.Size != r.Size {
		r = d.fresh()
	}
	d.rec = r
	if len(r.missing()) > 0 && !d.t.joins(d.rec.Entity) {
		d.rec = d.fresh()
	}
}

func (r *record) missing() spans { return r.Done.missing(r.Size, math.MaxInt64) }

func (d *download) fresh() record {
	return record{URL: d.t.URL, SHA256: d.t.SHA256, Entity: Entity{Size: -1}}
}

func (d *download) reset() error {
	d.rec, d.res.Resumed = d.fresh(), 0
	if err := d.part.Truncate(0); err != nil {
		return err
	}
	return d.save()
}

// save makes the part durable, then what is known about it.
func (d *download) save() error {
	d.mu.Lock()
	r := d.rec
	r.Done = append(spans(nil), r.Done...)
	d.mu.Unlock()
	if len(r.Done) == 0 && r.Size < 0 {
		return nil
	}
	return d.part.SaveState(r)
}

// note records that bytes are in the part.
func (d *download) note(from, to int64) {
	d.mu.Lock()
	d.rec.Done = d.rec.Done.add(span{from, to})
	done, total := d.rec.Done.total(), d.rec.Size
	d.mu.Unlock()
	d.fetched.Add(to - from)
	if d.t.Progress != nil {
		d.t.Progress(done, total)
	}
}

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

// check compares what is there with all that is known about it.
func (d *download) check(ctx context.Context) error {
	if m := d.rec.missing(); len(m) > 0 {
		return fmt.Errorf("fetch: bytes %d to %d were left out", m[0].From, m[0].To) // a fault of ours
	}
	d.res.Bytes = d.rec.Size
	if err := d.part.Truncate(d.rec.Size); err != nil {
		return err
	}
	if d.t.Look != nil {
		head := make([]byte, min(d.rec.Size, pack.SniffLen))
		if _, err := d.part.ReadAt(head, 0); err != nil && err != io.EOF {
			return err
		}
		if err := d.t.Look(head, d.rec.Size); err != nil {
			return errJunk{err}
		}
	}
	pin, err := pack.HashFile(ctx, d.part.Name(), func(n int64) {
		if d.t.Checking != nil {
			d.t.Checking(n, d.rec.Size)
		}
	})
	if err != nil {
		return err
	}
	d.res.SHA256 = pin.SHA256
	found, want := "sha256 "+pin.SHA256, strings.ToLower(d.t.SHA256)
	ok := want == "" || want == pin.SHA256
	if d.t.Git != "" && ok {
		sum, err := GitBlob(d.part.Name())
		if err != nil {
			return err
		}
		found, want = "git blob "+sum, strings.ToLower(d.t.Git)
		ok = sum == want
	}
	switch {
	case ok:
		return nil
	case d.res.Resumed > 0:
		// What an earlier run left may be at fault: once more, all of it.
		return &restart{"the file is not what it should be: " + found}
	}
	return errJunk{&pack.Error{Kind: pack.ErrNotEqual, File: Public(d.t.URL), Offset: -1, Found: found, Expected: want,
		Hint: "the file was damaged on its way or is another one; nothing was kept"}}
}

// GitBlob returns the name that git gives to a file's content, the sha1 of its
// length and bytes.
func GitBlob(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", st.Size())
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
