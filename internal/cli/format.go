package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strconv"
)

// Size returns n bytes for people, in decimal units: "3.88 GB", "12 bytes".
func Size(n int64) string {
	units := []struct {
		name string
		size float64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}}
	for _, u := range units {
		if v := float64(n) / u.size; v >= 0.9995 {
			return strconv.FormatFloat(v, 'f', max(0, 3-len(strconv.Itoa(int(v)))), 64) + " " + u.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Group returns n with a comma between thousands: "3,875,404,812".
func Group(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// JSON prints v as one JSON object, for --json.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Version is the release, set when linking: -X npack/internal/cli.Version=v1.2.
var Version = "(devel)"

// Build says which build this is: version, commit, compiler and platform.
func Build() string {
	commit := ""
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				commit = " " + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return fmt.Sprintf("%s%s %s %s/%s", Version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
