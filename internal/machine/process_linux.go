package machine

import (
	"os"
	"strconv"
	"strings"
)

// ProcessMemory returns what this process has in memory now and the most that it
// ever had, in bytes.
func ProcessMemory() (now, peak int64) {
	for line := range strings.Lines(read(os.DirFS("/"), "proc/self/status")) {
		if f := strings.Fields(line); len(f) == 3 {
			switch f[0] {
			case "VmRSS:":
				now = int64(number(f[1])) * 1024
			case "VmHWM:":
				peak = int64(number(f[1])) * 1024
			}
		}
	}
	return now, peak
}

// LoadAverage returns how many processes have wanted to run in the last minute,
// 0 if unknown.
func LoadAverage() float64 {
	first, _, _ := strings.Cut(read(os.DirFS("/"), "proc/loadavg"), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}
