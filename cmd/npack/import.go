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
	"npack/pack/hf"
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

	c       *urfave.Context
	f       *foreign.File
	threads int
	bar     *cli.Progress
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
	x := &importReport{File: f.Name(), Form: f.Form(), Bytes: f.Size(), Out: args[1], Config: newConfig(&f.Model().Config), Files: []string{},
		c: c, f: f, threads: n, bar: cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))}
	defer x.bar.Done()
	if err := x.write(); err != nil {
		return f.Place(err)
	}
	x.bar.Done()
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
var sideFiles = append([]string{"config.json", "tokenizer.model", "LICENSE"}, hf.SideFiles...)

// write makes the container, in a directory with what lies beside the source or
// by itself.
func (x *importReport) write() error {
	if err := x.checkTarget(x.Out); err != nil {
		return err
	}
	if base, ok := strings.CutSuffix(x.Out, ".bin"); ok {
		if x.c.Bool("transport") {
			if err := x.checkTarget(base + transportExtension); err != nil {
				return err
			}
		}
		x.leaveSideFiles()
		return x.models(base, outfile.Create)
	}
	abs, err := filepath.Abs(x.Out)
	if err != nil {
		return err
	}
	d, err := outfile.CreateDir(x.Out, native.ModelSize(x.f.Model()))
	if err != nil {
		return err
	}
	defer d.Abort()
	err = x.models(filepath.Join(x.Out, filepath.Base(abs)), func(path string, _ int64) (*outfile.File, error) { return d.Create(filepath.Base(path)) })
	if err != nil {
		return err
	}
	if err := x.sideFiles(d); err != nil {
		return err
	}
	return d.Commit()
}

// models makes the container and, if asked for, its transport, whose paths but
// for the extension are base. create makes a file for so many bytes.
func (x *importReport) models(base string, create func(path string, size int64) (*outfile.File, error)) error {
	size := native.ModelSize(x.f.Model())
	out, err := create(base+".bin", size)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := x.container(out); err != nil {
		return err
	}
	x.Container.File = base + ".bin"
	if x.c.Bool("transport") {
		coded, err := create(base+transportExtension, size/3)
		if err != nil {
			return err
		}
		defer coded.Abort()
		if err := x.transport(out.TempName(), coded); err != nil {
			return err
		}
		x.Transport.File = base + transportExtension
		if err := coded.Commit(); err != nil {
			return err
		}
	}
	return out.Commit()
}

const transportExtension = ".tv4z"

// sideFiles takes over the files beside safetensors, or writes the tokenizer that
// a GGUF file holds.
func (x *importReport) sideFiles(d *outfile.Dir) error {
	for _, name := range x.f.SideFiles(sideFiles) {
		b, err := pack.ReadFile(filepath.Join(x.f.Dir(), name), pack.MaxSide)
		if err != nil {
			return err
		}
		if err := d.WriteFile(name, b); err != nil {
			return err
		}
		x.Files = append(x.Files, name)
	}
	g := x.f.GGUF()
	if g == nil {
		return nil
	}
	files, err := tokens.Files(g, x.f.Model().Vocab)
	if err != nil { // the weights do not need it
		x.drop("tokenizer", err.Error())
	}
	for _, file := range files {
		if err := d.WriteFile(file.Name, file.Data); err != nil {
			return err
		}
		x.Files = append(x.Files, file.Name)
	}
	return nil
}

// leaveSideFiles reports what a container by itself is without.
func (x *importReport) leaveSideFiles() {
	names := x.f.SideFiles(sideFiles)
	if x.f.GGUF() != nil {
		names = append(names, "tokenizer")
	}
	for _, name := range names {
		x.drop(name, "the output is a container alone; name a directory to keep it")
	}
}

func (x *importReport) drop(name, why string) {
	x.Dropped = append(x.Dropped, foreign.Dropped{Name: name, Why: why})
}

// container writes the container and checks it against the one that the source
// was exported from, if it was.
func (x *importReport) container(out io.Writer) error {
	m := x.f.Model()
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
	o := newAhead(x.c.Context, out, true, func(n int64) { x.bar.Show("importing", min(n, size), size) })
	err := ternary.Guard(func() error { return native.Write(o, m) })
	if doneErr := o.finish(); err == nil {
		err = doneErr
	}
	next.close()
	m.Rows = read
	if err != nil {
		return err
	}
	got := o.pin()
	x.Container = importedFile{Bytes: got.Bytes, Ratio: float64(got.Bytes) / float64(x.Bytes), SHA256: got.SHA256}
	x.Occupancy = newCounts("total", survey.Total)
	sum, n, ok := x.f.Container()
	switch {
	case !ok:
	case strings.EqualFold(sum, got.SHA256) && n == got.Bytes:
		x.Exported = "identical"
	default:
		e := otherContainer(x.File, got, pack.Pin{Bytes: n, SHA256: sum})
		e.Hint = "the model was changed since it was exported; to import it as it is now remove " + rows.Name
		return e
	}
	return nil
}

// transport codes the container at path.
func (x *importReport) transport(path string, out io.Writer) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	size := x.Container.Bytes
	var n int64
	h := sha256.New()
	err = coded.Encode(x.c.Context, in, size, io.MultiWriter(out, h), coded.EncodeOptions{Name: path, Threads: x.threads, Done: func(d coded.Done) {
		n = d.Mark.Coded
		x.bar.Show("compressing", d.Mark.Source, size)
	}})
	x.Transport = &importedFile{Bytes: n, Ratio: float64(n) / float64(x.Bytes), SHA256: fmt.Sprintf("%x", h.Sum(nil))}
	return err
}

// checkTarget refuses to replace what is there.
func (x *importReport) checkTarget(name string) error {
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, in := range []string{x.File, x.f.Dir()} {
		if in, err := os.Stat(in); err == nil && os.SameFile(st, in) {
			return cli.Usagef("name another output", "%q is both input and output", name)
		}
	}
	if below(x.File, st) {
		return cli.Usagef("name another output", "%q holds the input", name)
	}
	e, err := os.ReadDir(name)
	switch {
	case err == nil && len(e) == 0:
		return nil
	case !x.c.Bool("force") && st.IsDir():
		return cli.WithHint(fmt.Errorf("%q is there already", name), "--force replaces it, with all that is in it")
	case !x.c.Bool("force"):
		return cli.WithHint(fmt.Errorf("%q is there already", name), "--force replaces it")
	case st.IsDir():
		abs, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		return checkOwn(name, filepath.Base(abs)+".bin")
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
