package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The Jinja library gets white space around tags wrong where tags touch: in
//
//	{% for t in tools %}{{ t }}
//	{% endfor %}
//
// it drops the newline after {{ t }}, as if it followed the first tag. Every
// newline counts in a prompt. So templates are read here, by the rules of
// Jinja's own lexer with trim_blocks and lstrip_blocks (as Hugging Face sets
// them), and the library gets an equal template in which every text stands as
// a string in an expression: {{ 'text' }}. Nothing is left for it to trim.
//
// Two more of its habits are avoided on the way: it ends a tag at the }} of
// {'a': {'b': 1}}, and its tojson prints numbers and U+2028 unlike Python, so
// that name is replaced by one of our own (jinja.go).

// jsonFilter is what templates' tojson is called after jinjaSource.
const jsonFilter = "npack_tojson"

var (
	rawBegin   = regexp.MustCompile(`^\{%[-+]?\s*raw\s*(-%\}\s*|%\})`)
	rawEnd     = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*(\+%\}|-%\}\s*|%\}\n?)`)
	jsonName   = regexp.MustCompile(`(\|\s*)tojson\b`)
	indentOnly = regexp.MustCompile(`^\s+$`)
)

var errUnclosedTag = errors.New("a tag is not closed")

// jinjaSource rewrites a template for the library.
func jinjaSource(src string) (string, error) {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	src = strings.TrimSuffix(src, "\n")
	var out strings.Builder
	lineStart := true // what came before the text ended a line
	line := 1
	for {
		open := nextTag(src)
		if open < 0 {
			writeText(&out, src)
			return out.String(), nil
		}
		text, tag := src[:open], src[open:]
		writeText(&out, trimBefore(text, tag, lineStart))
		line += strings.Count(text, "\n")

		if m := rawBegin.FindString(tag); m != "" {
			body := tag[len(m):]
			end := rawEnd.FindStringSubmatchIndex(body)
			if end == nil {
				return "", fmt.Errorf("line %d: %w", line, errUnclosedTag)
			}
			writeText(&out, trimBefore(body[:end[0]], body[end[0]:], strings.HasSuffix(m, "\n")))
			lineStart = strings.HasSuffix(body[:end[1]], "\n")
			line += strings.Count(tag[:len(m)+end[1]], "\n")
			src = body[end[1]:]
			continue
		}
		inner, used, err := closeTag(tag)
		if err != nil {
			return "", fmt.Errorf("line %d: %w", line, err)
		}
		if tag[1] != '#' {
			out.WriteString(tag[:2] + " " + inner + " ")
			if tag[1] == '{' {
				out.WriteString("}}")
			} else {
				out.WriteString("%}")
			}
		}
		lineStart = strings.HasSuffix(tag[:used], "\n")
		line += strings.Count(tag[:used], "\n")
		src = tag[used:]
	}
}

// nextTag is the index of the next {{, {% or {#, or -1.
func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// trimBefore applies what a tag's beginning says about the text before it.
func trimBefore(text, tag string, lineStart bool) string {
	switch {
	case len(tag) > 2 && tag[2] == '-':
		return strings.TrimRightFunc(text, isPythonSpace)
	case len(tag) > 2 && tag[2] == '+', tag[1] == '{':
		return text
	}
	// lstrip_blocks: an indent goes if nothing else is before it in its line.
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || lineStart) && indentOnly.MatchString(text[line:]) {
		return text[:line]
	}
	return text
}

// closeTag returns what is between a tag's delimiters, made safe for the
// library, and how many bytes the tag takes with the white space it swallows.
func closeTag(tag string) (inner string, used int, err error) {
	start := 2
	if len(tag) > 2 && (tag[2] == '-' || tag[2] == '+') && tag[1] != '{' || strings.HasPrefix(tag, "{{-") {
		start = 3
	}
	closer := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[tag[1]]
	if tag[1] == '#' {
		end := strings.Index(tag[start:], closer)
		if end < 0 {
			return "", 0, errUnclosedTag
		}
		end += start
		return "", end + 2 + swallow(tag, end, start), nil
	}
	var b strings.Builder
	code := start // start of the code not yet copied
	flush := func(end int) {
		b.WriteString(jsonName.ReplaceAllString(tag[code:end], "${1}"+jsonFilter))
		code = end
	}
	depth := 0 // open braces of dict literals
	for i := start; i < len(tag); i++ {
		switch c := tag[i]; {
		case c == '\'' || c == '"':
			end := i + 1
			for end < len(tag) && tag[end] != c {
				if tag[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(tag) {
				return "", 0, errUnclosedTag
			}
			flush(i)
			b.WriteString(tag[i : end+1])
			code, i = end+1, end
		case depth == 0 && strings.HasPrefix(tag[i:], closer):
			end := i
			if end > start && (tag[end-1] == '-' || tag[end-1] == '+' && closer != "}}") {
				end--
			}
			if end > code {
				flush(end)
			}
			return b.String(), i + 2 + swallow(tag, i, start), nil
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
			flush(i)
			b.WriteString(" }")
			code = i + 1
		}
	}
	return "", 0, errUnclosedTag
}

// swallow is how much white space after a tag goes with it; end is where its
// closing delimiter stands.
func swallow(tag string, end, start int) int {
	after := tag[end+2:]
	mark := byte(0)
	if end > start {
		mark = tag[end-1]
	}
	switch {
	case mark == '-':
		return len(after) - len(strings.TrimLeftFunc(after, isPythonSpace))
	case tag[1] == '{' || mark == '+':
		return 0
	case strings.HasPrefix(after, "\n"): // trim_blocks
		return 1
	}
	return 0
}

// isPythonSpace is what str.strip and \s take away.
func isPythonSpace(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', 0x1c, 0x1d, 0x1e, 0x1f, ' ', 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000:
		return true
	}
	return 0x2000 <= r && r <= 0x200a
}

// writeText writes a text as an expression that prints it.
func writeText(out *strings.Builder, text string) {
	if text == "" {
		return
	}
	out.WriteString("{{ '")
	for i := range len(text) { // the bytes that matter are ASCII
		switch c := text[i]; c {
		case '\'', '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case '\n':
			out.WriteString(`\n`)
		case '\t':
			out.WriteString(`\t`)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteString("' }}")
}
