package main

import (
	"fmt"

	"npack/ternary"
)

// readAhead reads the matrices and tables of a model in the order in which
// [native.Write] asks for them, one step ahead of it: while it writes what it
// has, the next rows are read. Its method rows stands in for m.Rows.
type readAhead struct {
	pieces chan piece
	free   chan ternary.Part // their memory is used again
	stop   chan struct{}
}

// piece is some rows of a tensor, or the error of reading them.
type piece struct {
	name   string
	r0, r1 int
	part   ternary.Part
	err    error
}

func newReadAhead(m *ternary.Model) *readAhead {
	a := &readAhead{pieces: make(chan piece), free: make(chan ternary.Part, 2), stop: make(chan struct{})}
	read := m.Rows
	go func() {
		defer close(a.pieces)
		for t := range m.Tensors() {
			switch {
			case t.Ternary != nil:
				if !a.read(read, t, 0, t.Ternary.Rows) {
					return
				}
			case t.Int8 != nil:
				for r0, r1 := range t.Chunks() {
					if !a.read(read, t, r0, r1) {
						return
					}
				}
			}
		}
	}()
	return a
}

// read reads rows and hands them on. It reports false when nobody wants more.
func (a *readAhead) read(read func(*ternary.Part, ternary.Tensor, int, int) error, t ternary.Tensor, r0, r1 int) bool {
	p := piece{name: t.Name, r0: r0, r1: r1}
	select {
	case p.part = <-a.free:
	default:
	}
	p.err = read(&p.part, t, r0, r1)
	select {
	case a.pieces <- p:
		return p.err == nil
	case <-a.stop:
		return false
	}
}

// rows gives the next rows, which have to be those that are asked for.
func (a *readAhead) rows(p *ternary.Part, t ternary.Tensor, r0, r1 int) error {
	next, ok := <-a.pieces
	if !ok || next.name != t.Name || next.r0 != r0 || next.r1 != r1 {
		return fmt.Errorf("rows %d to %d of %q are asked for out of order", r0, r1, t.Name)
	}
	select {
	case a.free <- *p:
	default:
	}
	*p = next.part
	return next.err
}

// close ends the reading.
func (a *readAhead) close() {
	close(a.stop)
	for range a.pieces {
	}
}
