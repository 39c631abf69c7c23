// Package check runs the examples beside it: the manifest, which it also reads with
// the types of Kubernetes, as these know every field, and the script, on a cluster
// of one node.
package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// certified is what merging says of parts that made four tokens of 29 prompts.
const certified = "certified: 116 positions compared, 0 divergences"

// story is a pack directory of the story model, a place for parts of its
// certificate, and the programs.
type story struct {
	*testing.T
	bin, pack, parts, certificate string
}

func newStory(t *testing.T) *story {
	t.Helper()
	dir := t.TempDir()
	s := &story{t, filepath.Join(dir, "bin"), filepath.Join(dir, "pack"), filepath.Join(dir, "parts"), filepath.Join(dir, "pack", "certificate.json")}
	build := exec.Command("go", "build", "-o", s.bin+string(filepath.Separator), "./cmd/nrun", "./cmd/npack")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	for _, d := range []string{s.pack, s.parts} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"story.bin", "story.tv4z", "tokenizer.json", "tokenizer_config.json", "config.json"} {
		data, err := os.ReadFile(filepath.Join("../../testdata/story", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.pack, name), data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.run("npack", "manifest", "-q", s.pack)
	return s
}

// run runs one of our programs and returns what it prints.
func (s *story) run(program string, args ...string) string {
	s.Helper()
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	out, err := exec.Command(filepath.Join(s.bin, program), args...).CombinedOutput()
	if err != nil {
		s.Fatalf("%s %q: %v: %s", program, args, err, out)
	}
	return string(out)
}
