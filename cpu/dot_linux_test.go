package cpu

import (
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
	benchLinears(b, func(b *testing.B, k *kernels, l *linear) {
		if k == &generic {
			b.Skip("would take minutes")
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w, tile := farBytes(), benchBlocks*12*l.rows
		w = w[:len(w)/tile*tile]
		x, _ := l.formOf(randomDigits(benchBlocks * l.planes * blockCols))
		sums := make([]int32, 2*l.planes*l.rows)
		b.SetBytes(int64(len(w)))
		start := spent()
		for b.Loop() {
			for at := 0; at < len(w); at += tile {
				l.dot(sums, w[at:at+tile], x, benchBlocks)
			}
		}
		b.ReportMetric(float64(len(w)*8/3)*float64(b.N)/(spent()-start).Seconds()/1e9, "Gweights/cpu-s")
	})
}
