package fetch

import (
	"context"
	"errors"
	"io"
)

// ahead fetches the pieces of a stream that come next, each over a connection
// of its own, into memory: as many pieces as there are connections. One line to
// a server is often slower than the network that it goes through.
type ahead struct {
	start  int64 // of the first piece
	cancel context.CancelFunc
	queue  chan *piece // in order
	free   chan []byte // buffers to be used again
	now    *piece      // that is being read, nil for none
}

// piece is a part of the file.
type piece struct {
	buf   []byte
	ready chan bool // closed when buf is filled or err is set
	err   error
	at    int // bytes of buf that were read
}

// goAhead starts fetching what comes after the next piece, if that is of use
// and the server lets us. The stream's own connection brings the next one.
func (s *Stream) goAhead() {
	n, size := s.c.o.Connections, s.c.o.Segment/4
	if n < 2 || s.r == nil || !s.r.ranges || s.ent.Size-s.at < 2*size || !s.t.joins(s.ent) {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	a := &ahead{start: s.at + size, cancel: cancel, queue: make(chan *piece, n-1), free: make(chan []byte, n+1)}
	s.ahead = a
	t := Target{URL: s.t.URL, Size: s.t.Size, SHA256: s.t.SHA256, Git: s.t.Git}
	c, ent := s.c, s.ent
	go func() {
		defer close(a.queue)
		for from := a.start; from < ent.Size; from += size {
			p := &piece{ready: make(chan bool)}
			select {
			case a.queue <- p:
			case <-ctx.Done():
				return
			}
			select {
			case p.buf = <-a.free:
			default:
				p.buf = make([]byte, size)
			}
			p.buf = p.buf[:min(size, ent.Size-from)]
			go func() {
				defer close(p.ready)
				line := &Stream{c: c, ctx: ctx, cancel: func() {}, t: t, ent: ent, at: from, to: from + int64(len(p.buf)), tries: tries{c: c, answer: true}}
				_, p.err = io.ReadFull(line, p.buf)
			}()
		}
	}()
}

// read reads from the next piece.
func (a *ahead) read(ctx context.Context, b []byte) (int, error) {
	for {
		if a.now == nil {
			a.now = <-a.queue
			if a.now == nil { // ended by ctx: the end of the file is the stream's
				return 0, context.Cause(ctx)
			}
			<-a.now.ready // soon, if ctx ends
		}
		p := a.now
		if p.err != nil {
			return 0, p.err
		}
		if n := copy(b, p.buf[p.at:]); n > 0 {
			p.at += n
			return n, nil
		}
		a.now = nil
		a.free <- p.buf[:cap(p.buf)]
	}
}

// errNoParts is a server's refusal to send a part of the file.
var errNoParts = errors.New("the server does not send parts of files")
