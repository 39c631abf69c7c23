package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/runtime/engine"
)

func chatCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "chat",
		Usage:     "talk with a model",
		UsageText: "nrun chat [flags] [MODEL]",
		Description: "Every line is a message; /help lists what else can be typed. Ctrl-C ends an answer,\n" +
			"Ctrl-D the chat. Without a terminal each line of standard input is answered on standard\n" +
			"output, and the first thing that goes wrong ends the chat.\n\n" +
			"Sampling is as the pack's generation_config.json recommends, else temperature 0.7 and\n" +
			"top-p 0.9; flags override it.\n\n" + cli.Examples(
			"nrun chat",
			`nrun chat --system "You are brief." --seed 1 ~/models/pack`,
			"nrun chat --think off < questions.txt > answers.txt"),
		Flags: slices.Concat([]urfave.Flag{
			&urfave.StringFlag{Name: "system", Usage: "system prompt `TEXT`"},
			&urfave.StringFlag{Name: "think", Usage: "`on` or off: whether the model may think before it answers"},
			&urfave.IntFlag{Name: "n", Usage: "end an answer after `N` tokens; 0: at the end of the context"},
			&urfave.StringSliceFlag{Name: "stop", KeepSpace: true, Usage: "end an answer before `TEXT` comes up; may be given again"},
			&urfave.StringFlag{Name: "load", Usage: "go on with the chat saved in `FILE`"},
			&urfave.BoolFlag{Name: "no-history", Usage: "keep what is typed out of the history file"},
		}, samplingFlags(), draftFlags(), runFlags(), []urfave.Flag{quietFlag("print answers and errors alone")}),
		Action: chatAction,
	}
}

func chatAction(c *urfave.Context) error {
	if c.Int("n") < 0 {
		return cli.Usagef("use -n 0 to go on to the end of the context", "-n %d is negative", c.Int("n"))
	}
	if slices.Contains(c.StringSlice("stop"), "") {
		return cli.Usagef("", "--stop with an empty text")
	}
	p, err := openPack(c)
	if err != nil {
		return err
	}
	defer p.Close()
	k, err := newConversation(c, p)
	if err != nil {
		return err
	}
	r, err := p.open(c)
	if err != nil {
		return err
	}
	defer r.Close()
	var closeSession func()
	if k.session, closeSession, err = r.session(r.Window.Tokens); err != nil {
		return err
	}
	defer closeSession()
	k.runner = r

	in, err := openInput(c, commandNames())
	if err != nil {
		return err
	}
	defer in.Close()
	k.interactive = in.interactive()
	if k.interactive && !c.Bool("quiet") {
		o := r.Options()
		k.note("%s on %s, %d threads, activations %s, KV %s", r.Name, r.Backend, o.Threads, o.Activations, o.KV)
		k.note("%s; context of %d tokens: %s", describe(&k.sampling), r.Window.Tokens, r.Window.Why)
		k.note("/help lists commands; Ctrl-C ends an answer, Ctrl-D the chat")
	}
	return chatLoop(c.Context, in, k)
}

// chatLoop reads and answers until the input ends.
func chatLoop(ctx context.Context, in input, k *conversation) error {
	for {
		text, err := readMessage(ctx, in)
		switch {
		case errors.Is(err, errInterrupted):
			k.note("Ctrl-D or /exit leaves the chat")
			continue
		case errors.Is(err, errCleared):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case strings.TrimSpace(text) == "":
			continue
		}
		err = k.take(ctx, text)
		switch {
		case errors.Is(err, errExit):
			return nil
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case !in.interactive():
			return err
		default:
			cli.Report(k.err, "nrun", err)
		}
	}
}

// take handles one message or command.
func (k *conversation) take(ctx context.Context, text string) error {
	if !strings.HasPrefix(text, "/") {
		return k.say(ctx, text)
	}
	if strings.HasPrefix(text, "//") { // a message that begins with a slash
		return k.say(ctx, text[1:])
	}
	return k.command(ctx, text)
}

// note prints a remark for people. It never goes to standard output.
func (k *conversation) note(format string, args ...any) {
	if !k.interactive || k.quiet {
		return
	}
	k.style(k.err, dim, cli.OneLine(fmt.Sprintf(format, args...)))
	fmt.Fprintln(k.err)
}

// dim is the look of remarks and thoughts.
const dim = "\x1b[2m"

// style writes text in a look, where that is wanted: on a terminal, if neither
// NO_COLOR nor TERM=dumb is set.
func (k *conversation) style(w io.Writer, look, text string) {
	if text == "" {
		return
	}
	if k.interactive && colors() && cli.IsTerminal(w) {
		text = look + text + "\x1b[0m"
	}
	io.WriteString(w, text)
}

func colors() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// chatSampling is what flags say on top of what the pack recommends.
func chatSampling(c *urfave.Context, p *packOf) (engine.Sampling, error) {
	g, err := p.Generation()
	if err != nil {
		return engine.Sampling{}, err
	}
	base := engine.Sampling{Temperature: 0.7, TopP: 0.9}
	if g.Temperature != nil || g.TopK != nil || g.TopP != nil || g.MinP != nil || g.RepetitionPenalty != nil {
		base = engine.Sampling{Temperature: 1} // the meaning of a file that leaves it out
	}
	for to, from := range map[*float64]*float64{
		&base.Temperature: g.Temperature, &base.TopP: g.TopP, &base.MinP: g.MinP, &base.Repetition: g.RepetitionPenalty,
	} {
		if from != nil {
			*to = *from
		}
	}
	if g.TopK != nil {
		base.TopK = *g.TopK
	}
	if g.DoSample != nil && !*g.DoSample || c.IsSet("temperature") && c.Float64("temperature") == 0 {
		base.Temperature, base.TopK, base.TopP, base.MinP = 0, 0, 0, 0
	}
	return sampling(c, base, p.Tokenizer)
}
