package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
)

// maxText bounds text from a file or standard input, in bytes: far more than
// any context holds.
const maxText = 16 << 20

// textFlags say where a command's text comes from.
func textFlags(what string) []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "prompt", Aliases: []string{"p"}, Usage: "`TEXT` " + what},
		&urfave.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "read it from `FILE` (default: standard input)"},
	}
}

// readText returns the text of -p, --file or standard input, exactly as it is,
// and whether it was read rather than typed as an argument.
func readText(c *urfave.Context) (text string, read bool, err error) {
	if c.IsSet("prompt") && c.IsSet("file") {
		return "", false, cli.Usagef("leave one of them out", "both -p and --file are given")
	}
	if c.IsSet("prompt") {
		return c.String("prompt"), false, nil
	}
	if c.IsSet("file") {
		b, err := pack.ReadFile(c.String("file"), maxText)
		return string(b), true, err
	}
	if cli.IsTerminal(c.App.Reader) {
		return "", false, cli.Usagef(fmt.Sprintf("nrun %s -p \"Once upon a time\"", c.Command.Name), "no text: give -p TEXT, --file FILE, or pipe it in")
	}
	b, err := io.ReadAll(io.LimitReader(c.App.Reader, maxText+1))
	if err != nil {
		return "", true, fmt.Errorf("standard input: %w", err)
	}
	if len(b) > maxText {
		return "", true, cli.Usagef("", "standard input: more than %s bytes of text", cli.Group(maxText))
	}
	return string(b), true, nil
}

// parseIDs reads token ids separated by commas or white space. All must be
// below vocab.
func parseIDs(s string, vocab int) ([]int32, error) {
	var ids []int32
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' }) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, cli.Usagef("ids are whole numbers separated by commas: 32,2665,267", "%.40q is no token id", f)
		}
		if n < 0 || n >= vocab {
			return nil, cli.Usagef("", "token id %d is outside 0 to %d, the vocabulary", n, vocab-1)
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}

// formatIDs is the inverse of parseIDs.
func formatIDs(ids []int32) string {
	var b []byte
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return string(b)
}
