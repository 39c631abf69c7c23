//go:build unix

package coded

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time that this process has used, which other
// programs on the machine disturb less than the clock.
func cpuTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
