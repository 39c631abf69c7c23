package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"npack/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"npack": main})
}

// TestScripts runs the scripts of testdata/script. $DATA is the project's
// testdata and $ESC a hostile file name. Beside the standard commands they have
//
//	exits CODE COMMAND ARG…   run it; its exit status must be CODE, and what it
//	                          writes to stderr be one error and at most one hint
//	json PATH VALUE           stdout must be one JSON object with that value
//	poke FILE OFFSET HEX      overwrite bytes of a file
//	cut FILE SIZE             make a file that long
//	ls DIR                    print the names in a directory, hidden ones too
//	show FILE                 print a file
//	serve                     start servers to pull from, see pull_test.go
func TestScripts(t *testing.T) {
	data, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("DATA", data)
			e.Setenv("ESC", "a\x1b[2J\nb") // a file name that clears the screen
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "json": jsonValue, "poke": poke, "cut": cut, "ls": ls, "show": show, "serve": serve,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	clitest.Exits(ts, neg, args)
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile("stderr"), "\n"), "\n")
	if args[0] != "0" && (!strings.HasPrefix(lines[0], "npack: error: ") || len(lines) > 2 ||
		len(lines) == 2 && !strings.HasPrefix(lines[1], "npack: hint: ")) {
		ts.Fatalf("stderr is not an error and a hint")
	}
}

func jsonValue(ts *testscript.TestScript, neg bool, args []string) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	d.UseNumber()
	var v any
	ts.Check(d.Decode(&v))
	if d.More() {
		ts.Fatalf("more than one JSON value")
	}
	for _, key := range strings.Split(args[0], ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			i, err := strconv.Atoi(key)
			ts.Check(err)
			if i >= len(x) {
				ts.Fatalf("%s: %d elements", args[0], len(x))
			}
			v = x[i]
		default:
			ts.Fatalf("%s: no %q in %v", args[0], key, v)
		}
	}
	if got := fmt.Sprint(v); got != args[1] {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

func poke(ts *testscript.TestScript, neg bool, args []string) {
	off, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	b, err := hex.DecodeString(args[2])
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteAt(b, off)
	ts.Check(err)
	ts.Check(f.Close())
}

func cut(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

func ls(ts *testscript.TestScript, neg bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		fmt.Fprintln(ts.Stdout(), e.Name())
	}
}

func show(ts *testscript.TestScript, neg bool, args []string) {
	fmt.Fprint(ts.Stdout(), ts.ReadFile(args[0]))
}
