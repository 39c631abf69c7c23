package coded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"npack/pack"
)

// heads reads the heads of a transport's blocks in order and holds them to
// §3: every number is checked before it is used.
type heads struct {
	name   string
	h      Header
	size   int64 // bytes of the transport, or -1 where not known
	index  int64 // of the next block
	coded  int64 // where its head starts
	source int64 // where its source must start
	buf    [25 + 2*256]byte
}

// fail returns an error about the block that is being read. off is counted
// from its head, or -1.
func (s *heads) fail(kind error, off int64, found, expected string) *pack.Error {
	e := &pack.Error{Kind: kind, File: s.name, Place: fmt.Sprintf("block %d", s.index), Offset: -1, Found: found, Expected: expected, Hint: hintDamaged}
	if off >= 0 {
		e.Offset = s.coded + off
	}
	if kind == pack.ErrTruncated {
		e.Hint = hintIncomplete
	}
	return e
}

// readFailed words an error of reading n bytes at off, of which got came.
func (s *heads) readFailed(err error, off int64, what string, n, got int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.fail(pack.ErrTruncated, off+got, fmt.Sprintf("truncated: the %s needs %d bytes, %d are there", what, n, got), "")
	}
	return fmt.Errorf("%q: block %d: byte %d: %w", s.name, s.index, s.coded+off+got, err)
}

// next reads the head at s.coded from r. The caller reads or skips the payload
// and then calls advance.
func (s *heads) next(r io.Reader) (*Block, error) {
	read := func(from, to int64) error {
		if n, err := io.ReadFull(r, s.buf[from:to]); err != nil {
			return s.readFailed(err, from, "head", to-from, int64(n))
		}
		return nil
	}
	if err := read(0, 17); err != nil {
		return nil, err
	}
	b := &Block{Index: s.index, Method: Method(s.buf[0]), Coded: s.coded}
	if b.Method > T5Q {
		return nil, s.fail(pack.ErrCorrupt, 0, fmt.Sprintf("method is %d", s.buf[0]), "0 (raw), 1 (byte) or 2 (t5q)")
	}
	offset, n := binary.LittleEndian.Uint64(s.buf[1:]), binary.LittleEndian.Uint64(s.buf[9:])
	if offset != uint64(s.source) {
		return nil, s.fail(pack.ErrCorrupt, 1, fmt.Sprintf("source_offset is %d", offset), fmt.Sprintf("%d, where the last block ended", s.source))
	}
	b.Source = s.source
	left := uint64(s.h.SourceSize - s.source)
	switch {
	case b.Method == T5Q && (n > left/3):
		return nil, s.fail(pack.ErrCorrupt, 9, fmt.Sprintf("three planes of %d bytes", n), fmt.Sprintf("at most the %d bytes that are left of the source", left))
	case b.Method == T5Q && n%4 != 0:
		return nil, s.fail(pack.ErrCorrupt, 9, fmt.Sprintf("a plane of %d bytes", n), "a multiple of 4")
	case n > left:
		return nil, s.fail(pack.ErrCorrupt, 9, fmt.Sprintf("%d source bytes", n), fmt.Sprintf("at most the %d that are left of the source", left))
	}
	b.Size = int64(n)
	if b.Method == T5Q {
		b.Size *= 3
	}
	if b.Method == Raw {
		b.Payload = b.Size
		return b, s.fits(b)
	}
	if err := read(17, b.Method.headSize()); err != nil {
		return nil, err
	}
	if err := s.table(b); err != nil {
		return nil, err
	}
	return b, s.fits(b)
}

// table takes the length of b's payload and the frequencies from the head.
func (s *heads) table(b *Block) error {
	// A symbol takes two bytes at most.
	payload, most := binary.LittleEndian.Uint64(s.buf[17:]), uint64(math.MaxInt64)
	if symbols := uint64(b.Symbols()); symbols < math.MaxInt64/2-8 {
		most = 8 + 2*symbols
	}
	if payload < 8 || payload > most {
		return s.fail(pack.ErrCorrupt, 17, fmt.Sprintf("payload_size is %d", payload), fmt.Sprintf("8 to %d for %d symbols", most, b.Symbols()))
	}
	b.Payload = int64(payload)
	b.freq = make([]uint16, b.Method.alphabet())
	sum := 0
	for i := range b.freq {
		b.freq[i] = binary.LittleEndian.Uint16(s.buf[25+2*i:])
		sum += int(b.freq[i])
	}
	if sum != scale {
		return s.fail(pack.ErrCorrupt, 25, fmt.Sprintf("frequencies add up to %d", sum), fmt.Sprint(scale))
	}
	return nil
}

// fits refuses a block that ends past the end of the file, where that is known.
func (s *heads) fits(b *Block) error {
	if s.size < 0 || b.Payload <= s.size-s.coded-b.Method.headSize() {
		return nil
	}
	left := max(0, s.size-s.coded-b.Method.headSize())
	return s.fail(pack.ErrTruncated, b.Method.headSize(), fmt.Sprintf("truncated: the payload needs %d bytes, %d are there", b.Payload, left), "")
}

// advance moves past the block whose head was read.
func (s *heads) advance(b *Block) {
	s.index++
	s.source += b.Size
	s.coded += b.CodedSize()
}

func (s *heads) more() bool { return s.index < int64(s.h.Blocks) }

// end checks what must hold after the last block; r is at its end.
func (s *heads) end(r io.Reader) error {
	if s.source != s.h.SourceSize {
		e := s.fail(pack.ErrCorrupt, 0, fmt.Sprintf("the blocks add up to %d source bytes", s.source), fmt.Sprintf("source_size, %d", s.h.SourceSize))
		e.Place = "end"
		return e
	}
	n, err := io.ReadFull(r, s.buf[:1])
	if n > 0 {
		e := s.fail(pack.ErrCorrupt, 0, "bytes follow the last block", fmt.Sprintf("the file to end after %d blocks", s.h.Blocks))
		e.Place = "end"
		return e
	}
	if err != io.EOF {
		return fmt.Errorf("%q: byte %d: %w", s.name, s.coded, err)
	}
	return nil
}
