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
	projection := 0
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			w.addMatrix(t.Name, t.Ternary, &w.s.Layers[t.Layer][projection])
			projection = (projection + 1) % NumProjections
		case t.Int8 != nil:
			w.addInt8(t.Name, t.Int8)
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
	m    *Model
	jobs []job

	mu            sync.Mutex
	s             *Survey
	mismatchOrder int // job that found s.FirstMismatch
}

// chunks calls add for runs of rows of about chunkBytes.
func chunks(rows, stride int, add func(r0, r1 int)) {
	step := max(1, chunkBytes/max(1, stride))
	for r := 0; r < rows; r += step {
		add(r, min(rows, r+step))
	}
}

func (w *surveyor) addMatrix(name string, t *Matrix, total *Occupancy) {
	left := new(atomic.Int64) // chunks that are not done
	chunks(t.Rows, t.Stride, func(r0, r1 int) {
		left.Add(1)
		order := len(w.jobs)
		bytes := int64(r1-r0) * (3*int64(t.Stride) + 16)
		if t.Bias != nil {
			bytes += 4 * int64(r1-r0)
		}
		w.jobs = append(w.jobs, job{bytes, func() error {
			o, sums, err := t.surveyRows(name, r0, r1)
			if left.Add(-1) == 0 {
				w.m.ReleaseTensor(Tensor{Ternary: t})
			} else {
				for _, p := range [][]byte{t.BP, t.BN, t.BR} {
					w.m.release(p[r0*t.Stride : r1*t.Stride])
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			total.Add(o)
			w.note(order, sums)
			return err
		}})
	})
}

func (w *surveyor) addInt8(name string, t *Int8Matrix) {
	left := new(atomic.Int64)
	chunks(t.Rows, t.Stride, func(r0, r1 int) {
		left.Add(1)
		order := len(w.jobs)
		w.jobs = append(w.jobs, job{int64(r1-r0) * (int64(t.Stride) + 8), func() error {
			sums, err := t.surveyRows(name, r0, r1)
			if left.Add(-1) == 0 {
				w.m.ReleaseTensor(Tensor{Int8: t})
			} else {
				w.m.release(bytesOf(t.Q[r0*t.Stride : r1*t.Stride]))
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.note(order, sums)
			return err
		}})
	})
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

// surveyRows checks and counts rows r0 to r1.
func (t *Matrix) surveyRows(name string, r0, r1 int) (o Occupancy, sums mismatches, err error) {
	for r := r0; r < r1; r++ {
		at, end := r*t.Stride, (r+1)*t.Stride
		bp, bn, br := t.BP[at:end], t.BN[at:end], t.BR[at:end]
		c, ok := countRow(bp, bn, br, t.Cols)
		if !ok {
			col, part, found, expected := findBad(bp, bn, br, t.Cols)
			return o, sums, &Error{Tensor: name, Part: part, Row: r, Col: col, Found: found, Expected: expected}
		}
		o.addRow(c, t.Cols)
		sums.check(name, PartRSLo, r, t.RSLo[r], int64(c.plusLo-c.minusLo))
		sums.check(name, PartRSHi, r, t.RSHi[r], int64(c.plusHi-c.minusHi))
	}
	err = checkFinite(name, PartSLo, t.SLo[r0:r1], r0)
	if err == nil {
		err = checkFinite(name, PartSHi, t.SHi[r0:r1], r0)
	}
	if err == nil && t.Bias != nil {
		err = checkFinite(name, PartBias, t.Bias[r0:r1], r0)
	}
	return o, sums, err
}

func (t *Int8Matrix) surveyRows(name string, r0, r1 int) (sums mismatches, err error) {
	for r := r0; r < r1; r++ {
		sums.check(name, PartWSum, r, t.WSum[r], sumInt8(t.Row(r)))
	}
	return sums, checkFinite(name, PartScale, t.Scale[r0:r1], r0)
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
