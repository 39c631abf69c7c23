package native

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"npack/pack"
	"npack/ternary"
)

// Check reads a container of size bytes from r, once and from front to end, and
// reports whether it keeps every rule that [Open] and [ternary.Model.Survey]
// hold: structure, planes, finite numbers. Errors about the content are
// [*pack.Error] with name as the file. Integrity words that differ are counted
// in the survey and are no error; mismatch is the first of them, with its place.
//
// It is for bytes that pass by, such as those of a transport being decoded, and
// holds one matrix at a time, 19 MB of an 8B model. It refuses matrices whose
// planes take more than 1 GiB together as unsupported.
func Check(name string, size int64, r io.Reader) (s *ternary.Survey, mismatch, err error) {
	f := &File{name: name}
	br := bufio.NewReaderSize(r, pieceBytes)
	head, err := br.Peek(int(min(size, pack.SniffLen)))
	if err != nil {
		return nil, nil, fmt.Errorf("%q: byte %d: %w", name, len(head), unexpected(err))
	}
	if err := checkKind(name, head, size); err != nil {
		return nil, nil, err
	}
	t := &stream{r: br}
	t.parser = parser{f: f, src: t, size: size, record: "header"}
	if err := t.walk(t); err != nil {
		return nil, nil, f.Place(err)
	}
	if e := t.survey.FirstMismatch; e != nil {
		mismatch = f.place(e)
	}
	return &t.survey, mismatch, nil
}

// pieceBytes is how much of a table is held.
const pieceBytes = 256 << 10

// maxPlanes is the most that the planes of one matrix may take: those of a
// matrix of 53248 x 16384, the largest of a 405B model, take 327 MB.
const maxPlanes = 1 << 30

// stream reads the records of a container that passes by.
type stream struct {
	parser
	r      io.Reader
	at     int64 // of r
	survey ternary.Survey
	trits  int // records so far
	buf    []byte
	sums   []int64
}

// ReadAt gives the parser what it asks for in order.
func (s *stream) ReadAt(b []byte, off int64) (int, error) {
	if off != s.at {
		return 0, errors.New("native: a stream is read in order")
	}
	n, err := io.ReadFull(s.r, b)
	s.at += int64(n)
	return n, unexpected(err)
}

// unexpected turns the end of a reader that gives less than was said into an
// error that cannot be mistaken for a good end.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// bytes returns the next n bytes, which are valid until the next call. Room for
// them grows as they come: n is not believed.
func (s *stream) bytes(n int64) ([]byte, error) {
	const step = 16 << 20
	b := s.buf[:0]
	for at := int64(0); at < n; {
		to := min(n, at+step)
		if int64(cap(b)) < to {
			grown := make([]byte, at, min(n, max(2*int64(cap(b)), to)))
			copy(grown, b)
			b = grown
		}
		b = b[:to]
		if _, err := s.ReadAt(b[at:], s.at); err != nil {
			return nil, fmt.Errorf("%q: byte %d: %w", s.f.name, s.at, err)
		}
		at = to
	}
	s.buf = b[:0]
	s.off += n
	return b, nil
}

func (s *stream) tritRecord(name string, m *ternary.Matrix, shape ternary.Shape) error {
	r := Record{Name: name, Kind: KindTrit, Offset: s.off}
	s.record = name
	if err := s.tritGeometry(&r, shape); err != nil {
		return err
	}
	rows, plane := int64(r.Rows), int64(r.Rows)*int64(r.Stride)
	size := 3*plane + 16*rows + 4
	if err := s.need(geometry + size); err != nil {
		return err
	}
	if plane > maxPlanes/3 {
		e := s.fail(pack.ErrUnsupported, s.off+12, fmt.Sprintf("three planes of %d bytes", plane), fmt.Sprintf("at most %d together", maxPlanes))
		e.Hint = "this program holds the planes of one matrix in memory, and these are larger than those of any known model"
		return e
	}
	s.off += geometry
	b, err := s.bytes(size)
	if err != nil {
		return err
	}
	take := func(n int64) []byte {
		t := b[:n:n]
		b = b[n:]
		return t
	}
	*m = ternary.Matrix{Rows: r.Rows, Cols: r.Cols, ColsPad: r.ColsPad, Stride: r.Stride,
		BP: take(plane), BN: take(plane), BR: take(plane),
		SLo: floats(take(4 * rows)), SHi: floats(take(4 * rows)), RSLo: ints(take(4 * rows)), RSHi: ints(take(4 * rows))}
	r.BiasFlag = ints(b)[0]
	if r.Size = geometry + size; r.BiasFlag != 0 {
		r.Size += 4 * rows
	}
	s.f.records = append(s.f.records, r)
	layer, j := s.trits/ternary.NumProjections, s.trits%ternary.NumProjections
	s.trits++
	err = s.survey.AddMatrix(name, layer, j, m)
	*m = ternary.Matrix{} // its bytes are gone soon
	if err != nil || r.BiasFlag == 0 {
		return err
	}
	if err := s.need(4 * rows); err != nil {
		return err
	}
	if b, err = s.bytes(4 * rows); err != nil {
		return err
	}
	return s.survey.AddBias(name, floats(b))
}

func (s *stream) int8Record(name string, m *ternary.Int8Matrix, c *ternary.Config) error {
	r := Record{Name: name, Kind: KindInt8, Offset: s.off}
	s.record = name
	if err := s.tableGeometry(&r, c); err != nil {
		return err
	}
	rows, stride := int64(r.Rows), int64(r.Stride)
	r.Size = geometry + rows*stride + 8*rows
	if err := s.need(r.Size); err != nil {
		return err
	}
	s.off += geometry
	s.f.records = append(s.f.records, r)
	// The sums come after the values.
	s.sums = s.sums[:0]
	for range rows {
		var sum int64
		for at := int64(0); at < stride; at += pieceBytes {
			b, err := s.bytes(min(stride-at, pieceBytes))
			if err != nil {
				return err
			}
			if left := int64(r.Cols) - at; left > 0 {
				sum += ternary.SumInt8(int8s(b[:min(int64(len(b)), left)]))
			}
		}
		s.sums = append(s.sums, sum)
	}
	b, err := s.bytes(8 * rows)
	if err != nil {
		return err
	}
	return s.survey.AddTable(name, r.Size-geometry, s.sums, floats(b[:4*rows]), ints(b[4*rows:]))
}

func (s *stream) vector(name string, n int) ([]float32, error) {
	r := Record{Name: name, Kind: KindVector, Offset: s.off, Size: 4 * int64(n), Rows: n}
	s.record = name
	if err := s.need(r.Size); err != nil {
		return nil, err
	}
	s.f.records = append(s.f.records, r)
	b, err := s.bytes(r.Size)
	if err != nil {
		return nil, err
	}
	return nil, s.survey.AddVector(name, floats(b))
}

// ReadConfig reads the header of a container of size bytes, and nothing else of
// it. Errors are as those of [Open].
func ReadConfig(name string, src io.ReaderAt, size int64) (*ternary.Config, error) {
	head := make([]byte, min(size, pack.SniffLen))
	if n, err := src.ReadAt(head, 0); n < len(head) {
		return nil, fmt.Errorf("%q: byte %d: %w", name, n, unexpected(err))
	}
	if err := checkKind(name, head, size); err != nil {
		return nil, err
	}
	f := &File{name: name}
	p := &parser{f: f, src: src, size: size, record: "header"}
	if err := p.header(&f.model.Config); err != nil {
		return nil, err
	}
	return &f.model.Config, nil
}
