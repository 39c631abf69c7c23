package coded

import (
	"context"
	"runtime"
	"sync"
)

// chunkBytes is the size of the pieces in which payloads and sources are held: a whole
// number of batches of a plane.
const chunkBytes = 168 * batchBytes

// A chunk has window spare bytes, for loads and stores that reach past the end.
type chunk [chunkBytes + window]byte

// defaultMemory is what a whole run may hold in chunks. The largest blocks of
// an 8B model take some 30 MB with what they become (ternary) or 62 MB (int8),
// so that eight or four of them are on their way: more than MD5 can follow.
const defaultMemory = 256 << 20

// line is a row of units that are made in order by one goroutine, worked on in
// any order by several, and finished in order by one.
//
// Memory is a number of chunks. The maker alone takes from it, in order and for
// each unit all that it will need, so that the oldest unit can always be
// finished.
type line struct {
	ctx    context.Context
	queue  chan *unit // in order
	work   chan *unit
	tokens chan struct{} // chunks that may be taken
	total  int           // chunks in all
}

// unit is one block, or a part of a raw or very large one.
type unit struct {
	block   *Block
	last    bool                        // the unit ends its block
	payload func() (*chunk, int, error) // as payload.next: what is to be decoded
	ready   chan struct{}               // nil if there is nothing to do, else closed by the worker who did it
	pieces  [][]byte                    // what it gives, in order
	chunks  []*chunk                    // what the pieces lie in
	tokens  int                         // given back when finished
	counts  *counts                     // of the symbols, where wanted
	err     error
}

// threadsOf returns the number of workers to start.
func threadsOf(n int) int {
	if n <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}

// run finishes the units that fill puts in the line and that each thread's serve
// works on, until poll gives it none. The error of fill comes after all units
// that it put, and run returns the first error in order, so that it does not
// depend on timing.
//
// If run ends early fill may still be in a call that does not heed ctx, such
// as reading from a network: run does not wait for it.
func run(ctx context.Context, threads int, memory int64, fill func(l *line) error, serve func(l *line), finish func(u *unit) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if memory <= 0 {
		memory = defaultMemory
	}
	threads = threadsOf(threads)
	l := &line{ctx: ctx, total: int(max(memory/chunkBytes, 8))}
	l.queue, l.work = make(chan *unit, 4*threads+16), make(chan *unit, 4*threads+16)
	l.tokens = make(chan struct{}, l.total)
	for range l.total {
		l.tokens <- struct{}{}
	}
	go func() {
		defer close(l.work)
		defer close(l.queue)
		if err := fill(l); err != nil {
			l.put(&unit{err: err})
		}
	}()
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for range threads {
		workers.Go(func() { serve(l) })
	}
	for {
		u, err := l.next()
		if u == nil || err != nil {
			return err
		}
		if u.err != nil {
			return u.err
		}
		if err := finish(u); err != nil {
			return err
		}
		for _, c := range u.chunks {
			chunks.Put(c)
		}
		l.give(u.tokens)
	}
}

// next waits for the next unit to be ready and returns it, nil after the last.
func (l *line) next() (*unit, error) {
	var u *unit
	select {
	case u = <-l.queue:
	case <-l.ctx.Done():
	}
	if u != nil && u.ready != nil {
		select {
		case <-u.ready:
		case <-l.ctx.Done():
		}
	}
	return u, l.ctx.Err()
}

// poll returns a unit that is to be worked on. It returns nil if there is none
// yet or, if it shall wait, will be none.
func (l *line) poll(wait bool) *unit {
	if !wait {
		select {
		case u := <-l.work:
			return u
		default:
			return nil
		}
	}
	select {
	case u := <-l.work:
		return u
	case <-l.ctx.Done():
		return nil
	}
}

// put appends a unit.
func (l *line) put(u *unit) error {
	if u.ready != nil {
		select {
		case l.work <- u:
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
	select {
	case l.queue <- u:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// take waits until n chunks may be allocated, n at most [line.total].
func (l *line) take(n int) error {
	for range n {
		select {
		case <-l.tokens:
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
	return nil
}

func (l *line) give(n int) {
	for range n {
		l.tokens <- struct{}{}
	}
}

// chunks are used again; their contents are left over from before.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk() *chunk { return chunks.Get().(*chunk) }

// chunksFor is the number of chunks that n bytes take.
func chunksFor(n int64) int64 { return n/chunkBytes + 1 }

// add appends the first n bytes of c.
func (u *unit) add(c *chunk, n int) {
	u.chunks = append(u.chunks, c)
	u.pieces = append(u.pieces, c[:n])
}
