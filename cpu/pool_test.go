package cpu

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// Every index is done once, whatever the threads, pieces and sections before.
func TestPool(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 7} {
		p := newPool(threads)
		for _, n := range []int{0, 1, 2, 3, 6, 7, 8, 100, 1001} {
			for _, grain := range []int{1, 2, 7, 64} {
				done := make([]atomic.Int32, n)
				p.run(n, grain, func(_ *worker, from, to int) {
					if from >= to || threads > 1 && n > grain && to-from > grain {
						t.Errorf("a piece from %d to %d in %d threads, %d indices, grain %d", from, to, threads, n, grain)
					}
					for i := from; i < to; i++ {
						done[i].Add(1)
					}
				})
				for i := range done {
					if times := done[i].Load(); times != 1 {
						t.Fatalf("%d threads, %d indices, grain %d: index %d is done %d times", threads, n, grain, i, times)
					}
				}
			}
		}
		p.close()
	}
}

// A worker that is held up keeps the piece it has; others do the rest of its share.
func TestPoolSteals(t *testing.T) {
	for slow := range 3 {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			p := newPool(3)
			defer p.close()
			const n = 30
			var held, others atomic.Int32
			p.run(n, 1, func(w *worker, from, to int) {
				if w.index != slow {
					others.Add(1)
					time.Sleep(time.Millisecond / 10)
					return
				}
				held.Add(1)
				for deadline := time.Now().Add(20 * time.Second); others.Load() < n-1 && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond / 10)
				}
			})
			if held.Load() > 1 || held.Load()+others.Load() != n {
				t.Errorf("the slow worker did %d pieces, the others %d of %d", held.Load(), others.Load(), n)
			}
		})
	}
}
