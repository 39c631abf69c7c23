package cpu

import (
	"runtime"
	"sync/atomic"

	"npack/ternary"
)

// pool is a fixed set of workers that do one section of work after the other.
// A forward pass has hundreds of sections, many only microseconds long, so a
// worker that is done first spins for a while and goes to sleep only if nothing
// comes. Each has a share of the work, which it claims piece by piece from the front,
// so that it reads on where it has read; a worker without any left claims from the
// back of others' shares: a core that is slowed takes less. The caller is worker 0.
type pool struct {
	workers []*worker
	spin    int // rounds of waiting before sleep

	// The section that runs, written before epoch is raised.
	do      func(w *worker, from, to int)
	grain   int
	running atomic.Int32 // workers, caller aside, that are not done
	guards  bool         // sections read the map of a file
	fault   atomic.Bool  // it could not be read
	epoch   atomic.Uint32
	closed  bool
}

// worker is one thread of a pool and its scratch memory.
type worker struct {
	index  int
	share  share
	sleeps atomic.Bool
	wake   chan struct{}
	scratch
}

// spinRounds is 100 to 200 microseconds of [pause]: longer than the serial parts
// between sections, far shorter than a person notices. Tests change it.
var spinRounds = 1000

func newPool(threads int) *pool {
	p := &pool{workers: make([]*worker, threads)}
	// Waiting by spinning needs a processor of its own.
	if threads <= runtime.GOMAXPROCS(0) {
		p.spin = spinRounds
	}
	for i := range p.workers {
		p.workers[i] = &worker{index: i, wake: make(chan struct{}, 1)}
		if i > 0 {
			go p.work(p.workers[i])
		}
	}
	return p
}

// run calls do(w, from, to) for pieces of 0..n, of grain or less, on all workers,
// and returns when all is done. n is below 2^32.
func (p *pool) run(n, grain int, do func(w *worker, from, to int)) {
	if len(p.workers) == 1 || n <= grain {
		if n > 0 {
			p.guard(func() { do(p.workers[0], 0, n) })
		}
		return
	}
	p.do, p.grain = do, grain
	for i, w := range p.workers {
		w.share.set(n*i/len(p.workers), n*(i+1)/len(p.workers))
	}
	p.start()
	p.guard(func() { p.pieces(p.workers[0]) })
	for i := 0; p.running.Load() != 0; i++ {
		p.wait(i)
	}
}

// start lets all workers into the next section.
func (p *pool) start() {
	p.running.Store(int32(len(p.workers) - 1))
	p.epoch.Add(1)
	for _, w := range p.workers[1:] {
		if w.sleeps.Swap(false) {
			w.wake <- struct{}{}
		}
	}
}

// guard calls do and notes if the map of a file could not be read. Without one a
// fault is a kernel's, and ends the program.
func (p *pool) guard(do func()) {
	if !p.guards {
		do()
	} else if ternary.Guard(func() error { do(); return nil }) != nil {
		p.fault.Store(true)
	}
}

// pieces does pieces of the section until none is left.
func (p *pool) pieces(w *worker) {
	for i := range p.workers {
		from := p.workers[(w.index+i)%len(p.workers)]
		for {
			first, end := from.share.claim(p.grain, i > 0)
			if first == end {
				break
			}
			p.do(w, first, end)
		}
	}
}

// share is a range of indices that nobody has claimed, its first in the upper half.
type share struct{ atomic.Uint64 }

func (s *share) set(first, end int) { s.Store(uint64(first)<<32 | uint64(end)) }

// claim takes n indices, or what is left, off the front or the back.
func (s *share) claim(n int, back bool) (first, end int) {
	for {
		old := s.Load()
		first, end = int(old>>32), int(uint32(old))
		n := min(n, end-first)
		next := old + uint64(n)<<32
		if back {
			next = old - uint64(n)
		}
		if n == 0 {
			return first, first
		}
		if s.CompareAndSwap(old, next) {
			if back {
				return end - n, end
			}
			return first, first + n
		}
	}
}

func (p *pool) work(w *worker) {
	for seen := uint32(0); ; {
		for i := 0; p.epoch.Load() == seen; i++ {
			if i < p.spin {
				p.wait(i)
				continue
			}
			w.sleeps.Store(true)
			// A section that started in between has either seen the flag, and a
			// wake-up is on its way, or has not, and the flag is still up.
			if p.epoch.Load() == seen || !w.sleeps.Swap(false) {
				<-w.wake
			}
		}
		seen++
		if p.closed {
			p.running.Add(-1)
			return
		}
		p.guard(func() { p.pieces(w) })
		p.running.Add(-1)
	}
}

// wait passes a moment; from time to time it lets other goroutines run.
func (p *pool) wait(round int) {
	if p.spin == 0 || round%64 == 63 {
		runtime.Gosched()
	} else {
		pause(5)
	}
}

// close ends the workers.
func (p *pool) close() {
	if p.closed {
		return
	}
	p.closed = true
	if len(p.workers) > 1 {
		p.start()
	}
}
