package ternary

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
)

// WalkOptions say how a walk over all weights is done.
type WalkOptions struct {
	Threads int // 0 means GOMAXPROCS
	// Progress, if set, is told how many bytes of how many are done. Calls
	// do not overlap and done never falls.
	Progress func(done, total int64)
}

// job is a piece of work over some bytes of the model.
type job struct {
	bytes int64
	do    func() error
}

// Walk calls visit for all of m, in file order on several goroutines: for a
// vector once; for a matrix or table t in parts of about a MiB of one plane, rows
// from r0 on, r0 being a multiple of align. part is valid until visit returns.
// It stops within one part when ctx ends, and with the first part's error.
func (m *Model) Walk(ctx context.Context, o WalkOptions, align int, visit func(t, part Tensor, r0 int) error) error {
	parts := sync.Pool{New: func() any { return new(Part) }}
	var jobs []job
	for t := range m.Tensors() {
		if t.Vector != nil {
			jobs = append(jobs, job{t.bytes(), func() error { return visit(t, t, 0) }})
			continue
		}
		rows, stride := t.size()
		perRow := t.bytes() / int64(max(1, rows))
		n := (max(1, chunkBytes/max(1, stride)) + align - 1) / align * align
		for r0 := 0; r0 < rows; r0 += n {
			r1 := min(rows, r0+n)
			jobs = append(jobs, job{int64(r1-r0) * perRow, func() error {
				buf := parts.Get().(*Part)
				defer parts.Put(buf)
				part, err := m.ReadRows(buf, t, r0, r1)
				if err != nil {
					return err
				}
				return visit(t, part, r0)
			}})
		}
	}
	return runJobs(ctx, jobs, o)
}

// ErrFault is returned by walks over a mapped file that cannot be read any more.
var ErrFault = errors.New("a mapped file cannot be read: it was cut short while open, or its disk failed")

// Guard calls do and turns a fault of mapped memory, which would end the
// program, into [ErrFault]. What do starts on other goroutines needs its own.
func Guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if _, fault := r.(interface{ Addr() uintptr }); fault {
			err = ErrFault
		} else if r != nil {
			panic(r)
		}
	}()
	return do()
}

// runJobs does jobs on several goroutines, started in order. It returns ctx's
// error once ctx ends, within the time of one job; otherwise the error of the
// first job, in their order, that has one: which error is reported does not
// depend on timing.
func runJobs(ctx context.Context, jobs []job, o WalkOptions) error {
	threads := o.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	threads = min(threads, len(jobs))
	var total int64
	for i := range jobs {
		total += jobs[i].bytes
	}
	var (
		mu     sync.Mutex
		next   int
		failed = len(jobs) // index of the first failed job
		first  error
		done   int64
		wg     sync.WaitGroup
	)
	for range threads {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := i >= failed || ctx.Err() != nil
				mu.Unlock()
				if stop {
					return
				}
				err := Guard(jobs[i].do)
				mu.Lock()
				if err != nil && i < failed {
					failed, first = i, err
				}
				done += jobs[i].bytes
				if o.Progress != nil {
					o.Progress(done, total)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil && first == nil {
		return err
	}
	return first
}
