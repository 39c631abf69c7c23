// Package hexdoc reads the worked examples of the FORMAT.md files, so that tests
// can prove that they are the files they describe.
package hexdoc

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Line is one line of an example: "OFFSET  BYTES[xTIMES]  COMMENT".
type Line struct {
	Text    string
	Offset  int64
	Comment string
}

var line = regexp.MustCompile(`^([0-9a-f]{4,})  ((?:[0-9a-f]{2} ?)+)(?:x(\d{1,6}))?(?:  (.*))?$`)

// Example reads the first block of the Markdown file that is fenced as "text":
// the text itself, its lines, and the bytes that they spell. Offsets must be
// those of the bytes.
func Example(path string) (text string, lines []Line, file []byte, err error) {
	doc, err := os.ReadFile(path)
	if err != nil {
		return "", nil, nil, err
	}
	_, text, ok := strings.Cut(string(doc), "```text\n")
	text, _, ok2 := strings.Cut(text, "```")
	if !ok || !ok2 {
		return "", nil, nil, fmt.Errorf("%s: no block fenced as text", path)
	}
	for l := range strings.Lines(text) {
		m := line.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
		if m == nil {
			return "", nil, nil, fmt.Errorf("%s: cannot read %q", path, l)
		}
		at, err := strconv.ParseInt(m[1], 16, 64)
		if err != nil || at != int64(len(file)) {
			return "", nil, nil, fmt.Errorf("%s: %q should be at %04x", path, l, len(file))
		}
		b, err := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
		if err != nil {
			return "", nil, nil, fmt.Errorf("%s: %q: %w", path, l, err)
		}
		if m[3] != "" {
			n, _ := strconv.Atoi(m[3])
			b = bytes.Repeat(b, n)
		}
		lines = append(lines, Line{l, at, m[4]})
		file = append(file, b...)
	}
	return text, lines, file, nil
}
