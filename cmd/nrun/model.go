package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
	"npack/pack/coded"
	"npack/pack/formats"
	"npack/pack/native"
	"npack/runtime/chat"
	"npack/runtime/tokenizer"
	"npack/ternary"
	"npack/testdata/story"
)

// embedded is the model that runs when none is named, as a pack directory.
const embeddedName = "story (embedded)"

var embedded = map[string][]byte{
	"story.bin":              story.Container,
	"tokenizer.json":         story.TokenizerJSON,
	"tokenizer_config.json":  story.TokenizerConfigJSON,
	"chat_template.jinja":    story.ChatTemplate,
	"generation_config.json": story.GenerationConfigJSON,
	"trajectories.json":      story.Trajectories,
}

// packOf is a model and what lies beside it. Its parts are read when they are
// asked for, so that "tokenize" opens no weights and "verify --ids" no
// tokenizer.
type packOf struct {
	Name string // for people and for JSON
	path string // of the model file or directory, "" for the embedded model
	dir  string // where the files beside the model are
	ctx  context.Context

	src    formats.Source
	tok    *tokenizer.Tokenizer
	gen    *chat.GenerationConfig
	tmpl   *chat.Template
	errTok error
}

// openPack takes MODEL, the command's only positional argument, or the
// embedded model. It opens nothing but checks that a named path is there.
func openPack(c *urfave.Context) (*packOf, error) {
	args, err := cli.Positionals(c, 0, 1)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return &packOf{Name: embeddedName}, nil
	}
	p, err := packAt(c.Context, args[0])
	if err != nil && slices.ContainsFunc(c.Command.Flags, func(f urfave.Flag) bool { return slices.Contains(f.Names(), "prompt") }) {
		err = cli.WithHint(err, cli.Hint(err)+"; a prompt goes behind -p")
	}
	return p, err
}

// packAt opens nothing but checks that path is there. Opening it ends with ctx.
func packAt(ctx context.Context, path string) (*packOf, error) {
	p := &packOf{Name: path, path: path, dir: path, ctx: ctx}
	st, err := os.Stat(path)
	if err != nil {
		return nil, cli.WithHint(err, "MODEL is a file or a pack directory; leave it out to run the embedded story model")
	}
	if !st.IsDir() {
		p.dir = filepath.Dir(p.path)
	}
	return p, nil
}

// Close closes the container; the model must not be used afterwards.
func (p *packOf) Close() error {
	if p.src == nil {
		return nil
	}
	return p.src.Close()
}

// decoded is how many bytes of an open model are a copy in memory, which a coded
// transport is decoded into.
func (p *packOf) decoded() int64 {
	if p == nil {
		return 0
	}
	if f, ok := p.src.(*coded.File); ok {
		return f.Size()
	}
	return 0
}

// file returns a file beside the model. If there is none, the error wraps
// [fs.ErrNotExist].
func (p *packOf) file(name string) ([]byte, error) {
	if p.path == "" {
		if b, ok := embedded[name]; ok {
			return b, nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return pack.ReadFile(filepath.Join(p.dir, name), pack.MaxSide)
}

// optional is file, with nil for one that is not there.
func (p *packOf) optional(name string) ([]byte, error) {
	b, err := p.file(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// sidePath names a file beside the model in messages.
func (p *packOf) sidePath(name string) string {
	if p.path == "" {
		return name + " of the embedded model"
	}
	return filepath.Join(p.dir, name)
}

// Model opens the container. Its structure is checked, its values are not; see
// [packOf.Validate].
func (p *packOf) Model() (*ternary.Model, error) {
	if p.src == nil {
		var err error
		if p.path == "" {
			p.src, err = native.OpenBytes("story.bin", embedded["story.bin"])
		} else {
			p.src, err = formats.Open(p.ctx, p.path)
		}
		if err != nil {
			p.src = nil
			return nil, err
		}
	}
	return p.src.Model(), nil
}

// runnable opens the model and checks that a forward pass is defined for it: a
// file may hold others.
func (p *packOf) runnable() error {
	m, err := p.Model()
	if err != nil {
		return err
	}
	err = m.Config.Validate()
	if err == nil {
		return nil
	}
	var e *pack.Error
	if err = p.src.Place(err); errors.As(err, &e) {
		e.Kind = pack.ErrUnsupported
	}
	return err
}

// Validate walks over all weights of a runnable model, so that no kernel can
// meet a plane that breaks a rule. It also brings a mapped file into memory.
func (p *packOf) Validate(c *urfave.Context, threads int) error {
	m := p.src.Model()
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer bar.Done()
	// The weights are wanted in memory from now on: GGUF gathers them there.
	m.Release = nil
	if err := m.Load(c.Context, ternary.WalkOptions{Threads: threads, Progress: func(done, total int64) {
		bar.Show("reading weights", done, total)
	}}); err != nil {
		return p.src.Place(err)
	}
	_, err := m.Survey(c.Context, ternary.WalkOptions{Threads: threads, Progress: func(done, total int64) {
		bar.Show("checking weights", done, total)
	}})
	return p.src.Place(err)
}

// Tokenizer reads the tokenizer that a GGUF file holds, or tokenizer.json. Every
// id that it makes is in the model's vocabulary if the model is open already.
func (p *packOf) Tokenizer() (*tokenizer.Tokenizer, error) {
	if p.tok == nil && p.errTok == nil {
		p.tok, p.errTok = p.readTokenizer()
	}
	return p.tok, p.errTok
}

func (p *packOf) readTokenizer() (*tokenizer.Tokenizer, error) {
	const name = "tokenizer.json"
	if t, err := p.ggufTokenizer(); t != nil || err != nil {
		return t, err
	}
	data, err := p.file(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &pack.Error{Kind: pack.ErrTruncated, File: p.sidePath(name), Offset: -1, Found: "the tokenizer is not there", Expected: "the pack's " + name + " beside the model",
			Hint: "fetch it; token ids work without a tokenizer: nrun generate --ids 1,2,3"}
	}
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.Load(data, tokenizer.CacheDir())
	if err != nil {
		kind := pack.ErrCorrupt
		switch {
		case errors.Is(err, tokenizer.ErrUnsupported):
			kind = pack.ErrUnsupported
		case errors.Is(err, tokenizer.ErrTruncated):
			kind = pack.ErrTruncated
		}
		return nil, &pack.Error{Kind: kind, File: p.sidePath(name), Offset: -1, Found: err.Error(), Hint: "fetch the pack's " + name + " again"}
	}
	if p.src != nil {
		if v := p.src.Model().Vocab; t.Len() > v {
			return nil, &pack.Error{Kind: pack.ErrCorrupt, File: p.sidePath(name), Offset: -1, Found: fmt.Sprintf("%d token ids", t.Len()),
				Expected: fmt.Sprintf("at most %d, the vocabulary of the model", v), Hint: "this tokenizer belongs to another model"}
		}
	}
	return t, nil
}

// Template reads the chat template.
func (p *packOf) Template() (*chat.Template, error) {
	if p.tmpl != nil {
		return p.tmpl, nil
	}
	var files chat.Pack
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{"chat_template.jinja", &files.ChatTemplate}, {"tokenizer_config.json", &files.TokenizerConfig}, {"SYSTEM_PROMPT.txt", &files.SystemPrompt}} {
		var err error
		if *f.to, err = p.optional(f.name); err != nil {
			return nil, err
		}
	}
	if err := p.ggufTemplate(&files); err != nil {
		return nil, err
	}
	t, err := chat.Load(files)
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("%q: %w", p.Name, err), "raw text works without a template: nrun generate -p TEXT")
	}
	p.tmpl = t
	return t, nil
}

// Generation reads what the pack recommends for sampling.
func (p *packOf) Generation() (chat.GenerationConfig, error) {
	if p.gen == nil {
		const name = "generation_config.json"
		data, err := p.optional(name)
		if err != nil {
			return chat.GenerationConfig{}, err
		}
		g, err := chat.ParseGenerationConfig(data)
		if err != nil {
			return g, &pack.Error{Kind: pack.ErrCorrupt, File: p.sidePath(name), Offset: -1, Found: err.Error(), Hint: "fetch it again, or remove it to go without"}
		}
		p.gen = &g
	}
	return *p.gen, nil
}

// StopIDs are the ids that end a text: those that generation_config.json
// names, and the tokens that the template or, failing both, the family ends a
// turn with.
func (p *packOf) StopIDs() ([]int32, error) {
	g, err := p.Generation()
	if err != nil {
		return nil, err
	}
	ids := slices.Clone(g.EOS)
	tok, err := p.Tokenizer()
	if err != nil {
		return ids, nil // without a tokenizer there is only what the file says
	}
	var names []string
	if t, err := p.Template(); err == nil {
		names = t.Stops()
	}
	if len(ids) == 0 && len(names) == 0 {
		names = []string{"<|im_end|>", "<|endoftext|>"}
	}
	for _, n := range names {
		if id, ok := tok.ID(n); ok && !slices.Contains(ids, id) {
			if _, control := tok.Token(id); control {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// Prompt renders messages with the pack's template and turns them into ids.
// Contents never become control tokens.
func (p *packOf) Prompt(ctx context.Context, msgs []chat.Message, o chat.Options) ([]int32, []tokenizer.Piece, error) {
	tok, err := p.Tokenizer()
	if err != nil {
		return nil, nil, err
	}
	t, err := p.Template()
	if err != nil {
		return nil, nil, err
	}
	pieces, err := t.Render(ctx, msgs, o)
	if err != nil {
		return nil, nil, err
	}
	return tok.EncodePieces(nil, pieces), pieces, nil
}
