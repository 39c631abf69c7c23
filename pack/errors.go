// Package pack holds what all file formats share: the kinds of error and how
// they are worded, telling files apart by their first bytes, and the manifest
// that lies beside a model. The formats themselves are in the packages below
// it; [npack/pack/formats] is the table of them.
package pack

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure. Callers use errors.Is; commands turn them into exit
// codes.
var (
	ErrCorrupt     = errors.New("corrupt file")          // a rule of the format is broken
	ErrTruncated   = errors.New("incomplete file")       // the file ends too early
	ErrUnsupported = errors.New("unsupported")           // well-formed, but not for this program
	ErrNotModel    = errors.New("not a model file")      // a web page, a pointer, something else
	ErrNotEqual    = errors.New("verified, not equal")   // a digest or token differs
	ErrNoSpace     = errors.New("not enough space left") // disk or memory
	ErrNetwork     = errors.New("network")               // a server or the line to it
)

// Error says what is wrong with a file, where, and what to do. Fields that do
// not apply are empty.
type Error struct {
	Kind     error  // one of the sentinels above
	File     string // path as the user gave it
	Place    string // tensor or record, with row and column where known
	Offset   int64  // byte offset in the file, or -1
	Found    string // what was wrong, with numbers
	Expected string // what the format asks for
	Hint     string // what the user can do next
	Err      error  // underlying error, if any
}

// Error returns one line: file, place, byte offset, found, expected.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%q: ", e.File)
	}
	if e.Place != "" {
		fmt.Fprintf(&b, "%s: ", e.Place)
	}
	if e.Offset >= 0 {
		fmt.Fprintf(&b, "byte %d: ", e.Offset)
	}
	b.WriteString(e.Found)
	if e.Expected != "" {
		fmt.Fprintf(&b, ", expected %s", e.Expected)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap gives errors.Is both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err != nil {
		return []error{e.Kind, e.Err}
	}
	return []error{e.Kind}
}

// Unreadable is the error about a file that could be read when it was opened, and
// not any more.
func Unreadable(file string, err error) *Error {
	return &Error{Kind: ErrTruncated, File: file, Offset: -1, Found: "reading failed", Err: err, Hint: "let no other program change the file, and check the disk"}
}
