package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
	"npack/pack/coded"
	"npack/pack/foreign"
	"npack/pack/native"
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
	Exact     bool              `json:"exact"`    // every weight is the source's
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
	x.Dropped, x.Notes, x.Exact = append([]foreign.Dropped{}, f.Dropped()...), append([]string{}, f.Notes()...), !f.Rounded()
	x.Seconds = time.Since(start).Seconds()
	switch {
	case c.Bool("json"):
		return cli.JSON(c.App.Writer, x)
	case !c.Bool("quiet"):
		x.print(c.App.Writer)
	}
	return nil
}
