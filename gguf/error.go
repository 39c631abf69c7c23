package gguf

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure. Callers use errors.Is.
var (
	ErrCorrupt     = errors.New("corrupt GGUF file")         // a rule of the format is broken
	ErrTruncated   = errors.New("incomplete GGUF file")      // the file, or the set of shards, ends too early
	ErrUnsupported = errors.New("unsupported GGUF file")     // well-formed, but not for this package
	ErrNotGGUF     = errors.New("not a GGUF file")           // something else
	ErrInexact     = errors.New("not exactly representable") // by a block format; see [Type.Quantize]
)

// Error says what is wrong with a file, where, and what to do. Fields that do
// not apply are empty.
type Error struct {
	Kind     error  // one of the sentinels above
	File     string // path as the caller gave it
	Place    string // key or tensor
	Offset   int64  // byte offset in the file, or -1
	Found    string
	Expected string
	Hint     string
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
	return b.String()
}

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }
