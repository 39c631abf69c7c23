// Package expand turns a coded transport that arrives in order, from a network
// or a disk, into a container on a disk: in one pass, checked whole, and going
// on where an earlier run ended.
package expand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/coded"
	"npack/ternary"
)

// Transport is where the coded bytes come from.
type Transport struct {
	Name string // for errors

	// Open returns the bytes from an offset to the end, how many bytes the
	// transport has (0: not known) and a key that tells it from others. key
	// is "" or what Open returned in an earlier run: if that is not the key
	// of the transport any more, Open's error is one that Again knows.
	Open func(ctx context.Context, from int64, key string) (r io.ReadCloser, size int64, newKey string, err error)
	// Again reports whether an error of Open or of reading means that the
	// transport is not what it was, so that all must be begun again. It may
	// be nil.
	Again func(error) bool
}

// Options say how to expand.
type Options struct {
	Want     *pack.Pin // of the container, nil if not known
	Threads  int       // 0: one a processor
	Progress func(done, total int64)

	// Unchecked leaves the container's rules alone: its MD5 and Want decide.
	Unchecked bool
	// Again is told that a part of the output that was there, of kept bytes,
	// is of no use. It may be nil.
	Again func(kept int64)
	// KeepFull has a disk that becomes full leave the part, as what ends a run
	// for other reasons does: where the transport comes over a line, what is
	// there took hours.
	KeepFull bool
}

// Result says what was made.
type Result struct {
	Bytes      int64           // of the container
	SHA256     string          // of the container
	Resumed    int64           // bytes of the container that an earlier run left
	Survey     *ternary.Survey // nil if it was not checked
	Mismatch   error           // the first row sum that is not the row's; nil if none
	Restarts   int
	CodedBytes int64 // of the transport
}

// state is what is kept beside a part.
type state struct {
	Key    string       `json:"key"`
	Header coded.Header `json:"header"`
	Marks  []coded.Mark `json:"marks"`
}

// maxRestarts bounds how often a transport that changes makes us begin again.
const maxRestarts = 4

// File writes the container of t to path. Structure, every weight's rules, MD5
// and, if o.Want is given, size and sha256 are right before the file has its
// name. If it is interrupted or the transport cannot be read on, what is there
// stays as NAME.part with a journal of its blocks; otherwise nothing stays, and
// nothing if the disk becomes full, but for o.KeepFull.
func File(ctx context.Context, path string, t Transport, o Options) (*Result, error) {
	part, err := outfile.OpenPart(path)
	if err != nil {
		return nil, err
	}
	defer part.Close()
	for n := 0; ; n++ {
		e := &expansion{t: t, o: o, part: part}
		err := e.run(ctx)
		if err == nil {
			e.res.Restarts = n
			if err = part.Commit(); err == nil {
				return &e.res, nil
			}
		}
		bad := errors.Is(err, pack.ErrCorrupt) || errors.Is(err, pack.ErrNotEqual) || errors.Is(err, pack.ErrNotModel) || errors.Is(err, pack.ErrUnsupported)
		again := t.Again != nil && t.Again(err) || bad && e.res.Resumed > 0 // the rest may be of another
		switch {
		case again && n < maxRestarts:
			if err := e.forget(); err != nil {
				return nil, err
			}
		case again, bad:
			return nil, errors.Join(err, part.Remove())
		case len(e.state.Marks) == 0 || e.state.Key == "":
			return nil, errors.Join(err, part.Remove()) // nothing to go on from
		case e.wrote && errors.Is(err, pack.ErrNoSpace):
			if !o.KeepFull {
				return nil, errors.Join(withoutPart(err, e.state.Header.SourceSize), part.Remove())
			}
			_ = e.save() // the last one will do where there is no room for another
			return nil, err
		default:
			return nil, errors.Join(err, e.save())
		}
	}
}

// expansion is one run.
type expansion struct {
	t    Transport
	o    Options
	part *outfile.Part
	res  Result

	wrote bool // or was about to: there was room at the start
	mu    sync.Mutex
	state state
}

// withoutPart replaces the hint of an error that says how far the disk took a
// container of size bytes.
func withoutPart(err error, size int64) error {
	p := (*pack.Error)(nil)
	if !errors.As(err, &p) {
		return err
	}
	e := *p
	e.Hint = fmt.Sprintf("nothing was left behind: free %d bytes and run the same command again", size)
	return &e
}

func (e *expansion) forget() error {
	e.state = state{}
	if err := e.part.Truncate(0); err != nil {
		return err
	}
	return e.part.SaveState(e.state)
}

// save makes the part durable, then the journal.
func (e *expansion) save() error {
	e.mu.Lock()
	s := e.state
	e.mu.Unlock()
	if len(s.Marks) == 0 || s.Key == "" {
		return nil
	}
	return e.part.SaveState(s)
}

func (e *expansion) run(ctx context.Context) error {
	kept, err := e.part.Size()
	if err != nil {
		return err
	}
	c := newChecker(&e.o)
	defer c.abort()
	var point *coded.Point
	if e.part.LoadState(&e.state) && len(e.state.Marks) > 0 && e.state.Key != "" {
		c.start(e.t.Name, e.state.Header.SourceSize)
		var err error
		if point, err = coded.Recover(ctx, e.state.Header, e.part, e.state.Marks, c); err != nil {
			return err
		}
		e.res.Resumed = point.Source
	}
	if point == nil || point.Source == 0 {
		if kept > 0 && e.o.Again != nil {
			e.o.Again(kept)
		}
		e.state, point = state{}, nil
		c.abort()
		*c = *newChecker(&e.o)
	} else {
		e.state.Marks = e.state.Marks[:point.Block]
	}

	from := int64(0)
	if point != nil {
		from = point.Coded
	}
	r, size, key, err := e.t.Open(ctx, from, e.state.Key)
	if err != nil {
		return err
	}
	defer r.Close()
	e.state.Key = key
	if point == nil {
		if e.state.Header, err = coded.ReadHeader(e.t.Name, r); err != nil {
			return err
		}
		c.start(e.t.Name, e.state.Header.SourceSize)
	}
	h := e.state.Header
	if err := checkSize(e.t.Name, h, e.o.Want); err != nil {
		return err
	}
	if err := e.part.Room(h.SourceSize - e.res.Resumed); err != nil {
		return err
	}

	e.wrote = true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := e.journal(cancel)
	w := &writer{e: e, at: e.res.Resumed}
	err = coded.Decode(ctx, h, r, w, coded.DecodeOptions{Name: e.t.Name, Size: size, Threads: e.o.Threads, From: point, Check: c,
		Done: func(d coded.Done) {
			e.mu.Lock()
			e.state.Marks = append(e.state.Marks, d.Mark)
			e.res.CodedBytes = d.Mark.Coded
			e.mu.Unlock()
		}})
	stop()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return err
	}
	if err := e.res.finish(c, e.t.Name, h.SourceSize, e.o.Want); err != nil {
		return err
	}
	return e.part.Truncate(e.res.Bytes)
}

// finish compares the whole with what is known about it.
func (r *Result) finish(c *checker, name string, size int64, want *pack.Pin) error {
	if err := c.end(); err != nil {
		return err
	}
	r.Bytes, r.SHA256 = size, fmt.Sprintf("%x", c.sha.Sum(nil))
	r.Survey, r.Mismatch = c.survey, c.mismatch
	if want != nil && want.SHA256 != "" && !strings.EqualFold(want.SHA256, r.SHA256) {
		return &pack.Error{Kind: pack.ErrNotEqual, File: name, Place: "decoded container", Offset: -1,
			Found: "sha256 " + r.SHA256, Expected: want.SHA256, Hint: "this is the transport of another model, or of another version of it"}
	}
	return nil
}

// checkSize compares the size that a header claims with what is known.
func checkSize(name string, h coded.Header, want *pack.Pin) error {
	if want == nil || want.Bytes < 0 || want.Bytes == h.SourceSize {
		return nil
	}
	return errOtherModel(&pack.Error{File: name, Place: "header", Offset: 8}, h.SourceSize, want)
}

// errOtherModel completes an error for a container of another size than known.
func errOtherModel(e *pack.Error, size int64, want *pack.Pin) error {
	e.Kind, e.Found, e.Expected = pack.ErrNotEqual, fmt.Sprintf("the container has %d bytes", size), fmt.Sprint(want.Bytes)
	e.Hint = "this is the transport of another model, or of another version of it"
	return e
}

// journal saves the state four times a second until stop is called.
func (e *expansion) journal(cancel context.CancelCauseFunc) (stop func()) {
	done := make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := e.save(); err != nil {
					cancel(err)
				}
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// writer writes into the part, in order.
type writer struct {
	e  *expansion
	at int64
}

func (w *writer) Write(b []byte) (int, error) {
	n, err := w.e.part.WriteAt(b, w.at)
	w.at += int64(n)
	if w.e.o.Progress != nil {
		w.e.o.Progress(w.at, w.e.state.Header.SourceSize)
	}
	return n, err
}
