package ternary

import (
	"context"
	"runtime"
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
			mu.Lock()
			defer mu.Unlock()
			for next < failed && ctx.Err() == nil {
				i := next
				next++
				mu.Unlock()
				err := jobs[i].do()
				mu.Lock()
				if err != nil && i < failed {
					failed, first = i, err
				}
				done += jobs[i].bytes
				if o.Progress != nil {
					o.Progress(done, total)
				}
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil && first == nil {
		return err
	}
	return first
}
