//go:build !linux

package machine

import "runtime"

// ProcessMemory returns what this process has in memory now and the most that it
// ever had, in bytes: what Go has from the system, which is most of it.
func ProcessMemory() (now, peak int64) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased), int64(m.Sys)
}

// LoadAverage returns how many processes have wanted to run in the last minute,
// 0 if unknown.
func LoadAverage() float64 { return 0 }
