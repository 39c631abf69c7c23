package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/pack"
)

// standard is the name of a standard stream on the command line.
const standard = "-"

// input is a file to read, or a stream that can be read but once.
type input struct {
	name   string // for people
	kind   pack.Kind
	file   *os.File  // nil for a stream
	size   int64     // of the file; 0 for a stream
	stream io.Reader // nil for a file
	close  func()
}

// openInput opens a file or, for "-", standard input, and tells its kind from
// the first bytes. Pipes and devices are streams: an interrupt ends the wait
// for them. Close it.
func openInput(c *urfave.Context, arg string) (*input, error) {
	var in *input
	err := interruptible(c.Context, func() (err error) {
		in, err = waitForInput(arg, c.App.Reader)
		return err
	})
	if err != nil {
		return nil, err
	}
	return in, nil
}

func waitForInput(arg string, stdin io.Reader) (*input, error) {
	in := &input{name: arg, stream: stdin, close: func() {}}
	if arg == standard {
		in.name = "standard input"
	} else {
		f, err := os.Open(arg)
		if err != nil {
			return nil, err
		}
		st, err := f.Stat()
		if err == nil && st.IsDir() {
			err = cli.WithHint(fmt.Errorf("%q is a directory", arg), "name the file in it")
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		in.stream, in.close = f, func() { f.Close() }
		if st.Mode().IsRegular() {
			in.file, in.size, in.stream = f, st.Size(), nil
		}
	}
	if err := in.identify(); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

func (in *input) identify() error {
	if in.file != nil {
		head := make([]byte, min(in.size, pack.SniffLen))
		_, err := in.file.ReadAt(head, 0)
		if err != nil && err != io.EOF {
			return err
		}
		in.kind, err = pack.Identify(in.name, head, in.size)
		return err
	}
	br := bufio.NewReaderSize(in.stream, 64<<10)
	in.stream = br
	head, err := br.Peek(pack.SniffLen)
	size := int64(math.MaxInt64) // not known
	if err == io.EOF {
		size, err = int64(len(head)), nil
	}
	if err == nil {
		in.kind, err = pack.Identify(in.name, head, size)
	}
	return err
}

// wrongKind is the error for an input of the wrong kind. Without a hint it says
// which command reads such a file.
func (in *input) wrongKind(expected, hint string) error {
	switch {
	case hint != "":
	case in.kind == pack.KindGGUF:
		hint = "\"npack from-gguf\" makes a container of it"
	case in.kind == pack.KindSafetensors:
		hint = "\"npack from-mlx\" makes a container of an MLX pack, \"npack import\" of another program's model"
	}
	return &pack.Error{Kind: pack.ErrUnsupported, File: in.name, Offset: 0, Found: "this is a " + in.kind.String() + " file", Expected: expected, Hint: hint}
}

// spool makes a file of a stream, for work that reads bytes more than once. It
// lies in the system's directory for temporary files until close.
func (in *input) spool(ctx context.Context) error {
	if in.file != nil {
		return nil
	}
	f, err := os.CreateTemp("", "npack-*.tmp")
	if err != nil {
		return err
	}
	closeStream := in.close
	in.close = func() {
		closeStream()
		f.Close()
		os.Remove(f.Name())
	}
	var n int64
	if err := interruptible(ctx, func() (err error) { n, err = io.Copy(f, in.stream); return err }); err != nil {
		return err
	}
	in.file, in.size, in.stream = f, n, nil
	return nil
}

// interruptible does something that may wait for a pipe for ever, and gives up
// when ctx ends. It goes on in the background then, up to the program's end.
func interruptible(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// target is where the output goes: the second argument or, if there is none,
// standard output for a stream and the input's name with another extension for
// a file.
func target(in *input, args []string, extension string) string {
	switch {
	case len(args) > 1:
		return args[1]
	case in.file == nil:
		return standard
	}
	return strings.TrimSuffix(args[0], filepath.Ext(args[0])) + extension
}

// checkTarget refuses an output that is there already, that is the input, or
// that is a terminal.
func checkTarget(c *urfave.Context, in *input, out string) error {
	if out == standard {
		if c.Bool("json") {
			return cli.Usagef("name an output file", "--json and the output both want standard output")
		}
		if cli.IsTerminal(c.App.Writer) {
			return cli.Usagef("name an output file, or send it on: npack "+c.Command.Name+" FILE - | sha256sum", "the output is binary and standard output is a terminal")
		}
		return nil
	}
	st, err := os.Stat(out)
	if errors.Is(err, fs.ErrNotExist) {
		return outfile.Check(out)
	}
	if err != nil {
		return err
	}
	if in.file != nil {
		if is, err := in.file.Stat(); err == nil && os.SameFile(st, is) {
			return cli.Usagef("name another output", "%q is both input and output", out)
		}
	}
	if err := outfile.Check(out); err != nil {
		return err
	}
	if !c.Bool("force") {
		return cli.WithHint(fmt.Errorf("%q is there already", out), "--force replaces it")
	}
	return nil
}

// threads returns the number of threads asked for.
func threads(c *urfave.Context) (int, error) {
	n := c.Int("threads")
	if n < 0 || n > 1<<16 {
		return 0, cli.Usagef("leave it out for one a core", "--threads is %d", n)
	}
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return n, nil
}

func threadsFlag() urfave.Flag {
	return &urfave.IntFlag{Name: "threads", Aliases: []string{"t"}, Usage: "threads to work with", DefaultText: "one a core"}
}

func forceFlag() urfave.Flag {
	return &urfave.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace an output that is there"}
}

// writeOutput calls write with standard output, or with a file that appears
// under its name if write succeeds. size is how many bytes it will have at
// least, as far as known.
func writeOutput(c *urfave.Context, out string, size int64, write func(w io.Writer) error) error {
	if out == standard {
		return write(c.App.Writer)
	}
	f, err := outfile.Create(out, size)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := write(f); err != nil {
		return err
	}
	return f.Commit()
}

// inTime words what n bytes of work took.
func (s speed) String() string {
	word := "threads"
	if s.Threads == 1 {
		word = "thread"
	}
	return fmt.Sprintf("%.2f s with %d %s: %.0f MB/s", s.Seconds, s.Threads, word, s.rate()/1e6)
}
