package fetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"npack/pack"
)

// ErrChanged is the error of a stream whose file changed on the server, or
// cannot be told from another, between two connections. What was read before
// is worth nothing.
var ErrChanged = errors.New("the file on the server changed meanwhile")

// Stream reads a file in order, over several connections where the server
// allows. When a line breaks it goes on at the same byte over a new one, with
// the same rules as [Client.File].
type Stream struct {
	c        *Client
	ctx      context.Context
	cancel   context.CancelFunc
	t        Target
	ent      Entity
	at       int64
	to       int64 // end of the part that is asked for, 0 for the file's
	noRanges bool
	ahead    *ahead // nil where one connection has to do
	r        *response
	tries    tries
	sum      hash.Hash // of all bytes, nil if not read from the start
	err      error
}

// Open opens t at byte from and reads to its end. known is what an earlier
// stream's Entity gave, the zero value for nothing. A file that is another one
// by now is [ErrChanged]. If a stream that starts at 0 ends and the file's
// sha256 or size is not t's, the last Read gives an error in place of io.EOF.
//
// The stream ends with ctx. Close it.
func (c *Client) Open(ctx context.Context, t Target, from int64, known Entity) (*Stream, error) {
	if known == (Entity{}) {
		known.Size = -1
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{c: c, ctx: ctx, cancel: cancel, t: t, ent: known, at: from, tries: tries{c: c}}
	if from == 0 {
		s.sum = sha256.New()
	}
	if from > 0 && from == known.Size {
		return s, nil // an earlier run read all
	}
	if err := s.connect(); err != nil {
		cancel()
		return nil, err
	}
	s.goAhead()
	return s, nil
}

// Entity says what the server's file is.
func (s *Stream) Entity() Entity { return s.ent }

// Close ends the stream, also while another goroutine is in Read.
func (s *Stream) Close() error {
	s.cancel() // which also closes the connection
	return nil
}

// connect opens a connection at s.at, in as many tries as it takes.
func (s *Stream) connect() error {
	for {
		err := s.once()
		if err == nil {
			return nil
		}
		if s.r != nil {
			s.r.close()
			s.r = nil
		}
		if err := s.tries.again(s.ctx, err); err != nil {
			return err
		}
	}
}

func (s *Stream) once() (err error) {
	changed := func(format string, args ...any) error {
		e := fail(s.t.URL, "", format, args...)
		e.Err = ErrChanged
		return e
	}
	var known *Entity
	if s.ent != (Entity{Size: -1}) {
		known = &s.ent
	}
	from := s.at
	switch {
	case from > 0 && !s.t.joins(s.ent):
		return changed("the line broke after %d bytes", from)
	case s.noRanges:
		from = 0
	}
	to := int64(-1)
	if s.to > 0 {
		to = s.to
	}
	s.r, err = s.c.once(s.ctx, s.t.URL, from, to, known)
	past := (*pastEnd)(nil)
	switch {
	case s.to > 0 && (errors.Is(err, errBadRange) || err == nil && !s.r.part):
		return errNoParts
	case errors.Is(err, errBadRange):
		s.noRanges = true
		return &transient{err: fail(s.t.URL, "", "the server %v", err)}
	case errors.As(err, &past) && s.ent.Size < 0 && past.size == s.at:
		s.ent.Size = s.at // the end, where it was not known
		return nil
	case errors.As(err, &past):
		return changed("the server's file has no byte %d", s.at)
	case err != nil:
		return err
	case known != nil && known.differs(s.r.Entity):
		return changed("another file is there")
	}
	var head []byte
	if s.r.from == 0 {
		head, _ = s.r.r.Peek(pack.SniffLen)
	}
	size, err := s.t.accept(s.r.Size, head)
	if err != nil {
		return err
	}
	if s.ent.ETag == "" && s.ent.Modified == "" {
		s.ent = s.r.Entity
	}
	s.ent.Size = max(s.ent.Size, size)
	if s.r.from < s.at {
		// A server without ranges sends all of it again, which is no
		// progress.
		n, err := io.CopyN(io.Discard, s.r.r, s.at)
		if err == io.EOF {
			return changed("the server's file ends after %d bytes", n)
		}
		return err
	}
	return nil
}

// Read reads the next bytes of the file.
func (s *Stream) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.err == nil {
		end := s.ent.Size
		if s.to > 0 {
			end = s.to
		}
		if s.ahead != nil && s.at < s.ahead.start {
			end = s.ahead.start
		}
		if end >= 0 {
			p = p[:min(int64(len(p)), end-s.at)]
		}
		switch {
		case s.at == end:
			s.err = s.last()
		case s.ahead != nil && s.at >= s.ahead.start:
			if n, s.err = s.fromAhead(p); n > 0 {
				return s.took(p[:n]), nil
			}
		case s.r == nil:
			s.err = s.connect()
		default:
			n, err := s.r.r.Read(p)
			if n > 0 { // an error comes again
				s.tries.progress(int64(n))
				return s.took(p[:n]), nil
			}
			if err != nil {
				s.err = s.broken(err)
			}
		}
	}
	return 0, s.err
}

// took notes that the reader has got p.
func (s *Stream) took(p []byte) int {
	s.at += int64(len(p))
	if s.sum != nil {
		s.sum.Write(p)
	}
	if s.t.Progress != nil {
		s.t.Progress(s.at, s.ent.Size)
	}
	if s.ahead != nil && s.at == s.ahead.start {
		s.r.close()
		s.r = nil
	}
	return len(p)
}

// fromAhead reads what was fetched ahead. If that failed, as with servers that
// allow few connections, one has to do from here on.
func (s *Stream) fromAhead(p []byte) (int, error) {
	n, err := s.ahead.read(s.ctx, p)
	if err == nil || s.ctx.Err() != nil || errors.Is(err, ErrChanged) {
		return n, err
	}
	s.ahead.cancel()
	s.ahead = nil
	s.tries = tries{c: s.c, answer: true}
	return 0, nil
}

// broken decides what the end of a connection means.
func (s *Stream) broken(err error) error {
	r := s.r
	r.close()
	s.r = nil
	if err == io.EOF {
		switch {
		case s.ent.Size >= 0 && r.framed && !r.part:
			return fail(s.t.URL, "", "the server's file ends after %d bytes, not %d", s.at, s.ent.Size)
		case s.ent.Size >= 0:
			err = &transient{err: fail(s.t.URL, "", "the answer ended early")}
		case r.framed || !r.ranges || s.noRanges || !s.t.joins(s.ent):
			s.ent.Size = s.at
			return nil
		default: // nothing marked the end: ask whether there is more
			err = &transient{err: fail(s.t.URL, "", "the file's end cannot be told from a broken line")}
		}
	}
	return s.tries.again(s.ctx, err)
}

// last returns io.EOF if what was read is what it should be.
func (s *Stream) last() error {
	if s.r != nil {
		s.r.close()
		s.r = nil
	}
	if s.sum == nil || s.t.SHA256 == "" {
		return io.EOF
	}
	if sum := fmt.Sprintf("%x", s.sum.Sum(nil)); !strings.EqualFold(sum, s.t.SHA256) {
		return &pack.Error{Kind: pack.ErrNotEqual, File: Public(s.t.URL), Offset: -1, Found: "sha256 " + sum, Expected: s.t.SHA256,
			Hint: "the file was damaged on its way or is another one; nothing was kept"}
	}
	return io.EOF
}

// Bytes returns a small file, at most limit bytes of it. Answers that programs
// make for each request have no validator: a broken one is asked for again.
func (c *Client) Bytes(ctx context.Context, address string, limit int64) ([]byte, error) {
	for n := 0; ; n++ {
		b, err := c.bytes(ctx, address, limit)
		if !errors.Is(err, ErrChanged) || n == maxRestarts {
			return b, err
		}
	}
}

func (c *Client) bytes(ctx context.Context, address string, limit int64) ([]byte, error) {
	s, err := c.Open(ctx, Target{URL: address, Size: -1}, 0, Entity{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	b, err := io.ReadAll(io.LimitReader(s, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fail(address, "", "the answer is longer than %d bytes", limit)
	}
	return b, nil
}
