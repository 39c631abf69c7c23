package machine

import (
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

// tree makes a file system of "path": "text".
func tree(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// TestQuota: case A-21.
func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
	}{
		{"no control groups", nil, 0},
		{"version 2, no limit", map[string]string{
			"proc/self/cgroup": "0::/user.slice/run-1.scope\n", "sys/fs/cgroup/user.slice/run-1.scope/cpu.max": "max 100000\n"}, 0},
		{"version 2", map[string]string{
			"proc/self/cgroup": "0::/user.slice/run-1.scope\n", "sys/fs/cgroup/user.slice/run-1.scope/cpu.max": "200000 100000\n"}, 2},
		{"version 2, a parent is tighter", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "800000 100000\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 1.5},
		{"version 2 in a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5},
		{"version 2, path outside the mount", map[string]string{
			"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3},
		{"version 1", map[string]string{
			"proc/self/cgroup": "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us": "250000\n", "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000\n"}, 2.5},
		{"version 1 seen from inside", map[string]string{
			"proc/self/cgroup":                   "4:cpu,cpuacct:/docker/1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 4},
		{"version 1, no limit", map[string]string{
			"proc/self/cgroup":                   "4:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 0},
		{"nonsense", map[string]string{"proc/self/cgroup": "x\n::\n0::/\n", "sys/fs/cgroup/cpu.max": "a b c"}, 0},
	} {
		if got := cpuQuota(tree(c.files)); got != c.want {
			t.Errorf("%s: %v processors, want %v", c.name, got, c.want)
		}
	}
}

func TestThreads(t *testing.T) {
	for _, c := range []struct {
		affinity int
		quota    float64
		want     int
		why      string
	}{
		{8, 0, 8, "8 logical"}, {8, 2, 2, "2.00 processors"}, {8, 2.9, 2, "2.90"}, {8, 0.5, 1, "0.50"}, {2, 16, 2, "2 logical"},
		{2, 2, 2, "2 logical"}, {4, 1e300, 4, "4 logical"},
	} {
		if got := threads(c.affinity, c.quota); got.Use != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("affinity %d, quota %v: %+v, want %d because of %q", c.affinity, c.quota, got, c.want, c.why)
		}
	}
	if got := ReadThreads(); got.Use < 1 || got.Use > runtime.NumCPU() {
		t.Errorf("on this machine: %+v", got)
	}
}

func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		name        string
		files       map[string]string
		limit, left int64
	}{
		{"none", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0, 0},
		{"version 2", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1000\n",
			"sys/fs/cgroup/a/memory.current": "700\n", "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 200\nfile 3\n"}, 1000, 500},
		{"a parent has less left", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1000\n",
			"sys/fs/cgroup/a/memory.current": "100\n", "sys/fs/cgroup/memory.max": "2000", "sys/fs/cgroup/memory.current": "1900"}, 2000, 100},
		{"over the limit", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "10", "sys/fs/cgroup/memory.current": "20"}, 10, 0},
		{"version 1", map[string]string{"proc/self/cgroup": "9:memory:/d\n", "sys/fs/cgroup/memory/d/memory.limit_in_bytes": "5000",
			"sys/fs/cgroup/memory/d/memory.usage_in_bytes": "1000", "sys/fs/cgroup/memory/d/memory.stat": "total_inactive_file 500"}, 5000, 4500},
		{"version 1, no limit", map[string]string{"proc/self/cgroup": "9:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 0, 0},
	} {
		if limit, left := memoryLimit(tree(c.files)); limit != c.limit || left != c.left {
			t.Errorf("%s: limit %d with %d left, want %d with %d", c.name, limit, left, c.limit, c.left)
		}
	}
}

func TestThisMachine(t *testing.T) {
	c, m := ReadCPU(), ReadMemory()
	t.Logf("%+v\n%+v", c, m)
	if c.Logical < 1 {
		t.Errorf("%d processors", c.Logical)
	}
	if now, peak := ProcessMemory(); now < 1<<20 || peak < now || m.Total > 0 && peak > m.Total {
		t.Errorf("this process has %d bytes and had %d", now, peak)
	}
	switch runtime.GOOS {
	case "linux", "darwin", "windows":
		if m.Total < 1<<26 || m.Available > m.Total {
			t.Errorf("memory %+v", m)
		}
	}
}
