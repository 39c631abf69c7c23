package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	urfave "github.com/urfave/cli/v2"

	"npack/pack"
	"npack/runtime/backend"
)

// result is what the test command saw.
type result struct {
	args   []string
	out    string
	number int
	json   bool
	stop   []string
}

// testApp has one command, "write", that stores what it was given, and "fail"
// that returns err.
func testApp(got *result, err error) *urfave.App {
	return &urfave.App{Name: "prog", Usage: "test", Commands: []*urfave.Command{{
		Name: "write", UsageText: "prog write [flags] FILE",
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "out", Aliases: []string{"o"}},
			&urfave.IntFlag{Name: "number", Aliases: []string{"n"}},
			&urfave.BoolFlag{Name: "json"},
			&urfave.StringSliceFlag{Name: "stop"},
		},
		Action: func(c *urfave.Context) error {
			*got = result{c.Args().Slice(), c.String("out"), c.Int("number"), c.Bool("json"), c.StringSlice("stop")}
			return nil
		},
	}, {
		Name: "fail", UsageText: "prog fail FILE",
		Action: func(c *urfave.Context) error {
			if err == nil {
				_, err := Positionals(c, 1, 1)
				return err
			}
			return err
		},
	}}}
}

func run(app *urfave.App, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(context.Background(), app, append([]string{"prog"}, args...), Streams{strings.NewReader(""), &out, &errs})
	return code, out.String(), errs.String()
}

func TestFlagsAnywhere(t *testing.T) {
	want := func(f func(*result)) result {
		r := result{args: []string{"f"}, out: "x"}
		f(&r)
		return r
	}
	for _, tc := range []struct {
		line string
		want result
	}{
		{"write -o x f", want(func(*result) {})},
		{"write f -o x", want(func(*result) {})},
		{"write f --out=x", want(func(*result) {})},
		{"write f -out x --json", want(func(r *result) { r.json = true })},
		{"--json write f -o x", want(func(r *result) { r.json = true })},
		{"write --json=false f -o x", want(func(*result) {})},
		{"write a -o x b", want(func(r *result) { r.args = []string{"a", "b"} })},
		{"write -o x -- -f", want(func(r *result) { r.args = []string{"-f"} })},
		{"write -o x - f", want(func(r *result) { r.args = []string{"-", "f"} })},
		{"write -o - f", want(func(r *result) { r.out = "-" })},
		{"write f -n -3 -o x", want(func(r *result) { r.number = -3 })},
		{"write -o x help", want(func(r *result) { r.args = []string{"help"} })},
		{"write help -o x", want(func(r *result) { r.args = []string{"help"} })},
		{"write f -o x --stop a,b --stop c", want(func(r *result) { r.stop = []string{"a,b", "c"} })},
		{"write -o x", want(func(r *result) { r.args = []string{} })},
	} {
		t.Run(tc.line, func(t *testing.T) {
			var got result
			code, _, stderr := run(testApp(&got, nil), strings.Fields(tc.line)...)
			if code != 0 || stderr != "" {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(result{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"wirte f", "prog: error: unknown command \"wirte\"\nprog: hint: did you mean \"write\"?\n"},
		{"zzz", "prog: error: unknown command \"zzz\"\nprog: hint: commands: write, fail\n"},
		{"-n 3 write f", "prog: error: unknown command \"3\"\nprog: hint: a flag with a value stands behind the command's name: prog COMMAND -n …\n"},
		{"--json wirte f", "prog: error: unknown command \"wirte\"\nprog: hint: did you mean \"write\"?\n"},
		{"help wirte", "prog: error: unknown command \"wirte\"\nprog: hint: did you mean \"write\"?\n"},
		{"write --jsno f", "prog: error: write: unknown flag \"--jsno\"\nprog: hint: did you mean \"--json\"?\n"},
		{"write f -7", "prog: error: write: unknown flag \"-7\"\nprog: hint: see: prog write --help\n"},
		{"write f -o", "prog: error: flag \"-o\" needs a value\nprog: hint: see: prog write --help\n"},
		{"write -o --json f", "prog: error: flag \"-o\" needs a value, found the flag \"--json\"\nprog: hint: if that is meant, write -o=--json\n"},
		{"write -n x", "prog: error: invalid value \"x\" for flag -n: parse error\nprog: hint: see: prog write --help\n"},
		{"--json", "prog: error: no command given, only the flag \"--json\"\nprog: hint: see: prog --help\n"},
		{"fail", "prog: error: fail: an argument is missing\nprog: hint: usage: prog fail FILE\n"},
		{"fail a b", "prog: error: fail: unexpected argument \"b\"\nprog: hint: usage: prog fail FILE\n"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			code, stdout, stderr := run(testApp(new(result), nil), strings.Fields(tc.line)...)
			if code != 2 || stdout != "" {
				t.Errorf("exit %d, stdout %q", code, stdout)
			}
			if d := cmp.Diff(tc.want, stderr); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, tc := range []struct {
		line string
		code int
		out  string
	}{
		{"--help", 0, "COMMANDS:"},
		{"help", 0, "COMMANDS:"},
		{"-h", 0, "COMMANDS:"},
		{"help write", 0, "prog write [flags] FILE"},
		{"write f --help", 0, "prog write [flags] FILE"},
		{"write -h", 0, "prog write [flags] FILE"},
		{"--version", 0, "go1."},
		{"version", 0, "go1."},
	} {
		code, stdout, stderr := run(testApp(new(result), nil), strings.Fields(tc.line)...)
		if code != tc.code || !strings.Contains(stdout, tc.out) || stderr != "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", tc.line, code, stdout, stderr)
		}
	}
	code, stdout, stderr := run(testApp(new(result), nil))
	if code != 2 || stdout != "" || !strings.Contains(stderr, "COMMANDS:") {
		t.Errorf("no arguments: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		want string
	}{
		{errors.New("it broke"), 1, "prog: error: it broke\n"},
		{&pack.Error{Kind: pack.ErrCorrupt, File: "a b", Place: "record 3", Offset: 60, Found: "rows 7", Expected: "8", Hint: "fetch it again"}, 4,
			"prog: error: \"a b\": record 3: byte 60: rows 7, expected 8\nprog: hint: fetch it again\n"},
		{WithHint(&pack.Error{Kind: pack.ErrNotEqual, Offset: -1, Found: "x", Hint: "inner"}, "outer"), 3, "prog: error: x\nprog: hint: outer\n"},
		{&pack.Error{Kind: pack.ErrTruncated, Offset: -1, Found: "x"}, 5, "prog: error: x\n"},
		{fmt.Errorf("load: %w", backend.ErrRefused), 6, "prog: error: load: " + backend.ErrRefused.Error() + "\n"},
		{pack.ErrNotModel, 7, "prog: error: not a model file\n"},
		{&fs.PathError{Op: "write", Path: "a\x1b[2Jb", Err: syscall.ENOSPC}, 8, "prog: error: \"a\\x1b[2Jb\": write: no space left on device\n"},
		{&backend.ContextError{Need: 3000, Have: 512}, 2, "prog: error: 3000 tokens do not fit a context of 512\n"},
		{fmt.Errorf("step 3: %w", context.Canceled), 130, "prog: error: interrupted\n"},
		{fmt.Errorf("write: %w", syscall.EPIPE), 1, ""},
		{errors.New("two\nlines \x1b[31m, a\u202eb \xff Загрузки a😀b 模型　1"), 1,
			"prog: error: two\\nlines \\x1b[31m, a\\u202eb \\xff Загрузки a😀b 模型　1\n"},
	} {
		code, stdout, stderr := run(testApp(new(result), tc.err), "fail")
		if code != tc.code || stdout != "" {
			t.Errorf("%v: exit %d, want %d", tc.err, code, tc.code)
		}
		if d := cmp.Diff(tc.want, stderr); d != "" {
			t.Errorf("%v: %s", tc.err, d)
		}
	}
}

func TestOneLineIsShort(t *testing.T) {
	if n := len(OneLine(strings.Repeat("\x00", 1<<20))); n > maxLine+16 {
		t.Errorf("%d bytes", n)
	}
}

// full is a disk without space behind standard output.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestStandardOutputFull(t *testing.T) {
	app := &urfave.App{Name: "prog", Commands: []*urfave.Command{{Name: "say", Action: func(c *urfave.Context) error {
		fmt.Fprintln(c.App.Writer, "hello") // like most commands, does not look
		return nil
	}}}}
	var errs bytes.Buffer
	code := Run(context.Background(), app, []string{"prog", "say"}, Streams{Out: full{}, Err: &errs})
	if code != 8 || !strings.HasPrefix(errs.String(), "prog: error: standard output: ") {
		t.Errorf("exit %d, %q", code, errs.String())
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 999: "999 bytes", 1000: "1.00 kB", 999_400: "999 kB", 999_999: "1.00 MB",
		5_225_876: "5.23 MB", 38_750_000: "38.8 MB", 3_875_404_812: "3.88 GB", 2e12: "2.00 TB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", -1: "-1", 999: "999", 1000: "1,000", -123456: "-123,456", 3875404812: "3,875,404,812"} {
		if got := Group(n); got != want {
			t.Errorf("Group(%d) = %q, want %q", n, got, want)
		}
	}
}
