//go:build !unix

package coded

import "time"

var started = time.Now()

// cpuTime is the clock where the processor time is not at hand.
func cpuTime() time.Duration { return time.Since(started) }
