package ternary

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Validate reports whether m keeps every rule of the format: those of
// [Model.CheckShapes]; bp and bn never both set; br only on weights that are
// not 0; bits past the last column 0; scales, norms and biases finite. It
// reads the whole model. The error is an [*Error], the first in file order.
func (m *Model) Validate() error {
	_, err := m.Survey(context.Background(), WalkOptions{})
	return err
}

// Survey validates m as [Model.Validate] does and counts its weights in the
// same single pass. Memory is read in chunks that are handed to m.Release when
// done. It stops within one chunk when ctx ends.
func (m *Model) Survey(ctx context.Context, o WalkOptions) (*Survey, error) {
	if err := m.CheckShapes(); err != nil {
		return nil, err
	}
	w := surveyor{m: m, s: &Survey{Layers: make([][NumProjections]Occupancy, len(m.Layers))}}
	w.parts.New = func() any { return new(Part) }
	projection := 0
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			w.add(t, &w.s.Layers[t.Layer][projection])
			projection = (projection + 1) % NumProjections
		case t.Int8 != nil:
			w.add(t, new(Occupancy)) // of ternary weights it has none
		default:
			w.addVector(t.Name, t.Vector)
		}
	}
	for i := range w.jobs {
		w.s.Bytes += w.jobs[i].bytes
	}
	if err := runJobs(ctx, w.jobs, o); err != nil {
		return nil, err
	}
	for j := range NumProjections {
		w.s.Total.Add(w.s.Projection(j))
	}
	return w.s, nil
}

// chunkBytes is how much of one plane or table a job reads: enough to hide the
// cost of handing out jobs, little enough to keep a mapped file's resident
// memory at a few MiB a thread.
const chunkBytes = 1 << 20

// surveyor collects the jobs of a survey. Jobs add to s under mu.
type surveyor struct {
	m     *Model
	jobs  []job
	parts sync.Pool // of *Part

	mu            sync.Mutex
	s             *Survey
	mismatchOrder int // job that found s.FirstMismatch
}

// add makes the jobs of a matrix or table, which add its counts to total.
func (w *surveyor) add(t Tensor, total *Occupancy) {
	left := new(atomic.Int64) // chunks that are not done
	_, stride := t.size()
	for r0, r1 := range t.Chunks() {
		left.Add(1)
		order := len(w.jobs)
		bytes := int64(r1-r0) * (int64(stride) + 8)
		if t.Ternary != nil {
			bytes = int64(r1-r0) * (3*int64(stride) + 16)
			if t.Ternary.Bias != nil {
				bytes += 4 * int64(r1-r0)
			}
		}
		w.jobs = append(w.jobs, job{bytes, func() error {
			buf := w.parts.Get().(*Part)
			defer w.parts.Put(buf)
			part, err := w.m.ReadRows(buf, t, r0, r1)
			if err != nil {
				return err
			}
			var o Occupancy
			var sums mismatches
			if p := part.Ternary; p != nil {
				o, sums, err = p.surveyRows(t.Name, r0)
			} else {
				sums, err = part.Int8.surveyRows(t.Name, r0)
			}
			switch {
			case left.Add(-1) == 0:
				w.m.ReleaseTensor(t)
			case part.Ternary != nil:
				w.m.release(part.Ternary.BP)
				w.m.release(part.Ternary.BN)
				w.m.release(part.Ternary.BR)
			default:
				w.m.release(bytesOf(part.Int8.Q))
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			total.Add(o)
			w.note(order, sums)
			return err
		}})
	}
}

func (w *surveyor) addVector(name string, v []float32) {
	w.jobs = append(w.jobs, job{4 * int64(len(v)), func() error {
		err := checkFinite(name, PartNorm, v, 0)
		w.m.release(bytesOf(v))
		return err
	}})
}

// note records the wrong integrity words of one job.
func (w *surveyor) note(order int, m mismatches) {
	if m.n == 0 {
		return
	}
	w.s.SumMismatches += m.n
	if w.s.FirstMismatch == nil || order < w.mismatchOrder {
		w.s.FirstMismatch, w.mismatchOrder = m.first, order
	}
}

// ReleaseTensor calls m.Release, if it is set, on all memory of t. Code that is
// done with a tensor should: touching a few scales may have mapped 2 MiB.
func (m *Model) ReleaseTensor(t Tensor) {
	switch {
	case t.Ternary != nil:
		w := t.Ternary
		for _, b := range [][]byte{w.BP, w.BN, w.BR, bytesOf(w.SLo), bytesOf(w.SHi), bytesOf(w.RSLo), bytesOf(w.RSHi), bytesOf(w.Bias)} {
			m.release(b)
		}
	case t.Int8 != nil:
		m.release(bytesOf(t.Int8.Q))
		m.release(bytesOf(t.Int8.Scale))
		m.release(bytesOf(t.Int8.WSum))
	default:
		m.release(bytesOf(t.Vector))
	}
}

func (m *Model) release(b []byte) {
	if m.Release != nil {
		m.Release(b)
	}
}

// mismatches counts integrity words that differ from the sums.
type mismatches struct {
	n     int64
	first *Error
}

func (m *mismatches) check(tensor, part string, row int, stored int32, sum int64) {
	if int64(stored) == sum {
		return
	}
	m.n++
	if m.first == nil {
		m.first = &Error{Tensor: tensor, Part: part, Row: row, Col: -1,
			Found: fmt.Sprintf("%s is %d", part, stored), Expected: fmt.Sprintf("the row's sum, %d", sum)}
	}
}

// surveyRows checks and counts all rows of t; the first one is row r0 of what
// errors speak of.
func (t *Matrix) surveyRows(name string, r0 int) (o Occupancy, sums mismatches, err error) {
	for r := range t.Rows {
		c, err := t.countRow(name, r0, r)
		if err != nil {
			return o, sums, err
		}
		o.addRow(c, t.Cols)
		sums.check(name, PartRSLo, r0+r, t.RSLo[r], int64(c.plusLo-c.minusLo))
		sums.check(name, PartRSHi, r0+r, t.RSHi[r], int64(c.plusHi-c.minusHi))
	}
	err = checkFinite(name, PartSLo, t.SLo, r0)
	if err == nil {
		err = checkFinite(name, PartSHi, t.SHi, r0)
	}
	if err == nil {
		err = checkFinite(name, PartBias, t.Bias, r0)
	}
	return o, sums, err
}

// countRow counts row r of t, row r0+r of what errors speak of.
func (t *Matrix) countRow(name string, r0, r int) (rowCount, error) {
	at, end := r*t.Stride, (r+1)*t.Stride
	bp, bn, br := t.BP[at:end], t.BN[at:end], t.BR[at:end]
	c, ok := countRow(bp, bn, br, t.Cols)
	if !ok {
		col, part, found, expected := findBad(bp, bn, br, t.Cols)
		return c, &Error{Tensor: name, Part: part, Row: r0 + r, Col: col, Found: found, Expected: expected}
	}
	return c, nil
}

// RowSums returns what RSLo and RSHi of row r are by convention. The error, an
// [*Error], says which rule the row's planes break; in it the tensor is called
// name and t holds its rows from r0 on.
func (t *Matrix) RowSums(name string, r0, r int) (lo, hi int, err error) {
	c, err := t.countRow(name, r0, r)
	return c.plusLo - c.minusLo, c.plusHi - c.minusHi, err
}

func (t *Int8Matrix) surveyRows(name string, r0 int) (sums mismatches, err error) {
	for r := range t.Rows {
		sums.check(name, PartWSum, r0+r, t.WSum[r], sumInt8(t.Row(r)))
	}
	return sums, checkFinite(name, PartScale, t.Scale, r0)
}

// Check returns an [*Error] about the first value of t that breaks a rule of the
// model, or nil. The first row of t is row r0 of what it speaks of; integrity
// words are not looked at.
func (t *Tensor) Check(r0 int) (err error) {
	switch {
	case t.Ternary != nil:
		_, _, err = t.Ternary.surveyRows(t.Name, r0)
	case t.Int8 != nil:
		_, err = t.Int8.surveyRows(t.Name, r0)
	default:
		err = checkFinite(t.Name, PartNorm, t.Vector, r0)
	}
	return err
}

// checkFinite refuses NaN and infinities; v[0] belongs to row.
func checkFinite(name, part string, v []float32, row int) error {
	for i, f := range v {
		if !finite(f) {
			return &Error{Tensor: name, Part: part, Row: row + i, Col: -1,
				Found: fmt.Sprintf("%s is %v", part, f), Expected: "a finite number"}
		}
	}
	return nil
}
