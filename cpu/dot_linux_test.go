package cpu

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkDotThread multiplies rows of 4,096 columns from memory in one thread
// and counts the time that the thread has run, so that it can be compared where
// other programs run too. internal/_peers/speed.py reads its figures.
func BenchmarkDotThread(b *testing.B) {
	spent := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return time.Duration(t.Nano())
	}
	benchSets(b, func(b *testing.B, k *kernels) {
		if k == &generic {
			b.Skip("would take minutes")
		}
		w, tile := farBytes(), benchBlocks*12*k.rows
		w = w[:len(w)/tile*tile]
		for planes := 1; planes <= 3; planes++ {
			b.Run(fmt.Sprintf("P=%d", planes), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				x, sums := randomDigits(benchBlocks*planes*blockCols), make([]int32, 2*planes*k.rows)
				b.SetBytes(int64(len(w)))
				start := spent()
				for b.Loop() {
					for at := 0; at < len(w); at += tile {
						k.dot[planes](sums, w[at:at+tile], x, benchBlocks)
					}
				}
				b.ReportMetric(float64(len(w)*8/3)*float64(b.N)/(spent()-start).Seconds()/1e9, "Gweights/cpu-s")
			})
		}
	})
}
