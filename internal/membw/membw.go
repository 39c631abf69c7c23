// Package membw measures how fast this machine reads memory, the yardstick for
// everything that streams weights.
package membw

import (
	"bytes"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// Result is one measurement.
type Result struct {
	Threads        int
	Bytes          int     // size of the buffer that was read again and again
	BytesPerSecond float64 // of the best pass, all threads together
}

// Read measures with the given number of threads, each on a part of its own of
// a new buffer of size bytes: take several times the last-level cache. It takes
// about d and makes at least two passes.
//
// Reading is a search by the standard library, which uses vector instructions
// on all platforms that matter and does little beside loading.
func Read(threads, size int, d time.Duration) Result {
	// Written once, so that the pages are the buffer's own and not the
	// system's one page of zeros.
	buf := bytes.Repeat([]byte{1}, size)
	part := size / threads
	best := time.Duration(1<<63 - 1)
	for start, passes := time.Now(), 0; passes < 2 || time.Since(start) < d; passes++ {
		t := time.Now()
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() {
				if bytes.IndexByte(buf[i*part:(i+1)*part], 2) >= 0 {
					panic("membw: found a byte that nobody wrote")
				}
			})
		}
		wg.Wait()
		best = min(best, time.Since(t))
	}
	debug.FreeOSMemory() // buf goes back at once: it may be much of what there is
	return Result{threads, part * threads, float64(part*threads) / best.Seconds()}
}

// ReadFile measures how fast the first size bytes of a file are read with the
// system's read call, by the given number of threads: what a program that does
// not map files could reach. Of two passes the second counts, when the file is
// in the system's cache if there is room. It reads less if the file is shorter.
func ReadFile(path string, threads int, size int64) (Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Result{}, err
	}
	const buffer = 256 << 10 // fits a second-level cache
	part := min(size, st.Size()) / int64(threads)
	errs := make([]error, threads)
	var took time.Duration
	for range 2 {
		start := time.Now()
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() {
				section := io.NewSectionReader(f, int64(i)*part, part)
				_, errs[i] = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{section}, make([]byte, buffer))
			})
		}
		wg.Wait()
		took = time.Since(start)
	}
	for _, err := range errs {
		if err != nil {
			return Result{}, err
		}
	}
	n := int(part) * threads
	return Result{threads, n, float64(n) / took.Seconds()}, nil
}
