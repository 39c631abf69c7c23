package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fused matches instructions that round a product and a sum once: FMADDS,
// FNMSUBD, VFMADD231SS and their kin in the listings of the Go compiler.
var fused = regexp.MustCompile(`\tV?FN?M(ADD|SUB)\w+\t`)

// targets are the platforms of ours where the compiler fuses x*y + z on its own.
var targets = [][]string{{"GOARCH=arm64"}, {"GOARCH=amd64", "GOAMD64=v3"}}

// listing returns the compiler's assembly of the packages for a target.
func listing(t *testing.T, target []string, dir string, packages ...string) []string {
	t.Helper()
	args := append([]string{"build", "-gcflags=-S"}, packages...)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), target...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %v: %v\n%s", target, args, err, out)
	}
	return strings.Split(string(out), "\n")
}

// No fused operation stands anywhere in the packages whose float arithmetic
// defines bits.
func TestNoFusedOperations(t *testing.T) {
	packages := []string{"npack/runtime/reference", "npack/cpu", "npack/gpu", "npack/gpu/gputest", "npack/runtime/engine", "npack/ternary/ternarytest"}
	for _, target := range targets {
		lines := listing(t, target, ".", packages...)
		floats := 0
		for _, l := range lines {
			if fused.MatchString(l) {
				t.Errorf("%v: %s", target, strings.TrimSpace(l))
			}
			if strings.Contains(l, "\tFMULS\t") || strings.Contains(l, "\tMULSS\t") || strings.Contains(l, "\tVMULSS\t") {
				floats++
			}
		}
		if floats < 20 {
			t.Errorf("%v: %d float multiplications in the listing: is it one?", target, floats)
		}
	}
}

// The check sees a fused operation where there is one.
func TestFusionIsSeen(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"go.mod": "module fused\n\ngo 1.26\n",
		"f.go":   "package fused\n\nfunc F32(x, y, z float32) float32 { return x*y + z }\n\nfunc F64(x, y, z float64) float64 { p := x * y; return z + p }\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range targets {
		n := 0
		for _, l := range listing(t, target, dir, ".") {
			if fused.MatchString(l) {
				n++
			}
		}
		if n != 2 {
			t.Errorf("%v: %d of 2 fused operations seen", target, n)
		}
	}
}
