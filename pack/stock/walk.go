package stock

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"

	"npack/gguf"
	"npack/ternary"
)

// Error says how far a file's weights are from the container's, relative to
// them, over the weights that are not 0; those that are stay 0.
type Error struct {
	Largest, Mean float64
	Weights       int64 // not 0
}

func (e *Error) add(o Error) {
	if n := e.Weights + o.Weights; n > 0 {
		e.Mean += (o.Mean - e.Mean) * float64(o.Weights) / float64(n)
		e.Weights = n
	}
	e.Largest = max(e.Largest, o.Largest)
}

// Errors are those of the linears and of the embeddings.
type Errors struct{ Linear, Table Error }

// Options say how a walk over the weights is done. The zero value is usual.
type Options struct {
	Threads  int // 0 means GOMAXPROCS
	Progress func(done, total int64)
}

// Measure encodes the tensors and compares what they decode to with m. Weights
// that break a rule of the model are a [*ternary.Error].
func Measure(ctx context.Context, m *ternary.Model, tensors []Tensor, o Options) (Errors, error) {
	var e Errors
	err := walk(ctx, m, tensors, o, true, func(p *piece) error {
		if p.t.source.Int8 != nil {
			e.Table.add(p.err)
		} else if p.t.source.Ternary != nil {
			e.Linear.add(p.err)
		}
		return nil
	})
	return e, err
}

// Size is the length in bytes of the file that [Write] writes.
func Size(metadata []gguf.KV, tensors []Tensor) (int64, error) {
	h := header(metadata, tensors)
	if err := h.LayOut(); err != nil {
		return 0, err
	}
	return h.FileSize(), nil
}

// Write writes a file with this metadata. Errors of weights are those of
// [Measure].
func Write(ctx context.Context, w io.Writer, m *ternary.Model, metadata []gguf.KV, tensors []Tensor, o Options) error {
	h := header(metadata, tensors)
	g, err := gguf.NewWriter(w, &h)
	if err != nil {
		return err
	}
	err = walk(ctx, m, tensors, o, false, func(p *piece) error {
		_, err := g.Write(p.data)
		return err
	})
	if err != nil {
		return err
	}
	return g.Close()
}

func header(metadata []gguf.KV, tensors []Tensor) gguf.Header {
	h := gguf.Header{Metadata: metadata}
	for i := range tensors {
		t := &tensors[i]
		h.Tensors = append(h.Tensors, gguf.Tensor{Name: t.Name, Dims: t.Dims(), Type: t.Type})
	}
	return h
}

// pieceWeights is about how many weights are encoded at a time: some MB of a
// file at most.
const pieceWeights = 1 << 19

// piece is some rows of a tensor on their way.
type piece struct {
	t      *Tensor
	r0, r1 int
	data   []byte
	err    Error // if it was asked for
	failed error
	done   chan struct{}
}

// walk encodes the tensors on several goroutines and gives the pieces to use in
// file order. A piece is valid during the call.
func walk(ctx context.Context, m *ternary.Model, tensors []Tensor, o Options, compare bool, use func(*piece) error) error {
	threads := o.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var total, done int64
	for i := range tensors {
		total += int64(tensors[i].Rows) * int64(tensors[i].Cols)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	free := make(chan *piece, threads+3) // as many as are under way
	work, order := make(chan *piece), make(chan *piece, cap(free))
	for range cap(free) {
		free <- &piece{}
	}
	wg.Go(func() {
		defer close(work)
		defer close(order)
		for i := range tensors {
			t := &tensors[i]
			step := max(1, pieceWeights/max(1, t.Cols))
			for r := 0; r < t.Rows; r += step {
				var p *piece
				select {
				case p = <-free:
				case <-ctx.Done():
					return
				}
				*p = piece{t: t, r0: r, r1: min(t.Rows, r+step), data: p.data, done: make(chan struct{})}
				select {
				case work <- p:
					order <- p // has room for all that are under way
				case <-ctx.Done():
					return
				}
			}
		}
	})
	for range threads {
		wg.Go(func() {
			e := worker{m: m, compare: compare}
			for p := range work {
				p.failed = ternary.Guard(func() error { return e.encode(p) })
				close(p.done)
			}
		})
	}
	for p := range order {
		<-p.done
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.failed != nil {
			return p.failed
		}
		if err := use(p); err != nil {
			return err
		}
		if done += int64(p.r1-p.r0) * int64(p.t.Cols); o.Progress != nil {
			o.Progress(done, total)
		}
		free <- p
	}
	return ctx.Err()
}

// worker encodes pieces in one goroutine.
type worker struct {
	m         *ternary.Model
	compare   bool
	t         *Tensor
	e         *Encoder
	rows      ternary.Part
	want, got []float32
}

func (w *worker) encode(p *piece) error {
	if w.t != p.t {
		w.t, w.e = p.t, p.t.NewEncoder()
	}
	part, err := p.t.part(w.m, &w.rows, p.r0, p.r1)
	if err != nil {
		return err
	}
	if err := part.Check(p.r0); err != nil { // blocks have no place for what is wrong
		return err
	}
	p.data = resize(p.data, (p.r1-p.r0)*p.t.RowSize())
	w.e.Encode(p.data, part)
	if w.compare {
		n := (p.r1 - p.r0) * p.t.Cols
		w.want, w.got = resize(w.want, n), resize(w.got, n)
		values(w.want, part)
		if err := p.t.Type.Dequantize(w.got, p.data); err != nil {
			return fmt.Errorf("tensor %q: %w", p.t.Name, err)
		}
		p.err = compare(w.got, w.want)
	}
	if part.Vector == nil {
		w.m.ReleaseTensor(part)
	}
	return nil
}

// part returns rows r0 to r1 of the model's tensor.
func (t *Tensor) part(m *ternary.Model, p *ternary.Part, r0, r1 int) (ternary.Tensor, error) {
	if t.source.Vector != nil {
		return t.source, nil
	}
	return m.ReadRows(p, t.source, r0, r1)
}

func compare(got, want []float32) (e Error) {
	sum := 0.0
	for i, w := range want {
		if w == 0 {
			if got[i] != 0 {
				e.Largest = math.Inf(1)
			}
			continue
		}
		rel := math.Abs(float64(got[i])-float64(w)) / math.Abs(float64(w))
		e.Largest = max(e.Largest, rel)
		sum += rel
		e.Weights++
	}
	if e.Weights > 0 {
		e.Mean = sum / float64(e.Weights)
	}
	return e
}

func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
