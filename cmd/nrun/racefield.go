package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"

	urfave "github.com/urfave/cli/v2"

	"npack/cpu"
	"npack/cuda"
	"npack/internal/cli"
	"npack/internal/machine"
	"npack/internal/race"
	"npack/pack"
	"npack/pack/formats"
	"npack/runtime/backend"
	"npack/runtime/engine"
	"npack/ternary"
)

// raceField is who takes part in a race.
type raceField struct {
	contestants []race.Contestant
	own         []*ownContestant // ours among them
}

// ownContestant is one that this program runs.
type ownContestant struct {
	*packOf
	chosen  *chosen
	options backend.Options
	model   *ternary.Model
	draft   *draft // nil: none
	room    int    // tokens of the longest text
}

// newField opens the models of r's contestants and completes their definitions.
// The caller closes it, also the models that no turn opened.
func newField(c *urfave.Context, r *race.Report) (*raceField, error) {
	args, err := cli.Positionals(c, 0, 1)
	if err != nil {
		return nil, err
	}
	f := &raceField{}
	for i := range r.Contestants {
		d := &r.Contestants[i]
		var start func(context.Context) (race.Runner, error)
		if d.Ours() {
			if d.Model == "" && len(args) == 1 {
				d.Model = args[0]
			}
			x, err := newOwn(c.Context, d)
			if err != nil {
				f.close()
				return nil, err
			}
			f.own = append(f.own, x)
			start = func(ctx context.Context) (race.Runner, error) { return x.start(c) }
		} else {
			start = func(ctx context.Context) (race.Runner, error) { return race.StartExternal(ctx, d) }
		}
		f.contestants = append(f.contestants, race.Contestant{Definition: *d, Start: start})
	}
	for i := range f.contestants {
		f.contestants[i].Definition = r.Contestants[i]
	}
	return f, nil
}

func (f *raceField) close() {
	for _, x := range f.own {
		_ = x.draft.Close()
		_ = x.Close()
	}
}

// newOwn opens a contestant's model and writes into its definition what it left
// to the program.
func newOwn(ctx context.Context, d *race.Definition) (*ownContestant, error) {
	fail := func(key string, err error) error {
		return cli.Usagef(cli.Hint(err), "--run %q: %s: %s", d.Name, key, err)
	}
	x := &ownContestant{packOf: &packOf{Name: embeddedName}}
	var err error
	if d.Model != "" {
		if x.packOf, err = packAt(ctx, d.Model); err != nil {
			return nil, err
		}
	}
	asked := choice{name: d.Backend, kernel: d.Kernel, zeroCopy: d.ZeroCopy, device: cuda.Any}
	if x.chosen, err = asked.choose(); errors.Is(err, cpu.ErrZeroCopy) {
		return nil, fmt.Errorf("--run %q: %w", d.Name, err)
	} else if err != nil {
		return nil, fail("backend", err)
	}
	if x.options.Activations, err = backend.ParseActivations(orElse(d.Activations, backend.Exact.String())); err != nil {
		return nil, fail("activations", err)
	}
	if x.options.KV, err = backend.ParseKV(orElse(d.KV, backend.KVF16.String())); err != nil {
		return nil, fail("kv", err)
	}
	if x.options.Threads = d.Threads; d.Threads == 0 {
		x.options.Threads = machine.ReadThreads().Use
	}
	if x.model, err = x.Model(); err == nil {
		err = x.runnable()
	}
	if err == nil {
		err = x.openDraft(ctx, d)
	}
	if err != nil {
		_ = x.Close()
		return nil, err
	}
	d.Backend, d.Kernel = x.chosen.name, kernelsOf(x.chosen.backend)
	d.Activations, d.KV, d.Threads = x.options.Activations.String(), x.options.KV.String(), x.options.Threads
	d.Bytes = x.src.Size()
	if d.Format = "native"; x.path != "" {
		if format, err := formats.Detect(x.src.Name()); err == nil {
			d.Format = format.Name
		}
	}
	return x, nil
}

func (x *ownContestant) openDraft(ctx context.Context, d *race.Definition) error {
	if d.Draft == "" {
		if d.DraftLength != "" {
			return cli.Usagef("draft=MODEL or draft=lookup", "--run %q: draft-length without a draft", d.Name)
		}
		return nil
	}
	length, err := parseDraftLength(d.DraftLength)
	if err != nil {
		return fmt.Errorf("--run %q: draft-length %w", d.Name, err)
	}
	if x.draft, err = openDraft(ctx, d.Draft, length, x.packOf); err != nil {
		return fmt.Errorf("--run %q: draft: %w", d.Name, err)
	}
	d.DraftLength = x.draft.lengthName()
	return nil
}

// prompts decides what is asked, and how long answers may be: from the battery
// flags, or from the file of a race that goes on.
func (f *raceField) prompts(c *urfave.Context, r, before *race.Report) error {
	if before != nil && !promptsSet(c) {
		r.Battery, r.Prompts, r.Tokens = before.Battery, before.Prompts, before.Tokens
	} else {
		if len(f.own) == 0 {
			return cli.Usagef("add one that nrun runs", "all contestants are external: nobody knows what the prompts' tokens are")
		}
		q, err := f.own[0].questions(c)
		if err != nil {
			return err
		}
		r.Battery, r.Prompts, r.Tokens = q.name, q.list, q.tokens
	}
	if r.Tokens < 2 {
		return cli.Usagef("", "-n %d: the first token comes with the prompt; a rate takes 2 or more", r.Tokens)
	}
	longest := 0
	for _, p := range r.Prompts {
		longest = max(longest, len(p.IDs))
	}
	for _, x := range f.own {
		x.room = longest + r.Tokens - 1
		if most := engine.ModelContext(&x.model.Config); x.room > most {
			return cli.Usagef("choose others with --class, or a smaller -n", "%q was made for %d tokens; the longest prompt and its answer have %d", x.Name, most, x.room)
		}
		for i, p := range r.Prompts {
			for _, id := range p.IDs {
				if id < 0 || int(id) >= x.model.Vocab {
					return cli.Usagef("do all contestants run the same model?", "prompt %d has the token id %d; the vocabulary of %q has %d", i, id, x.Name, x.model.Vocab)
				}
			}
		}
	}
	return nil
}

// fit decides whether contestants stay in memory between their turns, and says
// why if they do not.
func (f *raceField) fit(c *urfave.Context, r *race.Report) (oneByOne bool, why string, err error) {
	sums := map[string]int64{} // by whose memory it is
	needs := map[string]need{}
	var open []*packOf
	for _, x := range f.own {
		if open = append(open, x.packOf); x.draft != nil {
			open = append(open, x.draft.pack)
		}
	}
	for _, x := range f.own {
		b := x.chosen.backend
		need, err := readNeed(c, b, open...)
		if err != nil {
			return false, "", err
		}
		bytes := engine.NewPlan(b, x.model, x.options, x.room).Total() + x.draft.bytes(b, x.options, x.model.Vocab, x.room)
		if need.most >= 0 && bytes > need.most {
			return false, "", cli.WithHint(fmt.Errorf("%q needs %s of memory; %s: %w", x.Name, cli.Size(bytes), need.room, pack.ErrNoSpace), "nrun plan shows what needs it")
		}
		sums[need.of] += bytes
		needs[need.of] = need
	}
	if c.Bool("one-by-one") {
		return true, "one contestant is in memory at a time, as asked for", nil
	}
	for of, need := range needs {
		if need.most >= 0 && sums[of] > need.most {
			return true, fmt.Sprintf("one contestant is in memory at a time: together they need %s; %s", cli.Size(sums[of]), need.room), nil
		}
	}
	return false, "", nil
}

// token shows an id, with its text if some contestant of ours has a tokenizer.
func (f *raceField) token(id int32) string {
	for _, x := range f.own {
		if tok, err := x.Tokenizer(); err == nil {
			text, _ := tok.Token(id)
			return fmt.Sprintf("%d %s", id, cli.OneLine(strconv.Quote(text)))
		}
	}
	return strconv.Itoa(int(id))
}

// ownRunner is a contestant of ours with its model loaded.
type ownRunner struct {
	inst    backend.Instance
	session *engine.Session
	draft   *draft             // nil: none
	drafter *engine.DraftModel // of draft, nil for lookup
}

// start loads the model.
func (x *ownContestant) start(c *urfave.Context) (race.Runner, error) {
	debug.SetGCPercent(garbagePercent)
	inst, err := x.load(c, x.chosen, x.options)
	if err != nil {
		return nil, err
	}
	o := &ownRunner{inst: inst, draft: x.draft}
	if o.session, err = engine.New(inst, engine.ChunkOf(x.chosen.backend)).NewSession(x.room); err == nil && x.draft != nil {
		if err = x.draft.load(c, x.chosen, x.options); err == nil {
			o.drafter, err = x.draft.attach(o.session, x.room, x.draft.length)
		}
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return race.PerPrompt(o), nil
}

// Answer is [race.Answerer].
func (o *ownRunner) Answer(ctx context.Context, prompt []int32, tokens int) ([]int32, race.Work, error) {
	res, w, err := answerPrompt(ctx, o.session, prompt, tokens)
	if err != nil {
		return nil, w, err
	}
	return res.IDs, w, nil
}

// Judge is [race.Judge].
func (o *ownRunner) Judge(ctx context.Context, prompt, answer []int32) (margin, behind float64, err error) {
	other := answer[len(answer)-1]
	if other < 0 || int(other) >= o.inst.Config().Vocab {
		return 0, 0, race.ErrNoLogits
	}
	text := append(prompt[:len(prompt):len(prompt)], answer[:len(answer)-1]...)
	seq, err := o.inst.NewSequence(len(text))
	if err != nil {
		return 0, 0, err
	}
	defer seq.Close()
	logits := make([]float32, o.inst.Config().Vocab)
	for at := 0; at < len(text); at += engine.DefaultChunk {
		run := backend.Run{Seq: seq, Tokens: text[at:min(at+engine.DefaultChunk, len(text))]}
		if at+len(run.Tokens) == len(text) {
			run.Want, run.Logits = []int{len(run.Tokens) - 1}, logits
		}
		if err := o.inst.Forward(ctx, []backend.Run{run}); err != nil {
			return 0, 0, err
		}
	}
	best, margin := engine.Margin(logits)
	return margin, float64(logits[best]) - float64(logits[other]), nil
}

// Close unloads the model, also one that did not come up whole. What it took is
// there for the next.
func (o *ownRunner) Close() error {
	var err error
	if o.drafter != nil {
		err = o.drafter.Close()
	}
	err = errors.Join(err, o.draft.unload())
	if o.session != nil {
		err = errors.Join(err, o.session.Close())
	}
	err = errors.Join(err, o.inst.Close())
	*o = ownRunner{}
	debug.FreeOSMemory()
	return err
}

// answerPrompt lets s, which begins anew, answer a prompt greedily.
func answerPrompt(ctx context.Context, s *engine.Session, prompt []int32, tokens int) (*engine.Result, race.Work, error) {
	if err := s.Reset(); err != nil { // nothing is read from the cache
		return nil, race.Work{}, err
	}
	res, err := s.Generate(ctx, engine.Request{Prompt: prompt, MaxTokens: tokens})
	if err == nil && res.Finish == engine.FinishCancelled {
		err = context.Canceled
	}
	if err == nil && res.Draft != nil && res.Draft.Err != nil {
		err = fmt.Errorf("draft: %w", res.Draft.Err)
	}
	if err != nil {
		return nil, race.Work{}, err
	}
	w := race.Work{Prompts: 1, PromptTokens: res.Prompt, PrefillSeconds: res.Prefill.Seconds(), Tokens: res.Steps, DecodeSeconds: res.Decode.Seconds()}
	if d := res.Draft; d != nil {
		w.Passes, w.Drafted, w.Kept, w.DraftSeconds = res.Passes, d.Drafted, d.Accepted, d.Time.Seconds()
	}
	return &res, w, nil
}
