package machine

import "testing"

func TestClock(t *testing.T) {
	const cpu = "sys/devices/system/cpu/"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  Clock
	}{
		{"nothing is told", nil, Clock{}},
		{"a desktop", map[string]string{
			cpu + "cpu0/cpufreq/scaling_cur_freq": "3000000\n", cpu + "cpu1/cpufreq/scaling_cur_freq": "4000000\n",
			cpu + "cpu0/cpufreq/cpuinfo_max_freq": "4500000\n", cpu + "cpu1/cpufreq/cpuinfo_max_freq": "5000000\n",
			cpu + "cpu0/cpufreq/scaling_governor":             "schedutil\n",
			cpu + "cpufreq/policy0/scaling_cur_freq":          "1\n",
			cpu + "cpu0/thermal_throttle/core_throttle_count": "2\n", cpu + "cpu1/thermal_throttle/core_throttle_count": "3\n",
			"sys/class/hwmon/hwmon0/name": "nvme\n", "sys/class/hwmon/hwmon0/temp1_input": "90000\n",
			"sys/class/hwmon/hwmon1/name": "coretemp\n", "sys/class/hwmon/hwmon1/temp1_input": "61000\n", "sys/class/hwmon/hwmon1/temp2_input": "64000\n",
			"sys/class/thermal/thermal_zone0/temp": "27800\n", "proc/cpuinfo": "cpu MHz\t\t: 800.000\n",
		}, Clock{MHz: 3500, MaxMHz: 5000, Governor: "schedutil", Celsius: 64, Throttled: 5}},
		{"a board with zones alone", map[string]string{
			"sys/class/thermal/thermal_zone0/temp": "41250\n", "sys/class/thermal/thermal_zone1/temp": "43500\n", "sys/class/thermal/thermal_zone2/temp": "-274000\n",
		}, Clock{Celsius: 43.5}},
		{"a virtual machine", map[string]string{"proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2445.404\n\nprocessor\t: 1\ncpu MHz\t\t: 2445.404\n"}, Clock{MHz: 2445}},
	} {
		if got := clock(tree(c.files)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	t.Logf("here: %+v", ReadClock())
}
