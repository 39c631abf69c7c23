package machine

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Control groups, versions 1 and 2. A limit binds all groups below it, so each
// group from the process's own up to the root is asked. Within a container the
// path in /proc/self/cgroup may not exist under the mount; the walk upwards
// then ends at the mount's root, which is the container's own group.
//
// The root of all is a file system, so that tests can give any.

const cgroupMount = "sys/fs/cgroup"

// cgroupDirs returns the directories that hold the limits of a controller
// ("cpu", "memory"), from the process's own group upwards, for version 2 and
// for version 1.
func cgroupDirs(root fs.FS, controller string) (v2, v1 []string) {
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil, nil
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // id:controllers:path
		if len(f) != 3 {
			continue
		}
		if f[0] == "0" && f[1] == "" {
			v2 = append(v2, upwards(cgroupMount, f[2])...)
			v2 = append(v2, upwards(cgroupMount+"/unified", f[2])...)
		}
		for _, c := range strings.Split(f[1], ",") {
			if c == controller {
				v1 = append(v1, upwards(cgroupMount+"/"+controller, f[2])...)
				v1 = append(v1, upwards(cgroupMount+"/"+f[1], f[2])...)
			}
		}
	}
	return v2, v1
}

// upwards lists mount/group, its parents, and mount.
func upwards(mount, group string) []string {
	var dirs []string
	for g := path.Clean("/" + group); g != "/"; g = path.Dir(g) {
		dirs = append(dirs, mount+g)
	}
	return append(dirs, mount)
}

// cpuQuota returns the processors' worth of time that is granted, 0 for no limit.
func cpuQuota(root fs.FS) float64 {
	least := 0.0
	note := func(quota, period float64) {
		if quota > 0 && period > 0 && (least == 0 || quota/period < least) {
			least = quota / period
		}
	}
	v2, v1 := cgroupDirs(root, "cpu")
	for _, d := range v2 {
		if f := strings.Fields(read(root, d+"/cpu.max")); len(f) == 2 { // "max 100000": no limit
			note(number(f[0]), number(f[1]))
		}
	}
	for _, d := range v1 {
		note(number(read(root, d+"/cpu.cfs_quota_us")), number(read(root, d+"/cpu.cfs_period_us"))) // -1: no limit
	}
	return least
}

// memoryLimit returns the tightest limit and what is left of it, in bytes; 0
// for no limit. Pages of files that were not used lately can be dropped at
// once and count as left.
func memoryLimit(root fs.FS) (limit, left int64) {
	note := func(dir, maxFile, usedFile, inactive string) {
		most := number(read(root, dir+"/"+maxFile))
		if most <= 0 || most >= 1<<60 { // "max", or version 1's word for it
			return
		}
		used := number(read(root, dir+"/"+usedFile)) - stat(root, dir+"/memory.stat", inactive)
		if l := int64(max(0, most-max(0, used))); limit == 0 || l < left {
			limit, left = int64(most), l
		}
	}
	v2, v1 := cgroupDirs(root, "memory")
	for _, d := range v2 {
		note(d, "memory.max", "memory.current", "inactive_file")
	}
	for _, d := range v1 {
		note(d, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
	}
	return limit, left
}

// read returns a small file's text, "" if there is none.
func read(root fs.FS, name string) string {
	b, _ := fs.ReadFile(root, name)
	return strings.TrimSpace(string(b))
}

// number returns 0 for what is no number ("max").
func number(s string) float64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return float64(v)
}

// stat returns the value of a line "key value" in a file.
func stat(root fs.FS, name, key string) float64 {
	b, _ := fs.ReadFile(root, name)
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), " "); ok && k == key {
			return number(strings.TrimSpace(v))
		}
	}
	return 0
}
