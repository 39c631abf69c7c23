// Package membw measures how fast this machine reads memory, the yardstick for
// everything that streams weights.
package membw

import (
	"encoding/binary"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Result is one measurement.
type Result struct {
	Threads        int
	Bytes          int     // size of the memory that was read again and again
	BytesPerSecond float64 // of the best pass, all threads together
}

// Buffer is memory to read, several times the last-level cache.
type Buffer struct {
	b       []byte
	release func()
}

// DefaultSize is 16 times the last-level cache of most machines, in bytes.
const DefaultSize = 512 << 20

// piece is what a thread reads at once, in bytes: a fraction of a millisecond.
// One that is held up by other programs takes fewer.
const piece = 4 << 20

// New returns a buffer of size bytes, rounded up to whole pieces of 4 MiB.
func New(size int) *Buffer {
	b, release := allocate((size + piece - 1) / piece * piece)
	// Written once, so that the pages are the buffer's own and not the
	// system's one page of zeros.
	for i := 0; i < len(b); i += 8 {
		b[i] = 1
	}
	return &Buffer{b, release}
}

// heap allocates as Go does, and gives back at once: the buffer may be much of
// the memory that there is.
func heap(n int) (b []byte, release func()) { return make([]byte, n), debug.FreeOSMemory }

// Close gives the memory back.
func (b *Buffer) Close() {
	b.b = nil
	b.release()
}

// Read measures with the given number of threads, which share the buffer. It
// takes about d and makes at least two passes; the best one counts.
//
// Each thread reads four streams at a time, in huge pages, without a prefetch
// of its own: on an AMD EPYC (Zen 3) this is the fastest of 36 ways, 20 GB/s in
// one thread, where one stream reaches 14 and a search by the standard library
// in ordinary pages 9.
func (b *Buffer) Read(threads int, d time.Duration) Result {
	best := time.Duration(1<<63 - 1)
	for start, passes := time.Now(), 0; passes < 2 || time.Since(start) < d; passes++ {
		var next atomic.Int64
		read := func() {
			for at := next.Add(piece); at <= int64(len(b.b)); at = next.Add(piece) {
				if or(b.b[at-piece:at]) == 0 {
					panic("membw: what was written is not there")
				}
			}
		}
		t := time.Now()
		var wg sync.WaitGroup
		for range threads - 1 {
			wg.Go(read)
		}
		read()
		wg.Wait()
		best = min(best, time.Since(t))
	}
	return Result{threads, len(b.b), float64(len(b.b)) / best.Seconds()}
}

// Read measures as [Buffer.Read] does, with a buffer of its own of size bytes.
func Read(threads, size int, d time.Duration) Result {
	b := New(size)
	defer b.Close()
	return b.Read(threads, d)
}

// orGeneric is the definition of [or].
func orGeneric(b []byte) (r uint64) {
	for ; len(b) >= 32; b = b[32:] {
		r |= binary.NativeEndian.Uint64(b) | binary.NativeEndian.Uint64(b[8:]) |
			binary.NativeEndian.Uint64(b[16:]) | binary.NativeEndian.Uint64(b[24:])
	}
	return r
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
