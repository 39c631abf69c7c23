package machine

import (
	"io/fs"
	"os"
	"strings"
)

// Clock is what the system tells about speed and heat now. What it does not tell
// is zero; outside Linux, and in most virtual machines, that is most of it.
type Clock struct {
	MHz       float64 `json:"mhz,omitempty"`       // mean over the processors
	MaxMHz    float64 `json:"max_mhz,omitempty"`   // the most that one may reach
	Governor  string  `json:"governor,omitempty"`  // what chooses the frequency
	Celsius   float64 `json:"celsius,omitempty"`   // the hottest sensor of the processor or, if none is named so, of the machine
	Throttled int64   `json:"throttled,omitempty"` // times that cores were slowed down because of heat, since the start
}

// ReadClock asks the system now.
func ReadClock() Clock { return clock(os.DirFS("/")) }

func clock(root fs.FS) Clock {
	const cpus = "sys/devices/system/cpu/cpu[0-9]*/"
	var c Clock
	numbers := func(pattern string) (list []float64) {
		names, _ := fs.Glob(root, pattern)
		for _, n := range names {
			if v := number(read(root, n)); v > 0 {
				list = append(list, v)
			}
		}
		return list
	}
	c.MHz = mean(numbers(cpus+"cpufreq/scaling_cur_freq")) / 1000
	if c.MHz == 0 {
		c.MHz = mean(cpuinfoMHz(root))
	}
	c.MaxMHz = largest(numbers(cpus+"cpufreq/cpuinfo_max_freq")) / 1000
	c.Governor = read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	for _, n := range numbers(cpus + "thermal_throttle/core_throttle_count") {
		c.Throttled += int64(n)
	}
	c.Celsius = processorHeat(root, numbers) / 1000
	if c.Celsius == 0 {
		c.Celsius = largest(numbers("sys/class/thermal/thermal_zone*/temp")) / 1000
	}
	return c
}

// processorHeat returns the hottest sensor of the drivers that watch processors,
// in thousandths of a degree; 0 if there is none.
func processorHeat(root fs.FS, numbers func(string) []float64) float64 {
	heat := 0.0
	names, _ := fs.Glob(root, "sys/class/hwmon/hwmon*/name")
	for _, n := range names {
		switch read(root, n) {
		case "coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal":
			heat = max(heat, largest(numbers(strings.TrimSuffix(n, "name")+"temp*_input")))
		}
	}
	return heat
}

// cpuinfoMHz is what x86 tells of its processors.
func cpuinfoMHz(root fs.FS) (list []float64) {
	for line := range strings.Lines(read(root, "proc/cpuinfo")) {
		if key, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "cpu MHz" {
			whole, _, _ := strings.Cut(strings.TrimSpace(v), ".")
			list = append(list, number(whole))
		}
	}
	return list
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, v := range list {
		sum += v
	}
	return sum / float64(max(1, len(list)))
}

func largest(list []float64) float64 {
	most := 0.0
	for _, v := range list {
		most = max(most, v)
	}
	return most
}
