package ternary

import (
	"context"
	"iter"
	"slices"
)

// Part is some rows of a matrix or table, as a matrix or table of their own. Its
// memory is used again: one Part serves a whole walk.
type Part struct {
	Ternary Matrix
	Int8    Int8Matrix
}

// ReadRows makes p rows r0 to r1 of t, a matrix or table of m, and returns it as
// a tensor. Where m is in memory that is a view, otherwise a copy from its file,
// valid until p is used again.
func (m *Model) ReadRows(p *Part, t Tensor, r0, r1 int) (Tensor, error) {
	switch {
	case m.Rows != nil:
		if err := m.Rows(p, t, r0, r1); err != nil {
			return Tensor{}, err
		}
	case t.Ternary != nil:
		p.Ternary = t.Ternary.rows(r0, r1)
	default:
		p.Int8 = t.Int8.rows(r0, r1)
	}
	part := Tensor{Name: t.Name, Layer: t.Layer}
	if t.Ternary != nil {
		part.Ternary = &p.Ternary
	} else {
		part.Int8 = &p.Int8
	}
	return part, nil
}

func (t *Matrix) rows(r0, r1 int) Matrix {
	p := *t
	p.Rows = r1 - r0
	for _, b := range []*[]byte{&p.BP, &p.BN, &p.BR} {
		*b = (*b)[r0*t.Stride : r1*t.Stride]
	}
	p.SLo, p.SHi, p.RSLo, p.RSHi = t.SLo[r0:r1], t.SHi[r0:r1], t.RSLo[r0:r1], t.RSHi[r0:r1]
	if t.Bias != nil {
		p.Bias = t.Bias[r0:r1]
	}
	return p
}

func (t *Int8Matrix) rows(r0, r1 int) Int8Matrix {
	p := *t
	p.Rows, p.Q, p.Scale, p.WSum = r1-r0, t.Q[r0*t.Stride:r1*t.Stride], t.Scale[r0:r1], t.WSum[r0:r1]
	return p
}

// Size makes room in p for n rows of t, whose slices then have the lengths that
// the rows ask for and contents that mean nothing. Functions that [Model.Rows]
// is set to start with it.
func (p *Part) Size(t Tensor, n int) {
	if w := t.Ternary; w != nil {
		q := &p.Ternary
		q.Rows, q.Cols, q.ColsPad, q.Stride, q.BiasFlag = n, w.Cols, w.ColsPad, w.Stride, w.BiasFlag
		q.BP, q.BN, q.BR = resize(q.BP, n*w.Stride), resize(q.BN, n*w.Stride), resize(q.BR, n*w.Stride)
		q.SLo, q.SHi, q.RSLo, q.RSHi = resize(q.SLo, n), resize(q.SHi, n), resize(q.RSLo, n), resize(q.RSHi, n)
		return
	}
	w, q := t.Int8, &p.Int8
	q.Rows, q.Cols, q.ColsPad, q.Stride = n, w.Cols, w.ColsPad, w.Stride
	q.Q, q.Scale, q.WSum = resize(q.Q, n*w.Stride), resize(q.Scale, n), resize(q.WSum, n)
}

// Values writes the weights of row r of t into dst, which has their number: those
// of a table are the products of value and scale, rounded once to float32; a
// vector is one row.
func (t *Tensor) Values(dst []float32, r int) {
	switch {
	case t.Ternary != nil:
		t.Ternary.values(dst, r)
	case t.Int8 != nil:
		s := t.Int8.Scale[r]
		for i, q := range t.Int8.Row(r) {
			dst[i] = float32(q) * s
		}
	default:
		copy(dst, t.Vector)
	}
}

func (m *Matrix) values(dst []float32, r int) {
	lo, hi := m.SLo[r], m.SHi[r]
	// by bp + 2 bn + 4 br; the others are in no valid file
	values := [8]float32{1: lo, 2: -lo, 5: hi, 6: -hi}
	at := r * m.Stride
	for i := range dst {
		b, s := at+i/8, i%8
		dst[i] = values[m.BP[b]>>s&1|m.BN[b]>>s&1<<1|m.BR[b]>>s&1<<2]
	}
}

func resize[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }

// Chunks yields runs of rows of a matrix or table, each about a MiB of one plane.
func (t Tensor) Chunks() iter.Seq2[int, int] { return chunks(t.size()) }

// chunks yields runs of rows of about chunkBytes.
func chunks(rows, stride int) iter.Seq2[int, int] {
	return func(yield func(r0, r1 int) bool) {
		step := max(1, chunkBytes/max(1, stride))
		for r := 0; r < rows && yield(r, min(rows, r+step)); r += step {
		}
	}
}

// size returns rows and the bytes of one, in one plane.
func (t *Tensor) size() (rows, stride int) {
	if t.Ternary != nil {
		return t.Ternary.Rows, t.Ternary.Stride
	}
	return t.Int8.Rows, t.Int8.Stride
}

// Load reads all of m into memory and sets m.Rows to nil; it does nothing if m
// is in memory already. Whoever runs a model needs it. The error is that of
// reading, or ctx's, which is looked at between tensors; m is then as it was.
func (m *Model) Load(ctx context.Context, o WalkOptions) error {
	if m.Rows == nil {
		return nil
	}
	var tensors []Tensor
	for t := range m.Tensors() {
		if t.Vector == nil {
			tensors = append(tensors, t)
		}
	}
	parts := make([]Part, len(tensors))
	jobs := make([]job, len(tensors))
	for i, t := range tensors {
		jobs[i] = job{t.bytes(), func() error {
			rows, _ := t.size()
			return m.Rows(&parts[i], t, 0, rows)
		}}
	}
	if err := runJobs(ctx, jobs, o); err != nil {
		return err
	}
	for i, t := range tensors {
		if t.Ternary != nil {
			*t.Ternary = parts[i].Ternary
		} else {
			*t.Int8 = parts[i].Int8
		}
	}
	m.Rows = nil
	return nil
}
