package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"

	"npack/pack"
	"npack/runtime/backend"
)

const (
	exitFailed = 1
	exitUsage  = 2

	exitUnsupported = 6
)

// exitCodes is the table of the README: what callers may rely on. The first
// kind that an error is decides; an error of no kind exits with 1.
var exitCodes = []struct {
	kind error
	code int
}{
	{context.Canceled, 130},
	{errUsage, exitUsage},
	{backend.ErrContext, exitUsage}, // the prompt is too long for the context asked for
	{pack.ErrNotEqual, 3},
	{pack.ErrNotModel, 7},
	{pack.ErrUnsupported, exitUnsupported},
	{backend.ErrRefused, exitUnsupported},
	{pack.ErrTruncated, 5},
	{pack.ErrCorrupt, 4},
	{pack.ErrNoSpace, 8},
	{pack.ErrNetwork, 9},
}

// exitCode returns the exit code for err, 0 for nil.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	for _, c := range exitCodes {
		if errors.Is(err, c.kind) {
			return c.code
		}
	}
	for _, e := range noSpace {
		if errors.Is(err, e) {
			return 8
		}
	}
	return exitFailed
}

var errUsage = errors.New("wrong usage")

// hinted is an error with the next thing to type.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// usage is an error in the command line.
type usage struct{ error }

func (u usage) Is(target error) bool { return target == errUsage }

// Usagef returns an error in the command line, which exits with 2. The hint is
// printed in a line of its own; it may be empty.
func Usagef(hint, format string, args ...any) error {
	return WithHint(usage{fmt.Errorf(format, args...)}, hint)
}

// WithHint adds the next thing to type to an error. It goes before the hints
// of errors that err wraps.
func WithHint(err error, hint string) error {
	if err == nil || hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// Hint returns the hint that err or an error it wraps carries, or "".
func Hint(err error) string {
	if h := (*hinted)(nil); errors.As(err, &h) {
		return h.hint
	}
	if e := (*pack.Error)(nil); errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

// Report prints err as the commands do and returns its exit code.
func Report(w io.Writer, prog string, err error) int {
	code := exitCode(err)
	if code == 0 {
		return 0
	}
	text := err.Error()
	if errors.Is(err, context.Canceled) {
		text = "interrupted"
	} else if p := (*fs.PathError)(nil); errors.As(err, &p) && text == p.Error() {
		text = fmt.Sprintf("%q: %s: %v", p.Path, p.Op, p.Err)
	}
	fmt.Fprintf(w, "%s: error: %s\n", prog, OneLine(text))
	if hint := Hint(err); hint != "" {
		if code == exitUnsupported { // a newer version may not be new to the user
			hint += fmt.Sprintf(" (this is %s %s)", prog, Version)
		}
		fmt.Fprintf(w, "%s: hint: %s\n", prog, OneLine(hint))
	}
	return code
}

// Warn prints one warning line.
func Warn(w io.Writer, prog, format string, args ...any) {
	fmt.Fprintf(w, "%s: warning: %s\n", prog, OneLine(fmt.Sprintf(format, args...)))
}

// maxLine bounds a line that may quote a file's contents, in bytes.
const maxLine = 2000

// OneLine makes text that may come from a file safe to print: control
// characters and everything that moves a terminal's cursor or direction are
// escaped as in Go strings, invalid UTF-8 too, and it is cut to a sane length.
func OneLine(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if b.Len() > maxLine {
			b.WriteString("…")
			break
		}
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsGraphic(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}
