package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/pack/formats"
	"npack/pack/hf"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
)

func exportCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "export",
		Usage:     "make a directory of the Hugging Face layout, with dense weights, for transformers",
		UsageText: "npack export [flags] hf IN [OUTDIR]",
		Description: "IN is a model of any format or a pack directory, OUTDIR the directory to make; without it IN's\n" +
			"name with -hf. It holds model.safetensors, config.json, the tokenizer's files from beside IN and,\n" +
			"in f32, npack-rows.safetensors, with which \"npack import\" makes the container again, byte for\n" +
			"byte.\n\n" +
			"In f32 every weight is exact. In bf16 it is rounded; the largest error is printed.\n\n" +
			cli.Examples("npack export hf pack/", "npack export hf --dtype bf16 model.gguf model-bf16"),
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "dtype", Usage: "`TYPE` of weights: f32 or bf16", Value: "f32"},
			shardFlag(), forceDirFlag(), jsonFlag(), quietFlag("no progress, no word on success"),
		},
		Action: export,
	}
}

// exportResult is the object that export --json prints.
type exportResult struct {
	File         string  `json:"file"`
	Out          string  `json:"out"`
	DType        string  `json:"dtype"`
	Exact        bool    `json:"exact"`
	LargestError float64 `json:"largest_error"` // relative
	Bytes        int64   `json:"bytes"`         // of files of weights
	Files        int     `json:"files"`
	SHA256       string  `json:"container_sha256"`
	Tokenizer    bool    `json:"tokenizer"`
	Seconds      float64 `json:"seconds"`
}

func export(c *urfave.Context) error {
	args, err := cli.Positionals(c, 2, 3)
	if err != nil {
		return err
	}
	if args[0] != "hf" {
		return cli.Usagef("npack export hf IN [OUTDIR]; for other formats: npack convert, to-gguf, to-mlx", "export: no layout %q", args[0])
	}
	dtypes := map[string]safetensors.DType{"f32": safetensors.F32, "bf16": safetensors.BF16}
	o := hf.Options{DType: dtypes[strings.ToLower(c.String("dtype"))], MaxShard: shardSize(c)}
	if o.DType == 0 {
		return cli.Usagef("types: f32, bf16", "--dtype: no type %q", c.String("dtype"))
	}
	src, err := formats.Open(c.Context, args[1])
	if err != nil {
		return err
	}
	defer src.Close()
	r := &exportResult{File: src.Name(), Out: strings.TrimSuffix(src.Name(), filepath.Ext(src.Name())) + "-hf"}
	if len(args) == 3 {
		r.Out = args[2]
	}
	if err := checkDirTarget(c, src, r.Out, rows.Name, "config.json"); err != nil {
		return err
	}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	o.Side = sideDir(args[1], src.Name())
	o.Progress = func(done, total int64) { p.Show("writing", done, total) }
	start := time.Now()
	size, err := hf.Size(src.Model(), o)
	if err != nil {
		return placed(src, err)
	}
	d, err := outfile.CreateDir(r.Out, size)
	if err != nil {
		return err
	}
	defer d.Abort()
	var w *hf.Result
	if err := ternary.Guard(func() (err error) { w, err = hf.Write(c.Context, d, src.Model(), o); return err }); err != nil {
		return placed(src, err)
	}
	if err := d.Commit(); err != nil {
		return err
	}
	p.Done()
	r.DType, r.Exact, r.LargestError, r.Bytes, r.Files = w.DType, w.Exact, w.LargestError, w.Bytes, w.Files
	r.SHA256, r.Tokenizer, r.Seconds = w.SHA256, w.Tokenizer, time.Since(start).Seconds()
	warnTokenizer(c, r.Tokenizer, src, "transformers")
	switch {
	case c.Bool("json"):
		return cli.JSON(c.App.Writer, r)
	case !c.Bool("quiet"):
		r.print(c.App.Writer)
	}
	return nil
}

func (r *exportResult) print(w io.Writer) {
	fmt.Fprintf(w, "wrote %q: %s, %s bytes (%s)\n", r.Out, r.DType, cli.Group(r.Bytes), cli.Size(r.Bytes))
	if r.Exact {
		fmt.Fprintf(w, "  weights    exact\n")
	} else {
		fmt.Fprintf(w, "  weights    rounded: the largest error of one is %.2g of it\n", r.LargestError)
	}
	fmt.Fprintf(w, "  run        AutoModelForCausalLM.from_pretrained(%q)\n", r.Out)
}
