package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"npack/internal/certificate"
	"npack/internal/cli"
	"npack/internal/tokens"
	"npack/pack"
	"npack/pack/formats"
	"npack/pack/fv5"
	"npack/runtime/engine"
	"npack/runtime/identity"
)

// checkTokenizers compares what the files in the directory say about text with
// tokenizer.json.
func (g *gate) checkTokenizers() error {
	if len(g.forms) == 0 {
		return nil
	}
	src, err := formats.Open(g.Context.Context, g.path(g.forms[0].name))
	if err != nil {
		return g.orFail(err)
	}
	vocab := src.Model().Vocab
	src.Close()
	const name = "tokenizer.json"
	want, err := tokens.FromPack(g.dir, vocab)
	if err != nil {
		return g.orFail(err)
	}
	if want == nil {
		g.omit(name, "the directory has none: the forms' tokenizers are not compared")
		return nil
	}
	if err := g.checkVocabFiles(want); err != nil {
		return err
	}
	for _, f := range g.forms {
		got, own, err := g.ownTokenizer(f, vocab)
		if !own {
			continue
		}
		switch {
		case err != nil:
			if err := g.orFail(err); err != nil {
				return err
			}
		case got == nil:
			g.fail(otherTokenizer(g.path(f.name), "the file has no tokenizer", "that of "+name))
		default:
			if place, a, b := tokenizerDifference(got, want); place != "" {
				g.fail(otherTokenizer(g.path(f.name), place+" is "+a, b+", as in "+name))
			}
		}
	}
	return nil
}

// ownTokenizer returns the tokenizer that a form brings along; own is false for
// one that lies in the directory and has none of its own.
func (g *gate) ownTokenizer(f form, vocab int) (t *fv5.Tokenizer, own bool, err error) {
	path := g.path(f.name)
	switch {
	case f.format == "gguf":
		file, err := fv5.Open(path)
		if err != nil {
			return nil, true, err
		}
		defer file.Close()
		t, err = file.Tokenizer()
		return t, true, err
	case f.format == "mlx" && strings.Contains(f.name, "/"):
		t, err = tokens.FromPack(filepath.Dir(path), vocab)
		return t, true, err
	}
	return nil, false, nil
}

func otherTokenizer(file, found, expected string) error {
	return &pack.Error{Kind: pack.ErrNotEqual, File: file, Place: "tokenizer", Offset: -1, Found: found, Expected: expected,
		Hint: "one of the two is not the model's: make the file again, or fetch the tokenizer again"}
}

// tokenizerDifference names the first place where two tokenizers differ.
func tokenizerDifference(a, b *fv5.Tokenizer) (place, inA, inB string) {
	for _, l := range []struct {
		name string
		a, b []string
	}{{"token", a.Tokens, b.Tokens}, {"merge", a.Merges, b.Merges}} {
		if i := firstOther(l.a, l.b); i >= 0 {
			return fmt.Sprintf("%s %d", l.name, i), textAt(l.a, i), textAt(l.b, i)
		}
	}
	if i := firstOther(a.Types, b.Types); i >= 0 {
		return fmt.Sprintf("the type of token %d", i), fmt.Sprint(a.Types[i]), fmt.Sprint(b.Types[i])
	}
	for _, v := range []struct {
		name string
		a, b any
	}{{"the pre-tokenizer", a.Pre, b.Pre}, {"NFC", a.NFC, b.NFC}, {"bos_token_id", a.BOS, b.BOS}, {"eos_token_id", a.EOS, b.EOS}, {"padding_token_id", a.Pad, b.Pad}} {
		if v.a != v.b {
			return v.name, fmt.Sprint(v.a), fmt.Sprint(v.b)
		}
	}
	if a.Template != b.Template {
		return "the chat template", fmt.Sprintf("%.60q", a.Template), fmt.Sprintf("%.60q", b.Template)
	}
	return "", "", ""
}

// firstOther is the first index at which two lists differ, -1 if none.
func firstOther[T comparable](a, b []T) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func textAt(list []string, i int) string {
	if i >= len(list) {
		return "not there"
	}
	return fmt.Sprintf("%.80q", list[i])
}

// checkVocabFiles compares the older form of a tokenizer, vocab.json and
// merges.txt, with tokenizer.json.
func (g *gate) checkVocabFiles(want *fv5.Tokenizer) error {
	data, err := pack.ReadOptional(g.path("merges.txt"), pack.MaxSide)
	if err != nil {
		return err
	}
	if data != nil {
		var merges []string
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\r\n")
			if line != "" && !(len(merges) == 0 && strings.HasPrefix(line, "#version")) {
				merges = append(merges, line)
			}
		}
		if i := firstOther(merges, want.Merges); i >= 0 {
			g.fail(otherTokenizer(g.path("merges.txt"), fmt.Sprintf("merge %d is %s", i, textAt(merges, i)), textAt(want.Merges, i)+", as in tokenizer.json"))
		}
	}
	if data, err = pack.ReadOptional(g.path("vocab.json"), pack.MaxSide); err != nil || data == nil {
		return err
	}
	var vocab map[string]int32
	if err := json.Unmarshal(data, &vocab); err != nil {
		g.fail(&pack.Error{Kind: pack.ErrCorrupt, File: g.path("vocab.json"), Offset: -1, Found: "not an object of tokens and ids: " + err.Error()})
		return nil
	}
	for id, text := range want.Tokens {
		if want.Types[id] == fv5.TokenNormal && !isID(vocab, text, int32(id)) {
			g.fail(otherTokenizer(g.path("vocab.json"), fmt.Sprintf("token %.80q is not %d", text, id), "the id, as in tokenizer.json"))
			return nil
		}
	}
	return nil
}

func isID(vocab map[string]int32, text string, id int32) bool {
	got, ok := vocab[text]
	return ok && got == id
}

// checkTokens runs the battery in every form on every backend. The first run
// records; the others must make the same tokens with the same bits.
func (g *gate) checkTokens() error {
	var base []identity.Trajectory
	for i, f := range g.forms {
		p, err := packAt(g.Context.Context, g.path(f.name))
		if err != nil {
			return err
		}
		p.dir = g.dir // the container may be in a directory below
		err = g.runForm(p, f, i == 0, &base)
		if closeErr := p.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return g.orFail(err)
		}
	}
	return nil
}

func (g *gate) runForm(p *packOf, f form, first bool, base *[]identity.Trajectory) error {
	if _, err := p.Model(); err != nil {
		return err
	}
	prompts, err := g.prompts(p)
	if err != nil {
		return err
	}
	if !first {
		for i := range prompts {
			if k := firstOther(prompts[i].Prompt, (*base)[i].Prompt); k >= 0 {
				g.fail(otherTokenizer(p.Name, fmt.Sprintf("prompt %q differs at token %d", short(prompts[i].PromptText), k), "the ids of "+g.forms[0].name))
				return nil
			}
		}
	}
	for k, s := range g.specs {
		r, err := p.openOn(g.Context, s)
		if err != nil {
			return err
		}
		if first && k == 0 {
			err = g.record(r, f, prompts, base)
		} else {
			err = g.compare(r, f, *base)
		}
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// prompts are those of the shard, as this form's tokenizer reads them.
func (g *gate) prompts(p *packOf) ([]identity.Trajectory, error) {
	b, name, err := p.battery(g.Context)
	if err != nil {
		return nil, err
	}
	steps, err := batterySteps(g.Context, b)
	if err != nil {
		return nil, err
	}
	g.cert.Battery = certificate.Battery{Name: b.Name, SHA256: b.SHA256, Prompts: len(b.Prompts), Steps: steps}
	return p.encodeBattery(b, name, g.indices(b), steps)
}

func (g *gate) indices(b *identity.Battery) []int {
	if g.shard == nil {
		return b.Shard(0, 1)
	}
	return b.Shard(g.shard.Index, g.shard.Count)
}

func (g *gate) newRun(r *runner, f form) certificate.Run {
	run := certificate.Run{File: f.name, Backend: r.Backend, Kernels: r.Kernels, Device: r.Device,
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Threads: r.Options().Threads}
	if g.shard != nil {
		run.Shard = g.shard.Index
	}
	return run
}

// record makes what the other runs are compared with, and compares it with the
// trajectories that the pack came with.
func (g *gate) record(r *runner, f form, prompts []identity.Trajectory, base *[]identity.Trajectory) error {
	steps := g.cert.Battery.Steps
	bar := cli.NewProgress(g.App.ErrWriter, g.Bool("quiet")).Count("tokens")
	list, err := identity.Record(g.Context.Context, r.Instance, prompts, steps, true, func(done int) { bar.Show("recording", int64(done), int64(len(prompts)*steps)) })
	bar.Done()
	if err != nil {
		return err
	}
	*base = list
	g.cert.Runs = append(g.cert.Runs, g.newRun(r, f))
	start, count := 0, 1
	if g.shard != nil {
		start, count = g.shard.Index, g.shard.Count
	}
	for i := range list {
		at := slices.Index(list[i].Margins, slices.Min(list[i].Margins))
		g.cert.Prompts = append(g.cert.Prompts, certificate.Prompt{Index: start + i*count, Class: list[i].Class, Steps: steps,
			MinMargin: list[i].Margins[at], At: at, SHA256: promptSum(&list[i])})
	}
	return g.checkStored(r, f)
}

// promptSum is the sha256 over a prompt's ids, the tokens made and the sums of
// their logits, numbers as little-endian 32-bit words.
func promptSum(t *identity.Trajectory) string {
	h := sha256.New()
	for _, ids := range [][]int32{{int32(len(t.Prompt))}, t.Prompt, t.IDs} {
		if err := binary.Write(h, binary.LittleEndian, ids); err != nil {
			panic(err) // a hash takes all
		}
	}
	for _, s := range t.Bits {
		h.Write(s[:])
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// checkStored compares with the trajectories that lie beside the model.
func (g *gate) checkStored(r *runner, f form) error {
	const own = "trajectories.json"
	m := r.Config()
	data, err := r.file(own)
	if errors.Is(err, fs.ErrNotExist) {
		g.omit(own, "the directory has none")
		return nil
	}
	if err != nil {
		return err
	}
	file, err := identity.ParseFile(data, m.Vocab, engine.ModelContext(m))
	if err != nil {
		return fileError(r.sidePath(own), err, hintTrajectories)
	}
	s := set{own, file}
	if g.shard != nil {
		var part []identity.Trajectory
		for i := g.shard.Index; i < len(s.Trajectories); i += g.shard.Count {
			part = append(part, s.Trajectories[i])
		}
		s.Trajectories = part
	}
	report, err := g.report(r, f, s.Trajectories, false)
	if err != nil {
		return err
	}
	g.failDivergences(r, f, s, report)
	st := &certificate.Stored{File: own, Positions: report.Tokens, Divergences: report.Differ, MinMargin: finite(1e308)}
	for _, q := range report.Prompts {
		st.MinMargin = min(st.MinMargin, q.MinMargin)
	}
	g.cert.Stored = st
	return nil
}

func (g *gate) report(r *runner, f form, list []identity.Trajectory, bits bool) (*identity.Report, error) {
	total := 0
	for _, t := range list {
		total += len(t.IDs)
	}
	bar := cli.NewProgress(g.App.ErrWriter, g.Bool("quiet")).Count("tokens")
	defer bar.Done()
	return identity.Compare(g.Context.Context, r.Instance, list, bits, func(done int) { bar.Show(f.name+" on "+r.Backend, int64(done), int64(total)) })
}

// compare runs a form on a backend over what the first run made.
func (g *gate) compare(r *runner, f form, base []identity.Trajectory) error {
	report, err := g.report(r, f, base, true)
	if err != nil {
		return err
	}
	run := g.newRun(r, f)
	run.Positions, run.Differ, run.BitsDiffer = report.Tokens, report.Differ, report.BitsDiffer
	g.cert.Runs = append(g.cert.Runs, run)
	h := identity.Header{Numerics: g.cert.Numerics, Activations: g.cert.Activations, KV: g.cert.KV}
	g.failDivergences(r, f, set{g.forms[0].name, &identity.File{Header: h, Trajectories: base}}, report)
	return nil
}

// failDivergences names, for each prompt, the first token or bit that differs.
func (g *gate) failDivergences(r *runner, f form, s set, report *identity.Report) {
	for i, q := range report.Prompts {
		t := &s.Trajectories[i]
		place := fmt.Sprintf("prompt %d %s", i, short(t.PromptText))
		switch {
		case len(q.Differences) > 0:
			d := &q.Differences[0]
			g.fail(&pack.Error{Kind: pack.ErrNotEqual, File: g.path(f.name), Place: fmt.Sprintf("%s: token %d", place, d.Step), Offset: -1,
				Found:    fmt.Sprintf("%s by %s, margin %.3g", r.tokenText(d.Got), onBackend(r.Backend, r.Kernels), d.Margin),
				Expected: fmt.Sprintf("%s, margin %.3g, as in %s: %s", r.tokenText(d.Want), d.Stored, s.name, s.Judge(d, r.Options()))})
		case q.BitsDiffer > 0:
			g.fail(&pack.Error{Kind: pack.ErrNotEqual, File: g.path(f.name), Place: fmt.Sprintf("%s: step %d", place, q.FirstBits), Offset: -1,
				Found: "other bits of the logits by " + onBackend(r.Backend, r.Kernels), Expected: "those of " + s.name})
		}
	}
}

// printCertificate prints what was proven, a line each.
func printCertificate(w io.Writer, c *certificate.Certificate) {
	line := func(word, format string, args ...any) {
		fmt.Fprintf(w, "%-9s %s\n", word, cli.OneLine(fmt.Sprintf(format, args...)))
	}
	line("manifest", "%d files are as pinned", len(c.Files))
	for _, f := range c.Formats {
		note := ""
		if f.Container != "" {
			note = "; gives the container back"
		}
		line("format", "%-6s %s, %s bytes: model %.16s…%s", f.Format, f.File, cli.Group(f.Bytes), c.Model.SHA256, note)
	}
	for _, o := range c.NotCompared {
		line("absent", "%s: %s", o.What, o.Why)
	}
	var b bytes.Buffer
	for _, k := range c.Classes {
		fmt.Fprintf(&b, ", %s %d", k.Class, k.Prompts)
	}
	line("battery", "%s: %d prompts of %d tokens%s", c.Battery.Name, len(c.Prompts), c.Battery.Steps, b.String())
	for i, r := range c.Runs {
		if i == 0 || r.Shard != c.Runs[i-1].Shard {
			line("recorded", "%s by %s on %s", r.File, onBackend(r.Backend, r.Kernels), orUnknown(r.Device))
		} else {
			line("equal", "%s by %s on %s: %s tokens and the bits of their logits", r.File, onBackend(r.Backend, r.Kernels), orUnknown(r.Device), cli.Group(int64(r.Positions)))
		}
	}
	if c.Stored != nil {
		line("equal", "%s: %s tokens", c.Stored.File, cli.Group(int64(c.Stored.Positions)))
	}
	least := "none"
	if c.MinMargin != nil {
		least = fmt.Sprintf("%.3g", *c.MinMargin)
	}
	what := "certified"
	if c.Shard != nil {
		what = fmt.Sprintf("shard %d of %d", c.Shard.Index, c.Shard.Count)
	}
	fmt.Fprintf(w, "%s: %s positions compared, %d divergences, smallest margin %s\n", what, cli.Group(int64(c.Positions)), c.Divergences, least)
}
