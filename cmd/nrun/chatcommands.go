package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/pack"
	"npack/runtime/chat"
	"npack/runtime/engine"
)

// chatCommands is the table of what can be typed after a slash.
func chatCommands() []chatCommandEntry {
	return []chatCommandEntry{
		{"help", "", "this list", (*conversation).help},
		{"reset", "", "forget what was said; the system prompt stays", (*conversation).reset},
		{"undo", "", "take back the last message and its answer", (*conversation).undo},
		{"retry", "", "answer the last message anew", (*conversation).retry},
		{"system", "[TEXT]", "show or set the system prompt; - removes it", (*conversation).setSystem},
		{"think", "[on|off|auto]", "show or set whether the model thinks before it answers", (*conversation).thinkCommand},
		{"save", "FILE", "write the chat to a JSON file", (*conversation).saveCommand},
		{"load", "FILE", "go on with a saved chat", (*conversation).loadCommand},
		{"stats", "", "context, tokens and speed so far", (*conversation).printStats},
		{"exit", "", "leave; Ctrl-D does the same", func(*conversation, context.Context, string) error { return errExit }},
	}
}

type chatCommandEntry struct {
	name, arg, about string
	do               func(k *conversation, ctx context.Context, arg string) error
}

var errExit = errors.New("exit")

func commandNames() []string {
	var names []string
	for _, c := range chatCommands() {
		names = append(names, "/"+c.name)
	}
	return names
}

// command runs a line that begins with a slash.
func (k *conversation) command(ctx context.Context, line string) error {
	name, arg := line[1:], ""
	if i := strings.IndexFunc(name, unicode.IsSpace); i >= 0 {
		name, arg = name[:i], strings.TrimSpace(name[i:])
	}
	for _, c := range chatCommands() {
		if c.name != name {
			continue
		}
		if c.arg == "" && arg != "" {
			return cli.Usagef("", "/%s takes nothing, found %.60q", name, arg)
		}
		if c.arg != "" && c.arg[0] != '[' && arg == "" {
			return cli.Usagef("", "/%s needs %s", name, c.arg)
		}
		return c.do(k, ctx, arg)
	}
	hint := "/help lists the commands; a message that begins with a slash is typed with two: //"
	if s := cli.Closest("/"+name, commandNames()); s != "" {
		hint = fmt.Sprintf("did you mean %s? A message that begins with a slash is typed with two: //", s)
	}
	return cli.Usagef(hint, "unknown command %.60q", "/"+name)
}

func (k *conversation) help(context.Context, string) error {
	for _, c := range chatCommands() {
		fmt.Fprintf(k.err, "  %-22s %s\n", "/"+c.name+" "+c.arg, c.about)
	}
	fmt.Fprintf(k.err, "A message of several lines: end a line with \\, or put \"\"\" before and after it.\n")
	fmt.Fprintf(k.err, "Ctrl-C ends an answer and keeps the chat.\n")
	return nil
}

func (k *conversation) reset(context.Context, string) error {
	k.messages = nil
	k.note("a new chat")
	return k.session.Reset()
}

func (k *conversation) undo(context.Context, string) error {
	for i := len(k.messages) - 1; i >= 0; i-- {
		if k.messages[i].Role == chat.User {
			k.note("took back: %.60s", k.messages[i].Content)
			k.messages = k.messages[:i]
			return nil
		}
	}
	return cli.Usagef("", "nothing to take back")
}

func (k *conversation) retry(ctx context.Context, _ string) error {
	n := len(k.messages)
	for n > 0 && k.messages[n-1].Role != chat.User {
		n--
	}
	if n == 0 {
		return cli.Usagef("", "nothing to answer")
	}
	old := k.messages
	k.messages = old[:n:n] // the old answer stays whole until there is a new one
	err := k.answer(ctx)
	if len(k.messages) == n {
		k.messages = old
	}
	return err
}

func (k *conversation) setSystem(_ context.Context, arg string) error {
	switch arg {
	case "":
		if s := k.system; s != "" {
			fmt.Fprintln(k.err, cli.OneLine(s))
		} else {
			fmt.Fprintln(k.err, "no system prompt")
		}
	case "-":
		k.system = ""
	default:
		k.system = arg
	}
	return nil
}

func (k *conversation) thinkCommand(ctx context.Context, arg string) error {
	if arg != "" {
		return k.setThinking(ctx, arg)
	}
	switch {
	case k.think == nil:
		fmt.Fprintln(k.err, "thinking: as the template has it")
	case *k.think:
		fmt.Fprintln(k.err, "thinking: on")
	default:
		fmt.Fprintln(k.err, "thinking: off")
	}
	return nil
}

// savedChat is the form of saved chats. Messages are those of the OpenAI API,
// the system prompt first.
type savedChat struct {
	Model    string         `json:"model,omitempty"`
	Messages []chat.Message `json:"messages"`
}

func (k *conversation) saveCommand(_ context.Context, path string) error {
	path, err := expandHome(path)
	if err != nil {
		return err
	}
	f, err := outfile.Create(path, 0)
	if err != nil {
		return err
	}
	defer f.Abort()
	e := json.NewEncoder(f)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(savedChat{k.runner.Name, k.all()}); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	k.note("saved %d messages to %q", len(k.all()), path)
	return nil
}

func (k *conversation) loadCommand(_ context.Context, path string) error {
	if err := k.load(path); err != nil {
		return err
	}
	k.note("loaded %d messages", len(k.all()))
	return nil
}

// load replaces the conversation; on an error it stays as it is.
func (k *conversation) load(path string) error {
	path, err := expandHome(path)
	if err != nil {
		return err
	}
	data, err := pack.ReadFile(path, maxLineBytes*4)
	if err != nil {
		return err
	}
	bad := func(found, expected string) error {
		return &pack.Error{Kind: pack.ErrCorrupt, File: path, Offset: -1, Found: found, Expected: expected, Hint: "/load reads what /save wrote"}
	}
	var saved savedChat
	if err := json.Unmarshal(data, &saved); err != nil {
		return bad(err.Error(), `{"messages": [{"role": …, "content": …}, …]}`)
	}
	if len(saved.Messages) == 0 {
		return bad("no messages", "a saved chat")
	}
	system := ""
	if saved.Messages[0].Role == chat.System {
		system, saved.Messages = saved.Messages[0].Content, saved.Messages[1:]
	}
	for i, m := range saved.Messages {
		switch m.Role {
		case chat.System, chat.User, chat.Assistant, chat.Tool:
		default:
			return bad(fmt.Sprintf("message %d: role %q", i, m.Role), "system, user, assistant or tool")
		}
	}
	k.system, k.messages = system, saved.Messages
	return nil
}

// expandHome does for ~/ what a shell would.
func expandHome(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, rest), nil
}

// chatStats adds up what the answers cost.
type chatStats struct {
	answers, read, cached, steps, passes, written int
	prefill, decode                               time.Duration
	draft                                         *engine.DraftStats // nil without a draft
}

func (s *chatStats) add(r *engine.Result) {
	s.answers++
	s.read += r.Prompt - r.Cached
	s.cached += r.Cached
	s.steps += r.Steps
	s.written += len(r.IDs)
	s.prefill += r.Prefill
	s.decode += r.Decode
	s.passes += r.Passes
	if r.Draft != nil {
		if s.draft == nil {
			s.draft = &engine.DraftStats{}
		}
		s.draft.Add(r.Draft)
	}
}

func (k *conversation) printStats(context.Context, string) error {
	s := &k.stats
	t := engine.Timings{Prompt: s.read, Prefill: s.prefill, Steps: s.steps, Passes: s.passes, Decode: s.decode}
	fmt.Fprintf(k.err, "context:  %d of %d tokens\n", len(k.session.Tokens()), k.session.Window())
	fmt.Fprintf(k.err, "answers:  %d\n", s.answers)
	fmt.Fprintf(k.err, "read:     %d tokens, %.1f tokens/s; %d more were in the cache\n", s.read, t.PrefillRate(), s.cached)
	fmt.Fprintf(k.err, "written:  %d tokens, %.1f tokens/s\n", s.written, t.DecodeRate())
	k.runner.Draft.print(k.err, "          ", &t, s.draft)
	fmt.Fprintf(k.err, "sampling: %s\n", describe(&k.sampling))
	return nil
}
