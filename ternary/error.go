package ternary

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is wrapped by every [Error].
var ErrInvalid = errors.New("invalid model")

// Error says which value of a model breaks a rule, and where. A format reader
// that knows the file turns Tensor, Part, Row and Col into a byte offset.
type Error struct {
	Tensor   string // as [Tensor.Name]; empty for the configuration
	Part     string // a field, or one of the Part constants below
	Row, Col int    // -1 where they do not apply
	Found    string
	Expected string
}

// The parts of a tensor that an [Error] may point into.
const (
	PartBP    = "bp"
	PartBN    = "bn"
	PartBR    = "br"
	PartSLo   = "s_lo"
	PartSHi   = "s_hi"
	PartRSLo  = "rs_lo"
	PartRSHi  = "rs_hi"
	PartBias  = "bias"
	PartQ     = "q"
	PartScale = "scale"
	PartWSum  = "wsum"
	PartNorm  = "norm" // the values of a vector
)

// Error returns one line: tensor, row, column, found, expected.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Tensor != "" {
		fmt.Fprintf(&b, "tensor %q: ", e.Tensor)
	}
	if at := e.At(); at != "" {
		b.WriteString(at)
		b.WriteString(": ")
	}
	b.WriteString(e.Found)
	if e.Expected != "" {
		b.WriteString(", expected ")
		b.WriteString(e.Expected)
	}
	return b.String()
}

// At words the row and column, as far as they apply: "row 17, column 42". The
// values of a vector count as rows.
func (e *Error) At() string {
	switch {
	case e.Row >= 0 && e.Part == PartNorm:
		return fmt.Sprintf("value %d", e.Row)
	case e.Row >= 0 && e.Col >= 0:
		return fmt.Sprintf("row %d, column %d", e.Row, e.Col)
	case e.Row >= 0:
		return fmt.Sprintf("row %d", e.Row)
	case e.Col >= 0:
		return fmt.Sprintf("column %d", e.Col)
	}
	return ""
}

// Unwrap makes errors.Is(err, ErrInvalid) true.
func (e *Error) Unwrap() error { return ErrInvalid }

// fieldError is an Error about a whole tensor or the configuration.
func fieldError(tensor, part, found, expected string) *Error {
	return &Error{Tensor: tensor, Part: part, Row: -1, Col: -1, Found: found, Expected: expected}
}
