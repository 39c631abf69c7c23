package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/internal/tokens"
	"npack/pack"
	"npack/pack/coded"
	"npack/pack/foreign"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/ternary"
)

func importCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "import",
		Usage:     "make a container of another program's ternary model, every weight proven",
		UsageText: "npack import [flags] IN OUT",
		Description: "IN is told by its contents: a directory, index or file of Hugging Face safetensors (BitNet b1.58,\n" +
			"packed or as trained; Llama, Qwen2, Qwen3 and BitNet models whose weights have at most two\n" +
			"magnitudes a row), or a GGUF file with TQ1_0, TQ2_0, I2_S, Q2_0 or plain numbers.\n" +
			"OUT is a directory, which gets the container and the tokenizer's files, or a container (.bin).\n\n" +
			"Nothing is rounded: each row is decoded again and compared with the source bit for bit as it is\n" +
			"written. A row that two magnitudes do not hold is refused with its tensor's name and what it has;\n" +
			"so is an embedding that no int8 row holds, unless --round-embeddings allows it. What the container\n" +
			"does not hold is named in the report. A model that \"npack export hf\" wrote comes back as the very\n" +
			"container; exit status 3 if not.\n\n" +
			"Exit status: 0 done, 3 not the container that was exported, 4 corrupt, 5 incomplete, 6 cannot be\n" +
			"held exactly or not supported, 7 not a model, 8 no space, 130 interrupted.\n\n" +
			cli.Examples("npack import bitnet-b1.58-2B-4T/ bitnet/", "npack import --transport model-TQ2_0.gguf pack/", "npack import hf/ model.bin"),
		Flags: []urfave.Flag{
			&urfave.BoolFlag{Name: "transport", Usage: "make the coded transport (.tv4z) too, and report its size"},
			&urfave.BoolFlag{Name: "round-embeddings", Usage: "take the nearest int8 values where no int8 row holds an embedding, and report the error"},
			threadsFlag(), forceFlag(), jsonFlag(), quietFlag("no progress, no word on success"),
		},
		Action: importAction,
	}
}

// importReport is the object that import --json prints.
type importReport struct {
	File      string            `json:"file"`
	Form      string            `json:"form"`  // of the source, for people
	Bytes     int64             `json:"bytes"` // of its weights' files
	Out       string            `json:"out"`
	Container importedFile      `json:"container"`
	Transport *importedFile     `json:"transport"` // null without --transport
	Config    config            `json:"config"`
	Exact     bool              `json:"exact"`    // every weight is the source's; see Notes for what that means
	Exported  string            `json:"exported"` // "identical" with the container that was exported, or ""
	Occupancy counts            `json:"occupancy"`
	Dropped   []foreign.Dropped `json:"dropped"`
	Notes     []string          `json:"notes"`
	Files     []string          `json:"files"` // beside the container
	Seconds   float64           `json:"seconds"`
}

// importedFile is one that was written.
type importedFile struct {
	File   string  `json:"file"`
	Bytes  int64   `json:"bytes"`
	Ratio  float64 `json:"ratio"` // to the source
	SHA256 string  `json:"sha256"`
}

func importAction(c *urfave.Context) error {
	args, err := cli.Positionals(c, 2, 2)
	if err != nil {
		return err
	}
	n, err := threads(c)
	if err != nil {
		return err
	}
	if args[1] == standard {
		return cli.Usagef("name a file or a directory", "import checks what it has written, so it cannot write to standard output")
	}
	start := time.Now()
	f, err := foreign.Open(args[0], foreign.Options{RoundTables: c.Bool("round-embeddings")})
	if err != nil {
		return err
	}
	defer f.Close()
	x := &importReport{File: f.Name(), Form: f.Form(), Bytes: f.Size(), Out: args[1], Config: newConfig(&f.Model().Config), Files: []string{}}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	if err := x.write(c, f, n, p); err != nil {
		return f.Place(err)
	}
	p.Done()
	x.Dropped, x.Notes, x.Exact = append(append([]foreign.Dropped{}, f.Dropped()...), x.Dropped...), append([]string{}, f.Notes()...), !f.Rounded()
	x.Seconds = time.Since(start).Seconds()
	switch {
	case c.Bool("json"):
		return cli.JSON(c.App.Writer, x)
	case !c.Bool("quiet"):
		x.print(c.App.Writer)
	}
	return nil
}

// sideFiles are the files beside safetensors that are taken over as they are.
var sideFiles = []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"chat_template.jinja", "vocab.json", "merges.txt", "tokenizer.model", "LICENSE"}

// maxImported bounds each of them, in bytes. The tokenizer.json of Qwen3 has 11 MB.
const maxImported = 64 << 20

// write makes the container, in a directory or by itself.
func (x *importReport) write(c *urfave.Context, f *foreign.File, threads int, p *cli.Progress) error {
	if err := x.checkTarget(c, f); err != nil {
		return err
	}
	size := native.ModelSize(f.Model())
	if filepath.Ext(x.Out) == ".bin" {
		for _, name := range f.SideFiles(sideFiles) {
			x.leave(name)
		}
		if f.GGUF() != nil {
			x.leave("tokenizer")
		}
		out, err := outfile.Create(x.Out, size)
		if err != nil {
			return err
		}
		defer out.Abort()
		if err := x.container(c, f, out, p); err != nil {
			return err
		}
		x.Container.File = x.Out
		if !c.Bool("transport") {
			return out.Commit()
		}
		coded, err := outfile.Create(x.transportName(), size/3)
		if err != nil {
			return err
		}
		defer coded.Abort()
		if err := x.transport(c, out.TempName(), coded, threads, p); err != nil {
			return err
		}
		x.Transport.File = x.transportName()
		if err := coded.Commit(); err != nil {
			return err
		}
		return out.Commit()
	}
	return x.writeDir(c, f, size, threads, p)
}

// transportName is the transport's beside a container by itself.
func (x *importReport) transportName() string { return strings.TrimSuffix(x.Out, ".bin") + ".tv4z" }

// writeDir makes a pack directory: the container, its transport if asked for, and
// the files that belong to the tokenizer.
func (x *importReport) writeDir(c *urfave.Context, f *foreign.File, size int64, threads int, p *cli.Progress) error {
	abs, err := filepath.Abs(x.Out)
	if err != nil {
		return err
	}
	name := filepath.Base(abs)
	d, err := outfile.CreateDir(x.Out, size)
	if err != nil {
		return err
	}
	defer d.Abort()
	out, err := d.Create(name + ".bin")
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := x.container(c, f, out, p); err != nil {
		return err
	}
	x.Container.File = filepath.Join(x.Out, name+".bin")
	if c.Bool("transport") {
		coded, err := d.Create(name + ".tv4z")
		if err != nil {
			return err
		}
		defer coded.Abort()
		if err := x.transport(c, out.TempName(), coded, threads, p); err != nil {
			return err
		}
		x.Transport.File = filepath.Join(x.Out, name+".tv4z")
		if err := coded.Commit(); err != nil {
			return err
		}
	}
	if err := out.Commit(); err != nil {
		return err
	}
	if err := x.sideFiles(f, d); err != nil {
		return err
	}
	return d.Commit()
}

// sideFiles takes over the files beside safetensors, or writes the tokenizer that
// a GGUF file holds.
func (x *importReport) sideFiles(f *foreign.File, d *outfile.Dir) error {
	for _, name := range f.SideFiles(sideFiles) {
		b, err := pack.ReadFile(filepath.Join(f.Dir(), name), maxImported)
		if err != nil {
			return err
		}
		if err := d.WriteFile(name, b); err != nil {
			return err
		}
		x.Files = append(x.Files, name)
	}
	g := f.GGUF()
	if g == nil {
		return nil
	}
	files, err := tokens.Files(g, f.Model().Vocab)
	if err != nil { // the weights do not need it
		x.Dropped = append(x.Dropped, foreign.Dropped{Name: "tokenizer", Why: err.Error()})
	}
	for _, file := range files {
		if err := d.WriteFile(file.Name, file.Data); err != nil {
			return err
		}
		x.Files = append(x.Files, file.Name)
	}
	return nil
}

func (x *importReport) leave(name string) {
	x.Dropped = append(x.Dropped, foreign.Dropped{Name: name, Why: "the output is a container alone; name a directory to keep it"})
}

// container writes the container and checks it against the one that the source
// was exported from, if it was.
func (x *importReport) container(c *urfave.Context, f *foreign.File, out io.Writer, p *cli.Progress) error {
	m := f.Model()
	size := native.ModelSize(m)
	var survey ternary.Survey
	read := m.Rows
	next := newReadAhead(m)
	m.Rows = func(part *ternary.Part, t ternary.Tensor, r0, r1 int) error {
		if err := next.rows(part, t, r0, r1); err != nil || t.Ternary == nil {
			return err
		}
		return survey.AddMatrix(t.Name, 0, 0, &part.Ternary)
	}
	o := newAhead(c.Context, out, true, func(n int64) { p.Show("importing", min(n, size), size) })
	err := ternary.Guard(func() error { return native.Write(o, m) })
	if doneErr := o.finish(); err == nil {
		err = doneErr
	}
	next.close()
	m.Rows = read
	if err != nil {
		return err
	}
	x.Container = importedFile{Bytes: o.end, Ratio: float64(o.end) / float64(x.Bytes), SHA256: o.sha256}
	x.Occupancy = newCounts("total", survey.Total)
	sum, n, ok := f.Container()
	switch {
	case !ok:
	case strings.EqualFold(sum, o.sha256) && n == o.end:
		x.Exported = "identical"
	default:
		e := otherContainer(x.File, o.pin(), pack.Pin{Bytes: n, SHA256: sum})
		e.Hint = "the model was changed since it was exported; to import it as it is now remove " + rows.Name
		return e
	}
	return nil
}

// transport codes the container at path.
func (x *importReport) transport(c *urfave.Context, path string, out io.Writer, threads int, p *cli.Progress) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	size := x.Container.Bytes
	var n int64
	h := sha256.New()
	err = coded.Encode(c.Context, in, size, io.MultiWriter(out, h), coded.EncodeOptions{Name: path, Threads: threads, Done: func(d coded.Done) {
		n = d.Mark.Coded
		p.Show("compressing", d.Mark.Source, size)
	}})
	x.Transport = &importedFile{Bytes: n, Ratio: float64(n) / float64(x.Bytes), SHA256: fmt.Sprintf("%x", h.Sum(nil))}
	return err
}

// checkTarget refuses to replace what is there.
func (x *importReport) checkTarget(c *urfave.Context, f *foreign.File) error {
	names := []string{x.Out}
	if filepath.Ext(x.Out) == ".bin" && c.Bool("transport") {
		names = append(names, x.transportName())
	}
	for _, name := range names {
		st, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, in := range []string{x.File, f.Dir()} {
			if in, err := os.Stat(in); err == nil && os.SameFile(st, in) {
				return cli.Usagef("name another output", "%q is both input and output", name)
			}
		}
		e, err := os.ReadDir(name)
		if empty := err == nil && len(e) == 0; !empty && !c.Bool("force") {
			return cli.WithHint(fmt.Errorf("%q is there already", name), "--force replaces it")
		}
	}
	return nil
}

func (x *importReport) print(w io.Writer) {
	fmt.Fprintf(w, "imported %q (%s), %s bytes (%s)\n", x.File, x.Form, cli.Group(x.Bytes), cli.Size(x.Bytes))
	file := func(kind string, f *importedFile) {
		fmt.Fprintf(w, "  %-10s %q: %s bytes (%s), %.1f %% of the source; sha256 %s\n", kind, f.File, cli.Group(f.Bytes), cli.Size(f.Bytes), 100*f.Ratio, f.SHA256)
	}
	file("container", &x.Container)
	if x.Transport != nil {
		file("transport", x.Transport)
	}
	g := &x.Config
	fmt.Fprintf(w, "  model      %s, %d layers, hidden %d, vocabulary %d\n", g.Arch, g.Layers, g.Hidden, g.Vocab)
	o := &x.Occupancy
	fmt.Fprintf(w, "  occupancy  %s ternary weights: %.3f %% zero, %.3f %% of the first and %.3f %% of the second magnitude, %.3f bits of entropy\n",
		cli.Group(o.Weights), o.percent(o.Zeros), o.percent(o.PlusLo+o.MinusLo), o.percent(o.PlusHi+o.MinusHi), o.Entropy)
	if x.Exact {
		fmt.Fprintf(w, "  weights    each is the source's, bit for bit\n")
	} else {
		fmt.Fprintf(w, "  weights    embeddings are rounded; all others are the source's, bit for bit\n")
	}
	if x.Exported != "" {
		fmt.Fprintf(w, "  container  identical with the one that %q was exported from\n", x.File)
	}
	if len(x.Files) > 0 {
		fmt.Fprintf(w, "  files      %s\n", strings.Join(x.Files, ", "))
	}
	if len(x.Dropped) == 0 {
		fmt.Fprintf(w, "  dropped    nothing\n")
	}
	for _, d := range x.Dropped {
		fmt.Fprintf(w, "  dropped    %s: %s\n", cli.OneLine(d.Name), d.Why)
	}
	for _, n := range x.Notes {
		fmt.Fprintf(w, "  note       %s\n", n)
	}
}
