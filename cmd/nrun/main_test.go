package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	urfave "github.com/urfave/cli/v2"

	"npack/cuda"
	"npack/internal/cli/clitest"
)

// programs are what tests can start as processes of their own.
var programs = map[string]func(){"nrun": main, "fakellama": fakeLlama, "fakebench": fakeBench}

func TestMain(m *testing.M) { testscript.Main(m, programs) }

// TestScripts runs testdata/script. $STORY is the directory of the story model,
// $DRAFT that of its draft, $CASES that of the users' cases and $DRIVER that of
// NVIDIA's driver or a stand-in, which only scripts that want it look for; "exits N
// command…" runs a command that must end with that code. [gpu] is a program that can
// drive a card, [driver] a machine that has one, and [fake] one whose driver is the
// project's own.
func TestScripts(t *testing.T) {
	testdata, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("STORY", filepath.Join(testdata, "story"))
			e.Setenv("DRAFT", filepath.Join(testdata, "storydraft"))
			e.Setenv("CASES", filepath.Join(testdata, "cases"))
			e.Setenv("DRIVER", os.Getenv("LD_LIBRARY_PATH"))
			e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			cards, err := cuda.Cards()
			switch cond {
			case "gpu":
				return cuda.Built, nil
			case "driver":
				return err == nil, nil
			case "fake":
				return err == nil && strings.Contains(cards[0].Name, "fakecuda"), nil
			}
			return false, fmt.Errorf("no condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits},
	})
}

// nrun runs a command in this process.
func nrun(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(append([]string{"nrun"}, args...), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// command returns an nrun of its own process: this test binary under that name
// (see TestMain).
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return program(t, "nrun", args...)
}

// program returns a process of one of TestMain's programs.
func program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	return cmd
}

// quietContext is a command's context without flags or output.
func quietContext(t *testing.T) *urfave.Context {
	t.Helper()
	c := urfave.NewContext(&urfave.App{Writer: io.Discard, ErrWriter: io.Discard}, flag.NewFlagSet("test", flag.ContinueOnError), nil)
	c.Context = t.Context()
	return c
}
