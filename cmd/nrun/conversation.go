package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/runtime/chat"
	"npack/runtime/engine"
)

// conversation is a chat: what was said, and the session that holds it in its
// cache.
type conversation struct {
	runner   *runner
	session  *engine.Session
	out, err io.Writer // answers; everything else

	system   string         // "": none of the user's own
	messages []chat.Message // without the system prompt
	template *chat.Template
	think    *bool // nil: as the template has it

	sampling  engine.Sampling
	maxTokens int
	stop      []string
	stopIDs   []int32
	answers   uint64 // so far, for seeds
	stats     chatStats

	interactive, quiet bool
}

// newConversation reads everything but the weights, so that mistakes are found
// before they are loaded.
func newConversation(c *urfave.Context, p *packOf) (*conversation, error) {
	k := &conversation{
		out: c.App.Writer, err: c.App.ErrWriter, quiet: c.Bool("quiet"),
		system: c.String("system"), maxTokens: c.Int("n"), stop: c.StringSlice("stop"),
	}
	if err := p.runnable(); err != nil { // nothing beside a file says more than the file
		return nil, err
	}
	if _, err := p.Tokenizer(); err != nil {
		return nil, err
	}
	var err error
	if k.template, err = p.Template(); err != nil {
		return nil, err
	}
	if c.IsSet("think") {
		if err := k.setThinking(c.Context, c.String("think")); err != nil {
			return nil, err
		}
	}
	if c.IsSet("load") {
		if err := k.load(c.String("load")); err != nil {
			return nil, err
		}
		if c.IsSet("system") {
			k.system = c.String("system")
		}
	}
	if k.sampling, err = chatSampling(c, p); err != nil {
		return nil, err
	}
	k.stopIDs, err = p.StopIDs()
	return k, err
}

// setThinking refuses a switch that the template does not have.
func (k *conversation) setThinking(ctx context.Context, word string) error {
	switch word {
	case "auto":
		k.think = nil
		return nil
	case "on", "off":
	default:
		return cli.Usagef("on, off or auto", "thinking cannot be %q", word)
	}
	has, err := k.template.HasThinking(ctx)
	if err == nil && !has {
		err = cli.WithHint(chat.ErrNoThinking, "it always answers in the same way")
	}
	if err != nil {
		return err
	}
	on := word == "on"
	k.think = &on
	return nil
}

// all returns the messages with the system prompt.
func (k *conversation) all() []chat.Message {
	if k.system == "" {
		return k.messages
	}
	return append([]chat.Message{{Role: chat.System, Content: k.system}}, k.messages...)
}

// say adds a user's message and answers it. If it cannot be answered, the
// conversation is as it was before.
func (k *conversation) say(ctx context.Context, text string) error {
	before := len(k.messages)
	k.messages = append(k.messages, chat.Message{Role: chat.User, Content: text})
	err := k.answer(ctx)
	if err != nil || k.messages[len(k.messages)-1].Role != chat.Assistant {
		k.messages = k.messages[:before]
	}
	return err
}

// answer lets the model speak and adds what it says. Ctrl-C ends the answer:
// what there is of it stays, and that is no error.
func (k *conversation) answer(ctx context.Context) error {
	turn, cancel := context.WithCancel(ctx)
	defer cancel()
	if k.interactive {
		defer cli.OnInterrupt(ctx, cancel)()
	}
	ids, pieces, err := k.runner.Prompt(turn, k.all(), chat.Options{AddGenerationPrompt: true, Thinking: k.think})
	if err != nil {
		return k.explain(turn, err)
	}
	tok, err := k.runner.Tokenizer()
	if err != nil {
		return err
	}
	w := &turnWriter{k: k}
	if inside := chat.OpensThinking(pieces); inside || k.template.Thinks() {
		w.split = chat.NewSplitter(inside)
	}
	s := k.sampling
	s.Seed += k.answers // another answer to the same question is another one
	k.answers++
	bar := cli.NewProgress(k.err, k.quiet || !k.interactive).Count("tokens")
	res, err := k.session.Generate(turn, engine.Request{
		Prompt: ids, MaxTokens: k.maxTokens, Sampling: s, StopIDs: k.stopIDs, Stop: k.stop,
		Text: tok.NewStream(false), Emit: w.emit,
		Progress: func(done, total int) {
			if done < total {
				bar.Show("reading", int64(done), int64(total))
			} else {
				bar.Done()
			}
		},
	})
	bar.Done()
	if endErr := w.end(err != nil); err == nil {
		err = endErr
	}
	if err != nil {
		return k.explain(turn, err)
	}
	if m, ok := w.message(); ok {
		k.messages = append(k.messages, m)
	}
	k.stats.add(&res)
	switch res.Finish {
	case engine.FinishCancelled:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.note("stopped")
	case engine.FinishLength:
		k.note("cut off at -n %d tokens", k.maxTokens)
	case engine.FinishContext:
		used := len(ids) + len(res.IDs)
		err := fmt.Errorf("the context of %d tokens is full: %d were the prompt, the answer took the rest", k.session.Window(), len(ids))
		if !k.interactive {
			// The answer is not whole; who reads it from a pipe must know.
			return cli.WithHint(err, k.contextHint(used))
		}
		cli.Report(k.err, "nrun", cli.WithHint(err, k.contextHint(used)))
	}
	return nil
}

// explain adds to an error what can be done in a chat.
func (k *conversation) explain(turn context.Context, err error) error {
	var full *engine.ContextError
	switch {
	case turn.Err() != nil: // also where the end of a step or process is what is reported
		if k.interactive && errors.Is(context.Cause(turn), context.Canceled) {
			k.note("stopped")
			return nil
		}
		return turn.Err()
	case errors.As(err, &full):
		return cli.WithHint(err, k.contextHint(full.Prompt+1))
	case errors.Is(err, chat.ErrOpaque):
		return cli.WithHint(err, "say it in other words; /undo takes back the last turn")
	case errors.Is(err, chat.ErrTemplate):
		return cli.WithHint(err, "the pack's chat template says this; nrun generate -p TEXT works without it")
	}
	return err
}

func (k *conversation) contextHint(need int) string {
	hint := "/reset begins a new chat, /undo takes back the last turn"
	if most := k.runner.Config().MaxPosition; k.session.Window() < most {
		hint += fmt.Sprintf("; nrun chat -c %d has more room", min(most, 2*need))
	}
	return hint
}

// turnWriter shows an answer as it comes: the answer on standard output, and
// what the model thinks on standard error, where it is a terminal.
type turnWriter struct {
	k                *conversation
	split            *chat.Splitter // nil: all is answer
	thinking, answer strings.Builder
}

func (w *turnWriter) emit(c engine.Chunk) error {
	thinking, answer := "", string(c.Text)
	if w.split != nil {
		thinking, answer = w.split.Write(answer)
	}
	return w.show(thinking, answer)
}

func (w *turnWriter) show(thinking, answer string) error {
	if thinking != "" {
		w.thinking.WriteString(thinking)
		if w.k.interactive {
			w.k.style(w.k.err, dim, thinking)
		}
	}
	if answer == "" {
		return nil
	}
	if w.answer.Len() == 0 && w.thinking.Len() > 0 && w.k.interactive {
		io.WriteString(w.k.err, "\n\n")
	}
	w.answer.WriteString(answer)
	_, err := io.WriteString(w.k.out, answer)
	return err
}

// end shows what was held back and ends the line. In a pipe an empty answer is
// an empty line, so that lines still tell which answer is whose; one that
// failed is nothing.
func (w *turnWriter) end(failed bool) error {
	if w.split != nil {
		if err := w.show(w.split.Close()); err != nil {
			return err
		}
	}
	if w.answer.Len() == 0 {
		if w.thinking.Len() > 0 && w.k.interactive {
			io.WriteString(w.k.err, "\n")
		}
		if w.k.interactive || failed {
			return nil
		}
	}
	if strings.HasSuffix(w.answer.String(), "\n") {
		return nil
	}
	_, err := io.WriteString(w.k.out, "\n")
	return err
}

// message is what goes into the conversation, false if there is nothing.
func (w *turnWriter) message() (chat.Message, bool) {
	m := chat.Message{Role: chat.Assistant, Content: w.answer.String()}
	if w.split != nil {
		thinking := w.thinking.String()
		m.Reasoning = &thinking
	}
	return m, m.Content != "" || w.thinking.Len() > 0
}
