package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"npack/pack"
)

// ahead is an output that is written, and hashed if asked, beside the work of
// those who make it, up to 32 MiB behind: as much as the largest matrix of an 8B
// model. It ends with ctx. Call finish in any case; its fields are valid then.
type ahead struct {
	w        io.Writer
	ctx      context.Context
	progress func(n int64)
	hash     hash.Hash // nil if nobody asked
	pieces   chan []byte
	free     chan []byte
	done     chan struct{}
	broken   chan struct{} // closed when err is set
	err      error         // of w
	flushed  chan error

	at, end int64  // of the output
	sha256  string // of what was written in order, if asked
}

const (
	aheadPieces = 32
	aheadPiece  = 1 << 20
)

func newAhead(ctx context.Context, w io.Writer, hashed bool, progress func(n int64)) *ahead {
	a := &ahead{w: w, ctx: ctx, progress: progress, pieces: make(chan []byte, aheadPieces), free: make(chan []byte, aheadPieces),
		broken: make(chan struct{}), done: make(chan struct{}), flushed: make(chan error)}
	if hashed {
		a.hash = sha256.New()
	}
	for range aheadPieces {
		a.free <- make([]byte, 0, aheadPiece)
	}
	pieces := a.pieces
	if hashed {
		pieces = make(chan []byte, aheadPieces)
		go a.sum(pieces)
	}
	go a.run(pieces)
	return a
}

// sum hashes pieces and hands them on: a core can hash while another writes.
func (a *ahead) sum(to chan<- []byte) {
	defer close(to)
	for b := range a.pieces {
		a.hash.Write(b)
		to <- b
	}
}

// run writes pieces in order; nil asks whether all before it went well. After an
// error it goes on without writing.
func (a *ahead) run(pieces <-chan []byte) {
	defer close(a.done)
	for b := range pieces {
		if b == nil {
			a.flushed <- a.err
			continue
		}
		if a.err == nil {
			if _, a.err = a.w.Write(b); a.err != nil {
				close(a.broken)
			}
		}
		a.free <- b
	}
}

// Write takes b. Errors of the output show in one of the next calls.
func (a *ahead) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		if err := a.ctx.Err(); err != nil {
			return n, err
		}
		var p []byte
		select {
		case p = <-a.free:
		case <-a.broken:
			return n, a.err
		}
		k := min(len(b), aheadPiece)
		a.pieces <- append(p[:0], b[:k]...)
		b, n = b[k:], n+k
		a.at += int64(k)
		a.end = max(a.end, a.at)
	}
	a.progress(a.at)
	return n, nil
}

// Seek waits for what was written and moves to another place. What is hashed is
// not moved.
func (a *ahead) Seek(off int64, whence int) (int64, error) {
	s, ok := a.w.(io.Seeker)
	if !ok || a.hash != nil {
		return 0, errors.ErrUnsupported
	}
	if err := a.flush(); err != nil {
		return 0, err
	}
	at, err := s.Seek(off, whence)
	if err == nil {
		a.at = at
	}
	return at, err
}

// pin is what was written, if it was hashed.
func (a *ahead) pin() pack.Pin { return pack.Pin{Bytes: a.end, SHA256: a.sha256} }

func (a *ahead) flush() error {
	a.pieces <- nil
	return <-a.flushed
}

// finish waits for what was written.
func (a *ahead) finish() error {
	close(a.pieces)
	<-a.done
	if a.hash != nil {
		a.sha256 = fmt.Sprintf("%x", a.hash.Sum(nil))
	}
	return a.err
}
