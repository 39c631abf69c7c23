package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/chzyer/readline"
	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
)

// input is where lines come from: an editor on a terminal, or a plain stream.
type input interface {
	// line returns the next line without its end; first is false for further
	// lines of one message. It returns io.EOF at the end of input, and
	// errCleared or errInterrupted if Ctrl-C was typed after something or
	// after nothing.
	line(ctx context.Context, first bool) (string, error)
	interactive() bool
	Close() error
}

var (
	errInterrupted = errors.New("interrupted at the prompt")
	errCleared     = errors.New("line cleared")
)

// maxLineBytes bounds one line, and one message of several lines.
const maxLineBytes = 4 << 20

// openInput returns a line editor if somebody sits there to use it.
func openInput(c *urfave.Context, commands []string) (input, error) {
	stdin, isFile := c.App.Reader.(*os.File)
	if !isFile || !cli.IsTerminal(stdin) {
		return newStreamInput(c.App.Reader, nil), nil
	}
	if !cli.IsTerminal(c.App.ErrWriter) || os.Getenv("TERM") == "dumb" {
		return newStreamInput(stdin, c.App.ErrWriter), nil
	}
	return newEditor(stdin, c.App.ErrWriter, commands, !c.Bool("no-history"))
}

// readMessage reads one message or command: a line; lines joined by a \ at
// their ends; or everything between two """.
func readMessage(ctx context.Context, in input) (string, error) {
	line, err := in.line(ctx, true)
	if err != nil {
		return "", err
	}
	var lines []string
	size := 0
	more := func(s string) error {
		if size += len(s) + 1; size > maxLineBytes {
			return cli.Usagef("", "a message has more than %s bytes", cli.Group(maxLineBytes))
		}
		lines = append(lines, s)
		return nil
	}
	const fence = `"""`
	if body, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), fence); ok {
		for first := true; ; first = false {
			text, end := strings.CutSuffix(strings.TrimRight(body, " \t"), fence)
			if !end {
				text = body
			}
			if text != "" || !first && !end { // fences on lines of their own are no lines
				if err := more(text); err != nil {
					return "", err
				}
			}
			if end {
				break
			}
			if body, err = in.line(ctx, false); errors.Is(err, io.EOF) {
				break // the end of input ends the message, too
			} else if err != nil {
				return "", err
			}
		}
		return strings.Join(lines, "\n"), nil
	}
	for {
		text, goesOn := strings.CutSuffix(line, `\`)
		if err := more(text); err != nil {
			return "", err
		}
		if !goesOn {
			break
		}
		if line, err = in.line(ctx, false); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", err
		}
	}
	return strings.Join(lines, "\n"), nil
}

// streamInput reads from a pipe, a file, or a terminal that cannot be edited
// on.
type streamInput struct {
	prompts io.Writer // nil: nobody is there to see one
	lines   chan streamLine
}

type streamLine struct {
	text string
	err  error
}

// newStreamInput reads in a goroutine of its own, so that a signal ends the
// chat while it waits for input. That goroutine ends with the input or the
// process.
func newStreamInput(r io.Reader, prompts io.Writer) *streamInput {
	in := &streamInput{prompts: prompts, lines: make(chan streamLine)}
	go func() {
		s := bufio.NewScanner(r)
		s.Buffer(nil, maxLineBytes)
		for s.Scan() {
			in.lines <- streamLine{text: s.Text()}
		}
		err := s.Err()
		switch {
		case err == nil:
			err = io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			err = cli.Usagef("", "standard input: a line has more than %s bytes", cli.Group(maxLineBytes))
		}
		for {
			in.lines <- streamLine{err: err}
		}
	}()
	return in
}

func (in *streamInput) line(ctx context.Context, first bool) (string, error) {
	interrupted := make(chan struct{}, 1)
	if in.prompts != nil {
		io.WriteString(in.prompts, prompt(first))
		defer cli.OnInterrupt(ctx, func() {
			select {
			case interrupted <- struct{}{}:
			default:
			}
		})()
	}
	select {
	case l := <-in.lines:
		return l.text, l.err
	case <-interrupted: // the terminal itself has forgotten the line
		io.WriteString(in.prompts, "\n")
		return "", errInterrupted
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (in *streamInput) interactive() bool { return in.prompts != nil }
func (in *streamInput) Close() error      { return nil }

func prompt(first bool) string {
	if first {
		return "> "
	}
	return ". "
}

// editor is a line editor with history. It draws on standard error, so that
// standard output has answers alone even if it is the same terminal.
type editor struct {
	rl  *readline.Instance
	out io.Writer
}

func newEditor(stdin *os.File, out io.Writer, commands []string, history bool) (*editor, error) {
	var items []readline.PrefixCompleterInterface
	for _, c := range commands {
		items = append(items, readline.PcItem(c))
	}
	cfg := &readline.Config{
		Stdout: out, Stderr: out,
		AutoComplete: readline.NewPrefixCompleter(items...),
		HistoryLimit: 1000,
	}
	if history {
		cfg.HistoryFile = historyFile()
	}
	if runtime.GOOS != "windows" { // there, the library reads key events instead
		cfg.Stdin = readline.NewCancelableStdin(&pasteReader{r: stdin})
	}
	rl, err := readline.NewEx(cfg)
	if err != nil {
		return nil, err
	}
	return &editor{rl: rl, out: out}, nil
}

// historyFile is where lines are kept, readable for its owner alone, or "" if
// there is no place for it.
func historyFile() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	path := filepath.Join(dir, "nrun", "chat_history")
	if os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return ""
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return ""
	}
	f.Close()
	return path
}

const (
	pasteOn  = "\x1b[?2004h" // asks the terminal to mark what is pasted
	pasteOff = "\x1b[?2004l"
)

func (e *editor) line(ctx context.Context, first bool) (string, error) {
	stop := context.AfterFunc(ctx, func() { e.rl.Close() })
	defer stop()
	e.rl.SetPrompt(prompt(first))
	io.WriteString(e.out, pasteOn)
	s, err := e.rl.Readline()
	io.WriteString(e.out, pasteOff)
	switch {
	case ctx.Err() != nil:
		io.WriteString(e.out, "\n") // what follows is no part of the line
		return "", ctx.Err()
	case errors.Is(err, readline.ErrInterrupt) && (s != "" || !first):
		return "", errCleared
	case errors.Is(err, readline.ErrInterrupt):
		return "", errInterrupted
	case err != nil:
		return "", err
	}
	return unpaste.Replace(s), nil
}

func (e *editor) interactive() bool { return true }
func (e *editor) Close() error      { return e.rl.Close() }

// pasteReader makes a paste of several lines one line for the editor, which
// would else take every line break in it for Enter: within a paste, line
// breaks and tabs become the pictures ␤ and ␉, and other control characters
// are left out. unpaste turns the pictures back.
type pasteReader struct {
	r       io.Reader
	pasting bool
	held    []byte // read, but it may be the beginning of a mark
	cr      bool   // the last byte of the paste was a carriage return
	out     bytes.Buffer
}

var unpaste = strings.NewReplacer("␤", "\n", "␉", "\t")

func (p *pasteReader) Read(b []byte) (int, error) {
	for p.out.Len() == 0 {
		buf := make([]byte, 4096)
		n, err := p.r.Read(buf)
		p.translate(buf[:n])
		if err != nil && p.out.Len() == 0 {
			p.out.Write(p.held)
			p.held = nil
			if p.out.Len() == 0 {
				return 0, err
			}
		}
	}
	return p.out.Read(b)
}

func (p *pasteReader) translate(in []byte) {
	in = append(p.held, in...)
	p.held = nil
	for len(in) > 0 {
		mark := "\x1b[200~"
		if p.pasting {
			mark = "\x1b[201~"
		}
		switch {
		case bytes.HasPrefix(in, []byte(mark)):
			p.pasting, p.cr = !p.pasting, false
			in = in[len(mark):]
			continue
		case len(in) < len(mark) && strings.HasPrefix(mark, string(in)):
			p.held = in // the editor, too, waits for what follows an escape
			return
		case !p.pasting:
			p.out.WriteByte(in[0])
		case in[0] == '\r' || in[0] == '\n' && !p.cr:
			p.out.WriteString("␤")
		case in[0] == '\t':
			p.out.WriteString("␉")
		case in[0] >= ' ' && in[0] != 0x7f:
			p.out.WriteByte(in[0])
		}
		p.cr = in[0] == '\r'
		in = in[1:]
	}
}
