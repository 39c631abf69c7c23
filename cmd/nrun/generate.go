package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/runtime/chat"
	"npack/runtime/engine"
	"npack/runtime/tokenizer"
)

func generateCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "generate",
		Aliases:   []string{"gen"},
		Usage:     "continue a text, or answer it with --chat",
		UsageText: "nrun generate [flags] [MODEL]",
		Description: "The prompt is not repeated: standard output gets what the model adds and nothing\n" +
			"else. A newline at the end of a prompt from a file or from standard input is left out.\n" +
			"Control tokens (\"<|im_end|>\") in a raw prompt are recognised unless --literal is given;\n" +
			"with --chat they never are.\n\n" + cli.Examples(
			`nrun generate -p "Once upon a time" -n 100`,
			`nrun generate --chat -p "Tell me a story about a fox." --temperature 0.7 --top-p 0.9 --seed 1`,
			`nrun generate ~/models/pack --file prompt.txt -q > answer.txt`,
			`nrun generate --ids 4094,2587,198 -n 8`,
			`nrun generate ~/models/8b --draft ~/models/0.6b --memory-limit 6GiB --file prompt.txt`),
		Flags: slices.Concat(textFlags("to continue"), []urfave.Flag{
			&urfave.IntFlag{Name: "n", Value: 256, Usage: "stop after `N` tokens; 0: at the end of the context"},
			&urfave.StringFlag{Name: "ids", Usage: "prompt as token ids, `ID,ID,…`; the answer comes as ids too"},
			&urfave.BoolFlag{Name: "literal", Usage: "take control tokens in the prompt as text"},
			&urfave.BoolFlag{Name: "chat", Usage: "the prompt is a user's message: apply the pack's chat template"},
			&urfave.StringFlag{Name: "system", Usage: "system prompt `TEXT`, with --chat"},
			&urfave.StringFlag{Name: "think", Usage: "`on` or off: whether the model may think before it answers, with --chat"},
			&urfave.StringSliceFlag{Name: "stop", KeepSpace: true, Usage: "end before `TEXT` comes up; may be given again"},
			&urfave.BoolFlag{Name: "ignore-eos", Usage: "go on where the model would end the text"},
		}, samplingFlags(), draftFlags(), runFlags(), []urfave.Flag{quietFlag("print the text alone"), jsonFlag()}),
		Action: generate,
	}
}

func generate(c *urfave.Context) error {
	if err := checkGenerateFlags(c); err != nil {
		return err
	}
	p, err := openPack(c)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Model()
	if err != nil {
		return err
	}
	req := engine.Request{MaxTokens: c.Int("n"), Stop: c.StringSlice("stop")}
	if req.Sampling, err = sampling(c, engine.Sampling{}, p.Tokenizer); err != nil {
		return err
	}
	if req.Prompt, err = generatePrompt(c, p, m.Vocab); err != nil {
		return err
	}
	if !c.Bool("ignore-eos") {
		if req.StopIDs, err = p.StopIDs(); err != nil {
			return err
		}
	}
	if !c.IsSet("ids") || len(req.Stop) > 0 {
		tok, err := p.Tokenizer()
		if err != nil {
			return err
		}
		req.Text = tok.NewStream(c.Bool("ignore-eos")) // control tokens that did not stop are part of the text
	}
	r, err := p.open(c)
	if err != nil {
		return err
	}
	defer r.Close()

	// No more room is made than the text can fill.
	room := r.Window.Tokens
	if len(req.Prompt) <= room && req.MaxTokens > 0 {
		room = min(room, len(req.Prompt)+req.MaxTokens)
	}
	s, closeSession, err := r.session(room)
	if err != nil {
		return err
	}
	defer closeSession()

	w := &answerWriter{w: c.App.Writer, ids: c.IsSet("ids"), json: c.Bool("json")}
	req.Emit = w.emit
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet")).Count("tokens")
	req.Progress = func(done, total int) {
		if bar.Show("reading the prompt", int64(done), int64(total)); done == total {
			bar.Done()
		}
	}
	res, err := s.Generate(c.Context, req)
	bar.Done()
	if err != nil {
		return contextHint(err, &m.Config)
	}
	if err := w.end(c.Bool("quiet")); err != nil {
		return err
	}
	if c.Bool("json") {
		if err := cli.JSON(c.App.Writer, newAnswer(r, &req, &res, w.text.String())); err != nil {
			return err
		}
	} else if !c.Bool("quiet") {
		printStats(c.App.ErrWriter, r, &req, &res)
	}
	if res.Finish == engine.FinishCancelled {
		return context.Canceled
	}
	return nil
}

func checkGenerateFlags(c *urfave.Context) error {
	if c.Int("n") < 0 {
		return cli.Usagef("use -n 0 to go on to the end of the context", "-n %d is negative", c.Int("n"))
	}
	if slices.Contains(c.StringSlice("stop"), "") {
		return cli.Usagef("", "--stop with an empty text")
	}
	for _, name := range []string{"system", "think"} {
		if c.IsSet(name) && !c.Bool("chat") {
			return cli.Usagef("add --chat", "--%s has no effect without --chat", name)
		}
	}
	if c.IsSet("ids") {
		for _, name := range []string{"prompt", "file", "chat", "literal"} {
			if c.IsSet(name) {
				return cli.Usagef("leave one of them out", "both --ids and --%s are given", name)
			}
		}
	}
	if c.Bool("chat") && c.Bool("literal") {
		return cli.Usagef("leave --literal out", "--chat always takes the prompt as text")
	}
	return nil
}

// generatePrompt returns the ids of the prompt.
func generatePrompt(c *urfave.Context, p *packOf, vocab int) ([]int32, error) {
	if c.IsSet("ids") {
		return nonEmpty(parseIDs(c.String("ids"), vocab))
	}
	text, read, err := readText(c)
	if err != nil {
		return nil, err
	}
	if read {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	}
	if c.Bool("chat") {
		var o chat.Options
		if o, err = chatOptions(c.String("think")); err != nil {
			return nil, err
		}
		var msgs []chat.Message
		if c.IsSet("system") {
			msgs = append(msgs, chat.Message{Role: chat.System, Content: c.String("system")})
		}
		ids, _, err := p.Prompt(c.Context, append(msgs, chat.Message{Role: chat.User, Content: text}), o)
		if errors.Is(err, chat.ErrNoThinking) {
			err = cli.Usagef("leave --think out", "--think: %s", err)
		}
		return ids, err
	}
	tok, err := p.Tokenizer()
	if err != nil {
		return nil, err
	}
	if c.Bool("literal") {
		return nonEmpty(tok.EncodeLiteral(nil, text), nil)
	}
	return nonEmpty(tok.Encode(nil, text), nil)
}

func nonEmpty(ids []int32, err error) ([]int32, error) {
	if err == nil && len(ids) == 0 {
		err = cli.Usagef("the model needs something to continue", "%s", engine.ErrNoPrompt)
	}
	return ids, err
}

// chatOptions are those of a turn that the model is to answer; think is "on",
// "off" or "" for what the template does by itself.
func chatOptions(think string) (chat.Options, error) {
	o := chat.Options{AddGenerationPrompt: true}
	switch think {
	case "":
	case "on", "off":
		on := think == "on"
		o.Thinking = &on
	default:
		return o, cli.Usagef("", "--think %q: on or off", think)
	}
	return o, nil
}

// answerWriter prints an answer as it comes, and keeps its text.
type answerWriter struct {
	w         io.Writer
	ids, json bool
	text      strings.Builder
	last      byte // that was printed
	buf       []byte
}

func (a *answerWriter) emit(ch engine.Chunk) error {
	a.text.Write(ch.Text)
	if a.json {
		return nil
	}
	if !a.ids {
		return a.print(ch.Text)
	}
	if ch.ID < 0 {
		return nil
	}
	a.buf = a.buf[:0]
	if a.last != 0 {
		a.buf = append(a.buf, ',')
	}
	return a.print(strconv.AppendInt(a.buf, int64(ch.ID), 10))
}

func (a *answerWriter) print(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	a.last = b[len(b)-1]
	_, err := a.w.Write(b)
	return err
}

// end ends the last line, so that a prompt or statistics begin a new one.
// Quiet text is left as the model made it; ids are a line in any case.
func (a *answerWriter) end(quiet bool) error {
	if a.json || quiet && !a.ids || a.last == '\n' {
		return nil
	}
	return a.print([]byte{'\n'})
}

// answer is the JSON form of a result. Fields are only ever added.
type answer struct {
	Model       string        `json:"model"`
	Text        string        `json:"text"`
	PromptIDs   []int32       `json:"prompt_ids"`
	IDs         []int32       `json:"ids"`
	Finish      engine.Finish `json:"finish"`
	StopID      *int32        `json:"stop_id,omitempty"`
	StopText    string        `json:"stop_text,omitempty"`
	Sampling    string        `json:"sampling"`
	Temperature float64       `json:"temperature"`
	Seed        *uint64       `json:"seed,omitempty"`
	Backend     string        `json:"backend"`
	Activations string        `json:"activations"`
	KV          string        `json:"kv"`
	Threads     int           `json:"threads"`
	Context     window        `json:"context"`
	Timings     answerTimings `json:"timings"`
	Draft       *drafted      `json:"draft,omitempty"`
}

type answerTimings struct {
	LoadSeconds    float64 `json:"load_seconds"`
	PrefillTokens  int     `json:"prefill_tokens"`
	CachedTokens   int     `json:"cached_tokens"`
	PrefillSeconds float64 `json:"prefill_seconds"`
	PrefillRate    float64 `json:"prefill_tokens_per_second"`
	DecodeSteps    int     `json:"decode_steps"`
	DecodeSeconds  float64 `json:"decode_seconds"`
	DecodeRate     float64 `json:"decode_tokens_per_second"`
}

func newAnswer(r *runner, req *engine.Request, res *engine.Result, text string) *answer {
	o := r.Options()
	a := &answer{
		Model: r.Name, Text: text, PromptIDs: req.Prompt, IDs: res.IDs, Finish: res.Finish, StopText: res.StopText,
		Sampling: describe(&req.Sampling), Temperature: req.Sampling.Temperature,
		Backend: r.Backend, Activations: o.Activations.String(), KV: o.KV.String(), Threads: o.Threads, Context: r.Window,
		Timings: answerTimings{r.Load.Seconds(), res.Prompt - res.Cached, res.Cached, res.Prefill.Seconds(), res.PrefillRate(), res.Steps, res.Decode.Seconds(), res.DecodeRate()},
	}
	a.Draft = newDrafted(r.Draft, &res.Timings, res.Draft)
	if a.IDs == nil {
		a.IDs = []int32{}
	}
	if res.StopID >= 0 {
		a.StopID = &res.StopID
	}
	if req.Sampling.Temperature > 0 {
		a.Seed = &req.Sampling.Seed
	}
	return a
}

// printStats says what ran, how it was set and how fast it was.
func printStats(w io.Writer, r *runner, req *engine.Request, res *engine.Result) {
	o := r.Options()
	fmt.Fprintf(w, "nrun: %s on %s, %d threads, activations %s, KV %s; %s\n", r.Name, r.Backend, o.Threads, o.Activations, o.KV, describe(&req.Sampling))
	fmt.Fprintf(w, "nrun: context of %d tokens: %s\n", r.Window.Tokens, r.Window.Why)
	fmt.Fprintf(w, "nrun: load %s; prompt %d tokens, %.1f tokens/s; answer %d tokens, %.1f tokens/s; ended by %s\n",
		r.Load.Round(time.Millisecond), res.Prompt, res.PrefillRate(), len(res.IDs), res.DecodeRate(), ending(r.tok, res))
	r.Draft.print(w, "nrun: ", &res.Timings, res.Draft)
}

// ending names what ended an answer.
func ending(tok *tokenizer.Tokenizer, res *engine.Result) string {
	switch {
	case res.StopText != "":
		return "stop text " + strconv.Quote(res.StopText)
	case res.StopID >= 0 && tok != nil:
		name, _ := tok.Token(res.StopID)
		return "stop token " + name
	case res.StopID >= 0:
		return fmt.Sprintf("stop token %d", res.StopID)
	case res.Finish == engine.FinishLength:
		return "length (-n)"
	case res.Finish == engine.FinishContext:
		return "the end of the context"
	}
	return string(res.Finish)
}
