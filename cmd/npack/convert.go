package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/tokens"
	"npack/pack"
	"npack/pack/formats"
	"npack/pack/fv5"
	"npack/ternary"
)

func convertCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "convert",
		Usage:     "make a model file of another format",
		UsageText: "npack convert [flags] IN OUT",
		Description: "IN is a model of any format that this program reads, told by its contents, or a pack directory.\n" +
			"OUT gets the format of its extension, or the one that --to names; \"-\" is standard output.\n" +
			"\"npack formats\" lists them. All formats hold the same weights: \"npack diff\" compares.\n\n" +
			"What is written to a GGUF file besides weights, and what comes back, \"npack to-gguf --help\" and\n" +
			"\"npack from-gguf --help\" say.\n\n" +
			"Exit status: 0 done, 3 other bytes than the input says, 4 corrupt, 5 incomplete, 6 unsupported,\n" +
			"7 not a model, 8 no space, 130 interrupted.\n\n" +
			cli.Examples("npack convert pack/ model.gguf", "npack convert model.gguf model.tv4z", "npack convert --to native model.gguf - | sha256sum"),
		Flags: append([]urfave.Flag{
			&urfave.StringFlag{Name: "to", Usage: "write this `FORMAT`", DefaultText: "by OUT's extension"},
		}, conversionFlags()...),
		Action: func(c *urfave.Context) error {
			args, err := cli.Positionals(c, 2, 2)
			if err != nil {
				return err
			}
			return convert(c, args[0], args[1], c.String("to"))
		},
	}
}

func toGGUFCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "to-gguf",
		Usage:     "make a GGUF file for llama.cpp with the types FV5 and FV5B",
		UsageText: "npack to-gguf [flags] IN [OUT]",
		Description: "IN is a model of any format or a pack directory, OUT the GGUF file; without it IN's name with\n" +
			".gguf. The tokenizer and the chat template come from the files beside IN: tokenizer.json,\n" +
			"tokenizer_config.json, chat_template.jinja, config.json; those of a GGUF file that has them from itself.\n\n" +
			"The file runs with nrun and with a llama.cpp that has the two types. It holds all of the\n" +
			"container: \"npack from-gguf\" gives the very bytes back.\n\n" + stockDescription +
			cli.Examples("npack to-gguf pack/", "npack to-gguf model.bin /models/model.gguf", "npack to-gguf --stock q8_0 pack/ model.gguf", "npack to-gguf --ollama pack/ model.gguf"),
		Flags: append(conversionFlags(), stockFlags()...),
		Action: func(c *urfave.Context) error {
			switch {
			case c.IsSet("stock"):
				return exportStock(c, c.String("stock"))
			case c.Bool("ollama"): // which has neither type
				return exportStock(c, stockAuto)
			case c.Bool("quick"):
				return cli.Usagef("an FV5 file is exact: there is nothing to judge", "--quick goes with --stock TYPE")
			}
			return convertNamed(c, "gguf")
		},
	}
}

func fromGGUFCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "from-gguf",
		Usage:     "make the native container of a GGUF file with the types FV5 and FV5B",
		UsageText: "npack from-gguf [flags] IN [OUT]",
		Description: "IN is the GGUF file, or any file of its set of shards; OUT the container, without it IN's name\n" +
			"with .bin. If IN says which container it was made of, OUT gets its name only when its sha256 is\n" +
			"that one; exit status 3 if not. A file of another program says nothing: its row sums are\n" +
			"computed and the container is valid, but which one it was made of is not known.\n\n" +
			cli.Examples("npack from-gguf model.gguf", "npack from-gguf model-00001-of-00003.gguf model.bin"),
		Flags:  conversionFlags(),
		Action: func(c *urfave.Context) error { return convertNamed(c, "native") },
	}
}

func conversionFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "name", Usage: "the model's `NAME` in a GGUF file", DefaultText: "that of IN"},
		forceFlag(), jsonFlag(), quietFlag("no progress, no word on success"),
	}
}

// convertNamed converts the first argument into the format, under the second
// or a name made of the first.
func convertNamed(c *urfave.Context, to string) error {
	args, err := cli.Positionals(c, 1, 2)
	if err != nil {
		return err
	}
	if len(args) == 2 {
		return convert(c, args[0], args[1], to)
	}
	in, err := formats.Container(args[0])
	if err != nil {
		return err
	}
	f, err := formats.ByName(to)
	if err != nil {
		return err
	}
	return convert(c, args[0], strings.TrimSuffix(in, filepath.Ext(in))+f.Extensions[0], to)
}

// conversion is the object that convert --json prints.
type conversion struct {
	File      string `json:"file"`
	Format    string `json:"format"`
	Bytes     int64  `json:"bytes"` // of the input
	Out       string `json:"out"`
	OutFormat string `json:"out_format"`
	OutBytes  int64  `json:"out_bytes"`
	SHA256    string `json:"sha256,omitempty"` // of a container that was written
	// Container says how a container that comes out of a file of another format
	// relates to the one that went in: "identical", or "not known" for files of
	// other programs.
	Container string  `json:"container,omitempty"`
	Tokenizer bool    `json:"tokenizer"` // a GGUF file got one
	Seconds   float64 `json:"seconds"`
}

func convert(c *urfave.Context, in, out, to string) error {
	if to == "mlx" {
		return writeMLX(c, in, out)
	}
	format, err := outputFormat(out, to)
	if err != nil {
		return err
	}
	src, err := formats.Open(c.Context, in)
	if err != nil {
		return err
	}
	defer src.Close()
	x := &conversion{File: src.Name(), Format: formatOf(src), Out: out, OutFormat: format.Name}
	fd, err := os.Open(x.File)
	if err != nil {
		return err
	}
	defer fd.Close()
	if err := checkTarget(c, &input{name: x.File, file: fd}, out); err != nil {
		return err
	}
	write, size, err := x.writer(c, src, format, in)
	if err != nil {
		return placed(src, err)
	}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	start := time.Now()
	x.Bytes = src.Size()
	if d, ok := src.(formats.Derived); ok {
		x.Bytes = d.Length()
	}
	err = writeOutput(c, out, size, func(w io.Writer) error {
		o := newAhead(c.Context, w, format.Name == "native", func(n int64) { p.Show("converting", min(n, size), size) })
		err := ternary.Guard(func() error { return write(o) })
		if doneErr := o.finish(); err == nil {
			err = doneErr
		}
		if err != nil {
			return placed(src, err)
		}
		x.OutBytes, x.SHA256 = o.end, o.sha256
		return x.compare(c, src)
	})
	if err != nil {
		return err
	}
	p.Done()
	x.Seconds = time.Since(start).Seconds()
	switch {
	case c.Bool("json"):
		return cli.JSON(c.App.Writer, x)
	case out != standard && !c.Bool("quiet"):
		x.print(c.App.Writer)
	}
	return nil
}

// outputFormat is the format named to, or that of out's extension.
func outputFormat(out, to string) (*formats.Format, error) {
	var names []string
	for i := range formats.All {
		f := &formats.All[i]
		if f.Directory {
			names = append(names, f.Name) // by name alone
		}
		if f.Write == nil {
			continue
		}
		if to == f.Name || to == "" && slices.Contains(f.Extensions, strings.ToLower(filepath.Ext(out))) {
			return f, nil
		}
		names = append(names, f.Name)
	}
	list := "formats to write: " + strings.Join(names, ", ")
	if to == "" {
		return nil, cli.Usagef("name one with --to; "+list, "the extension of %q names no format that is written", out)
	}
	if s := cli.Closest(to, names); s != "" {
		list = fmt.Sprintf("did you mean %q?", s)
	}
	return nil, cli.Usagef(list, "no format %q to write", to)
}

// writer returns what writes the model, and how many bytes it will write, 0 if
// that is not known. in is the argument, a file or a directory.
func (x *conversion) writer(c *urfave.Context, src formats.Source, format *formats.Format, in string) (write func(io.Writer) error, size int64, err error) {
	m := src.Model()
	if format.Name != "gguf" {
		if format.Size != nil {
			size = format.Size(m)
		}
		return func(w io.Writer) error { return format.Write(w, m) }, size, nil
	}
	o := fv5.Options{Name: c.String("name"), Version: cli.Version}
	if o.Name == "" {
		o.Name = modelName(in)
	}
	if o.Tokenizer, err = tokenizerFor(src, sideDir(in, src.Name())); err != nil {
		return nil, 0, err
	}
	if size, err = fv5.Size(m, o); err != nil {
		return nil, 0, err
	}
	if x.Tokenizer = o.Tokenizer != nil; !x.Tokenizer {
		warnNoTokenizer(c, src)
	}
	return func(w io.Writer) error { return fv5.Write(w, m, o) }, size, nil
}

// tokenizerFor is the tokenizer that a GGUF file made of src gets: that of a GGUF
// file which has one, else what the files in dir say; nil if there is none.
func tokenizerFor(src formats.Source, dir string) (*fv5.Tokenizer, error) {
	if g, ok := src.(*fv5.File); ok {
		if t, err := g.Tokenizer(); t != nil || err != nil {
			return t, err
		}
	}
	return tokens.FromPack(dir, src.Model().Vocab)
}

func warnNoTokenizer(c *urfave.Context, src formats.Source) {
	cli.Warn(c.App.ErrWriter, "npack", "no tokenizer.json beside %q: the GGUF file gets no tokenizer, and llama.cpp will not load it", src.Name())
}

// sideDir is where the files beside a model are: the pack directory, or the
// directory of the file.
func sideDir(in, file string) string {
	if st, err := os.Stat(in); err == nil && st.IsDir() {
		return in
	}
	return filepath.Dir(file)
}

// modelName makes a name of the argument.
func modelName(in string) string {
	abs, err := filepath.Abs(in)
	if err != nil {
		abs = in
	}
	base := filepath.Base(abs)
	if st, err := os.Stat(in); err == nil && st.IsDir() {
		return base
	}
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// compare checks what came out of a file of another format against what it says
// of the container that it was made of, and says if it says nothing.
func (x *conversion) compare(c *urfave.Context, src formats.Source) error {
	d, ok := src.(formats.Derived)
	if !ok {
		return nil
	}
	if x.SHA256 == "" {
		return d.CheckTensors(c.Context)
	}
	sum, n, ok := d.Container()
	switch {
	case !ok:
		x.Container = "not known"
		cli.Warn(c.App.ErrWriter, "npack", "%q does not say which container it was made of: it has no row sums, so they were computed, and nothing to compare the container with", x.File)
	case strings.EqualFold(sum, x.SHA256) && n == x.OutBytes:
		x.Container = "identical"
	default:
		if err := d.CheckTensors(c.Context); err != nil {
			return err
		}
		return otherContainer(x.File, pack.Pin{Bytes: x.OutBytes, SHA256: x.SHA256}, pack.Pin{Bytes: n, SHA256: sum})
	}
	return nil
}

// otherContainer is the error about a file that gives back another container
// than it says it was made of.
func otherContainer(file string, got, want pack.Pin) *pack.Error {
	return &pack.Error{Kind: pack.ErrNotEqual, File: file, Place: "the container's sha256", Offset: -1,
		Found:    fmt.Sprintf("the container has %d bytes and sha256 %s", got.Bytes, got.SHA256),
		Expected: fmt.Sprintf("%d and %s, of which the file was made", want.Bytes, want.SHA256),
		Hint:     "the file is damaged, or was changed by another program: fetch it again"}
}

func (x *conversion) print(w io.Writer) {
	fmt.Fprintf(w, "wrote %q: %s, %s bytes (%s)\n", x.Out, x.OutFormat, cli.Group(x.OutBytes), cli.Size(x.OutBytes))
	if x.SHA256 != "" {
		fmt.Fprintf(w, "  sha256     %s\n", x.SHA256)
	}
	switch x.Container {
	case "identical":
		fmt.Fprintf(w, "  container  identical with the one that %q was made of\n", x.File)
	case "not known":
		fmt.Fprintf(w, "  container  valid; row sums computed\n")
	}
}
