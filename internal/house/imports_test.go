// Package house holds the tests of the project as a whole: who may import whom,
// and what the compiler makes of float arithmetic.
package house

import (
	"os/exec"
	"strings"
	"testing"
)

// rules say what a package of ours may import of ours. The first prefix that
// fits decides; names end in "/..." where packages below are meant too.
var rules = []struct{ pkg, may string }{
	{"ternary/ternarytest", "ternary"},
	{"ternary", ""},
	{"gguf/...", ""},
	{"pack/formats", "ternary gguf pack/... internal/outfile"},
	{"pack/coded", "ternary pack pack/native internal/machine"}, // a form of native
	{"pack/fv5", "ternary pack pack/native gguf"},               // gives back the very container
	{"pack/rows", "ternary pack pack/safetensors"},
	{"pack/foreign", "ternary gguf pack pack/safetensors pack/rows pack/fv5 pack/hf"},            // fv5 words errors of gguf, hf has names
	{"pack/hf", "ternary pack pack/native pack/rows pack/safetensors internal/outfile"},          // its sha256, its rows
	{"pack/mlx", "ternary pack pack/native pack/rows pack/safetensors pack/hf internal/outfile"}, // shares names and files with hf
	{"pack/...", "ternary pack gguf internal/outfile"},
	{"runtime/reference", "ternary runtime/backend"},
	{"runtime/backend", "ternary"},
	{"runtime/backend/backendtest", "ternary/... runtime/backend runtime/reference"},
	{"runtime/tokenizer", ""},
	{"runtime/chat", "runtime/tokenizer"},
	{"runtime/engine", "ternary runtime/backend runtime/tokenizer"},
	{"runtime/identity", "ternary runtime/backend runtime/engine"},
	{"cpu/...", "ternary runtime/backend runtime/reference"},
	{"gpu/kernels", "ternary"},
	{"gpu/ptx", "gpu gpu/kernels runtime/reference"},
	{"gpu/gputest", "gpu gpu/kernels runtime/backend runtime/reference"},
	{"gpu", "ternary gpu/kernels runtime/backend runtime/reference"},
	{"cuda", "gpu gpu/kernels"}, // a driver knows nothing of models
	{"testdata/...", ""},
	{"internal/devicecheck", "cuda gpu pack/formats runtime/backend runtime/engine internal/cli internal/machine"},
	{"internal/simulation", "ternary pack/native runtime/backend testdata/..."},
	{"internal/...", "ternary/... pack/... runtime/... internal/... gguf"},
	{"cmd/npack", "ternary gguf pack/... runtime/backend internal/... testdata/..."},
	{"cmd/nrun", "ternary gguf pack/... runtime/... cpu/... gpu cuda internal/... testdata/..."},
}

// matches reports whether pkg fits pattern.
func matches(pkg, pattern string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

// allowed reports whether pkg may import dep, and false in known for a package
// that no rule speaks of.
func allowed(pkg, dep string) (ok, known bool) {
	for _, r := range rules {
		if matches(pkg, r.pkg) {
			for _, p := range strings.Fields(r.may) {
				if matches(dep, p) {
					return true, true
				}
			}
			return false, true
		}
	}
	return false, false
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}:{{join .Imports " "}}`, "npack/...", "npack/testdata/story", "npack/testdata/storydraft").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(packages) < 10 {
		t.Fatalf("go list names %d packages", len(packages))
	}
	for _, line := range packages {
		path, imports, _ := strings.Cut(line, ":")
		pkg := strings.TrimPrefix(path, "npack/")
		if pkg == "runtime" {
			t.Error("runtime/ holds a Go file of its own")
		}
		if _, known := allowed(pkg, ""); !known {
			t.Errorf("no rule speaks of package %s", pkg)
		}
		for _, imp := range strings.Fields(imports) {
			if imp == "C" {
				t.Errorf("%s uses cgo", pkg)
			}
			dep, ours := strings.CutPrefix(imp, "npack/")
			if ok, _ := allowed(pkg, dep); ours && !ok {
				t.Errorf("%s must not import %s", pkg, dep)
			}
		}
	}
}

// The rules can fail.
func TestRulesForbid(t *testing.T) {
	for _, c := range []struct{ pkg, dep string }{
		{"ternary", "pack"}, {"runtime/engine", "pack/native"}, {"pack/native", "runtime/engine"}, {"cmd/npack", "cuda"}, {"cmd/npack", "gpu"}, {"gpu", "cuda"}, {"cuda", "ternary"}, {"runtime/reference", "runtime/engine"},
	} {
		if ok, known := allowed(c.pkg, c.dep); ok || !known {
			t.Errorf("%s may import %s", c.pkg, c.dep)
		}
	}
}
