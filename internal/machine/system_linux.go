package machine

import (
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
)

func online() int { return cpuList(read(os.DirFS("/"), "sys/devices/system/cpu/online")) }

// cpuList counts the processors of a list such as "0-3,8".
func cpuList(s string) int {
	n := 0
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, errA := strconv.Atoi(lo)
		b, errB := strconv.Atoi(hi)
		if errA != nil || errB != nil || b < a {
			return runtime.NumCPU()
		}
		n += b - a + 1
	}
	return n
}

func systemMemory() Memory { return meminfo(os.DirFS("/")) }

func meminfo(root fs.FS) Memory {
	kib := func(key string) int64 {
		for line := range strings.Lines(read(root, "proc/meminfo")) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == key {
				return int64(number(f[1])) * 1024
			}
		}
		return 0
	}
	return Memory{Total: kib("MemTotal:"), Available: kib("MemAvailable:")}
}
