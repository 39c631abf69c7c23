package membw

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkReadThread reads memory in one thread and counts the time that the
// thread has run: the yardstick where other programs run too.
// internal/_peers/speed.py reads its figure.
func BenchmarkReadThread(b *testing.B) {
	spent := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return time.Duration(t.Nano())
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := New(DefaultSize)
	defer m.Close()
	b.SetBytes(DefaultSize)
	start := spent()
	for b.Loop() {
		for at := 0; at < len(m.b); at += piece {
			or(m.b[at : at+piece])
		}
	}
	b.ReportMetric(DefaultSize*float64(b.N)/(spent()-start).Seconds()/1e9, "GB/cpu-s")
}
