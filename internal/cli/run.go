// Package cli holds what the commands of this project share: how arguments are
// read, how an error becomes two lines and an exit code, what Ctrl-C does, and
// how numbers, progress and JSON are printed.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	urfave "github.com/urfave/cli/v2"
)

// Streams are a command's standard streams. Commands find them in the context
// of urfave/cli: c.App.Reader, c.App.Writer and c.App.ErrWriter.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs the command that args names (args[0] is the program) and returns
// the exit code. Results go to s.Out; what went wrong goes to s.Err as one
// "error" and at most one "hint" line.
//
// The first Ctrl-C (or SIGTERM) cancels c.Context; a second one kills the
// program. See [OnInterrupt] for commands that want the first for themselves.
func Run(ctx context.Context, app *urfave.App, args []string, s Streams) int {
	out := &output{w: s.Out}
	app.Reader, app.Writer, app.ErrWriter = s.In, out, s.Err
	configure(app)

	args, err := arrange(app, args)
	if err == nil && len(args) == 1 {
		// Nothing was asked for: say what could be.
		app.Writer = s.Err
		_ = app.Run([]string{app.Name, "--help"})
		return exitUsage
	}
	if err == nil {
		ignoreFileSizeSignal()
		var stop func()
		ctx, stop = withInterrupts(ctx)
		defer stop()
		err = app.RunContext(ctx, args)
	}
	if err == nil && out.err != nil {
		err = fmt.Errorf("standard output: %w", out.err)
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitFailed // the reader has gone (nrun … | head): nobody to tell
	}
	return Report(s.Err, app.Name, err)
}

// configure sets what all commands have alike.
func configure(app *urfave.App) {
	app.Version = Build()
	app.HideHelpCommand = true                           // arrange answers "help"
	app.DisableSliceFlagSeparator = true                 // --stop "a,b" is one value
	app.ExitErrHandler = func(*urfave.Context, error) {} // exit codes are Run's
	for _, c := range app.Commands {
		c.HideHelpCommand = true // a file may be called "help" or "h"
		c.OnUsageError = func(c *urfave.Context, err error, _ bool) error {
			return Usagef("see: "+app.Name+" "+c.Command.Name+" --help", "%s", err)
		}
		for _, f := range c.Flags {
			if b, ok := f.(*urfave.BoolFlag); ok {
				b.DisableDefaultText = true // "(default: false)" says nothing
			}
		}
	}
}

// Positionals returns the positional arguments of c, or a usage error if there
// are fewer than lo or more than hi.
func Positionals(c *urfave.Context, lo, hi int) ([]string, error) {
	a := c.Args().Slice()
	hint := "usage: " + c.Command.UsageText
	switch {
	case len(a) < lo:
		return nil, Usagef(hint, "%s: an argument is missing", c.Command.Name)
	case len(a) > hi:
		return nil, Usagef(hint, "%s: unexpected argument %q", c.Command.Name, a[hi])
	}
	if i := slices.Index(a, ""); i >= 0 {
		return nil, Usagef(hint, "%s: an argument is empty", c.Command.Name)
	}
	return a, nil
}

// Examples lays out example command lines for a command's Description.
func Examples(lines ...string) string {
	return "Examples:\n\n  " + strings.Join(lines, "\n  ")
}

// output remembers the first write error, so that a full disk behind a shell
// redirection is reported even where a command ignores what Fprintf returns.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}
