// Package machine says what this machine lets this process use: processors,
// threads and memory, with the limits that a container or a scheduler sets.
package machine

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// CPU describes the processor.
type CPU struct {
	Model    string   `json:"model"`    // as the processor names itself; may be empty
	Features []string `json:"features"` // instruction set extensions, sorted
	Logical  int      `json:"logical"`  // processors online in the machine
	Physical int      `json:"physical"` // cores, 0 where unknown
}

// ReadCPU asks the processor.
func ReadCPU() CPU {
	c := CPU{Model: strings.Join(strings.Fields(cpuid.CPU.BrandName), " "), Features: cpuid.CPU.FeatureSet(), Logical: online(), Physical: cpuid.CPU.PhysicalCores}
	slices.Sort(c.Features)
	return c
}

// Threads is how many threads are worth starting, and what bounds them.
type Threads struct {
	Affinity int     `json:"affinity"`        // logical processors that this process may run on
	Quota    float64 `json:"quota,omitempty"` // processors' worth of time that a control group grants, 0 without a limit
	Use      int     `json:"use"`
	Why      string  `json:"why"`
}

// ReadThreads returns min(affinity, quota rounded down), at least 1. More
// threads than the quota would spend part of every period suspended, all at
// once, which is many times slower than fewer threads.
func ReadThreads() Threads { return threads(runtime.NumCPU(), cpuQuota(os.DirFS("/"))) }

func threads(affinity int, quota float64) Threads {
	t := Threads{Affinity: affinity, Quota: quota, Use: affinity, Why: fmt.Sprintf("this process may run on %d logical processors", affinity)}
	if whole := int(min(math.Floor(quota), math.MaxInt32)); quota > 0 && whole < affinity {
		t.Use = max(1, whole)
		t.Why = fmt.Sprintf("a control group grants %.2f processors of time, rounded down, at least 1", quota)
	}
	return t
}

// Memory is in bytes; 0 means unknown.
type Memory struct {
	Total     int64 `json:"total"`           // of the machine
	Limit     int64 `json:"limit,omitempty"` // of the control group, 0 without
	Available int64 `json:"available"`       // that can be used without swapping and within the limit; caches of files count as free
}

// ReadMemory asks the system now.
func ReadMemory() Memory {
	m := systemMemory()
	if limit, left := memoryLimit(os.DirFS("/")); limit > 0 {
		m.Limit = limit
		if m.Available == 0 || left < m.Available {
			m.Available = left
		}
	}
	return m
}
