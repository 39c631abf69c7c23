package cpu

import (
	"runtime"
	"sync/atomic"
)

// pool is a fixed set of workers that do one section of work after the other.
// A forward pass has hundreds of sections, many only microseconds long, so a
// worker that is done first spins for a while and goes to sleep only if nothing
// comes. Work is claimed piece by piece: a core that is slowed by others takes
// less of it. The caller is worker 0.
type pool struct {
	workers []*worker
	spin    int // rounds of waiting before sleep

	// The section that runs, written before epoch is raised.
	do       func(w *worker, from, to int)
	n, grain int
	next     atomic.Int64 // first index that nobody has claimed
	running  atomic.Int32 // workers, caller aside, that are not done
	epoch    atomic.Uint32
	closed   bool
}

// worker is one thread of a pool and its scratch memory.
type worker struct {
	sleeps atomic.Bool
	wake   chan struct{}
	scratch
}

// spinRounds is 100 to 200 microseconds of [pause]: longer than the serial parts
// between sections, far shorter than a person notices.
const spinRounds = 1000

func newPool(threads int) *pool {
	p := &pool{workers: make([]*worker, threads)}
	// Waiting by spinning needs a processor of its own.
	if threads <= runtime.GOMAXPROCS(0) {
		p.spin = spinRounds
	}
	for i := range p.workers {
		p.workers[i] = &worker{wake: make(chan struct{}, 1)}
		if i > 0 {
			go p.work(p.workers[i])
		}
	}
	return p
}

// run calls do(w, from, to) for pieces of 0..n that are multiples of grain, but
// for the last, on all workers, and returns when all is done.
func (p *pool) run(n, grain int, do func(w *worker, from, to int)) {
	if len(p.workers) == 1 || n <= grain {
		if n > 0 {
			do(p.workers[0], 0, n)
		}
		return
	}
	p.do, p.n, p.grain = do, n, grain
	p.start()
	p.pieces(p.workers[0])
	for i := 0; p.running.Load() != 0; i++ {
		p.wait(i)
	}
}

// start lets all workers into the next section.
func (p *pool) start() {
	p.next.Store(0)
	p.running.Store(int32(len(p.workers) - 1))
	p.epoch.Add(1)
	for _, w := range p.workers[1:] {
		if w.sleeps.Swap(false) {
			w.wake <- struct{}{}
		}
	}
}

// pieces does pieces of the section until none is left.
func (p *pool) pieces(w *worker) {
	for {
		from := int(p.next.Add(int64(p.grain))) - p.grain
		if from >= p.n {
			return
		}
		p.do(w, from, min(from+p.grain, p.n))
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
		p.pieces(w)
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
