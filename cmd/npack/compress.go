package main

import (
	"fmt"
	"io"
	"os"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
	"npack/pack/coded"
	"npack/pack/native"
)

func compressCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "compress",
		Usage:     "make a coded transport of a container",
		UsageText: "npack compress [flags] IN [OUT]",
		Description: "IN is a native container, \"-\" standard input. OUT is its coded transport (.tv4z), the same bytes\n" +
			"that the publisher's program makes, or with --packed its packed form (.t5q), which every\n" +
			"archiver can take further.\n\n" +
			"Without OUT the transport goes to standard output if that is a pipe or a file, or if IN is \"-\";\n" +
			"otherwise to IN with .tv4z (or .t5q) for its extension.\n\n" +
			"Exit status: 0 done, 4 corrupt, 5 incomplete, 7 not a model, 8 no space, 130 interrupted.\n\n" +
			cli.Examples("npack compress model.bin model.tv4z", "npack compress model.bin | npack expand - - | sha256sum", "npack compress --packed model.bin - | zstd > model.t5q.zst"),
		Flags: []urfave.Flag{
			&urfave.BoolFlag{Name: "packed", Usage: "write the packed form (.t5q)"},
			threadsFlag(), forceFlag(), jsonFlag(), quietFlag("no progress, no word on success"),
		},
		Action: compressAction,
	}
}

// compression is the object that compress --json prints.
type compression struct {
	File    string   `json:"file"`
	Out     string   `json:"out"`
	Format  string   `json:"format"` // tv4z or t5q
	Bytes   int64    `json:"bytes"`  // of the container
	Coded   int64    `json:"coded_bytes"`
	Ratio   float64  `json:"ratio"`  // coded over whole
	Blocks  [3]int   `json:"blocks"` // tv4z: raw, byte, t5q
	Above   *float64 `json:"above_entropy,omitempty"`
	Invalid []string `json:"invalid,omitempty"` // matrices that break the rules of planes
	Time    speed    `json:"time"`

	payload int64 // of coded blocks, with heads
	entropy float64
}

func compressAction(c *urfave.Context) error {
	args, err := cli.Positionals(c, 1, 2)
	if err != nil {
		return err
	}
	n, err := threads(c)
	if err != nil {
		return err
	}
	in, err := openInput(c, args[0])
	if err != nil {
		return err
	}
	defer in.close()
	if in.kind == pack.KindTV4Z {
		return in.wrongKind("a native container (TRTC)", "it is compressed already")
	}
	if in.kind != pack.KindTRTC {
		return in.wrongKind("a native container (TRTC)", "")
	}
	z := &compression{File: in.name, Format: "tv4z"}
	if c.Bool("packed") {
		z.Format = "t5q"
	}
	z.Out = target(in, args, "."+z.Format)
	if len(args) == 1 && takesBytes(c.App.Writer) {
		z.Out = standard
	}
	if err := checkTarget(c, in, z.Out); err != nil {
		return err
	}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	z.Time.Threads = n
	start := time.Now()
	if err := z.run(c, in, func(done int64) { p.Show("compressing", done, in.size) }); err != nil {
		return err
	}
	p.Done()
	z.Bytes = in.size
	z.Time.Bytes, z.Time.Seconds = z.Bytes, time.Since(start).Seconds()
	z.Ratio = float64(z.Coded) / float64(z.Bytes)
	if z.entropy > 0 {
		above := 8*float64(z.payload)/z.entropy - 1
		z.Above = &above
	}
	for _, name := range z.Invalid {
		cli.Warn(c.App.ErrWriter, "npack", "%q: tensor %q has weights that no rule allows: kept as plain bytes; \"npack verify\" says more", z.File, name)
	}
	switch {
	case c.Bool("json"):
		return cli.JSON(c.App.Writer, z)
	case z.Out != standard && !c.Bool("quiet"):
		z.print(c.App.Writer)
	}
	return nil
}

// takesBytes reports whether w is a pipe or a file, and so wants the output if
// none is named. A terminal does not, nor a device such as /dev/null.
func takesBytes(w io.Writer) bool {
	f, ok := cli.File(w)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && (st.Mode().IsRegular() || st.Mode()&os.ModeNamedPipe != 0)
}

func (z *compression) run(c *urfave.Context, in *input, progress func(done int64)) error {
	if err := in.spool(c.Context); err != nil {
		return err
	}
	// Structure first, all that a reader will ask for.
	f, err := native.Open(in.file.Name())
	if err != nil {
		return err
	}
	records := f.Records()
	f.Close()
	planes := map[int64]string{} // where they start
	packed := in.size
	for i := range records {
		r := &records[i]
		if off, ok := r.PartOffset("bp"); ok {
			planes[off] = r.Name
			plane := int64(r.Rows) * int64(r.Stride)
			packed += (8*plane+2)/3 - 3*plane
		}
	}
	least := packed
	if z.Format == "tv4z" {
		// How many bytes there will be only coding tells; models stay above
		// this, and a disk that is too small all the same is told later.
		least = in.size / 3
	}
	return writeOutput(c, z.Out, least, func(w io.Writer) error {
		if z.Format == "t5q" {
			count := &countingWriter{w: w, progress: func(n int64) { progress(min(n*in.size/packed, in.size)) }}
			err := coded.Pack(c.Context, in.name, in.file, in.size, count)
			z.Coded = count.n
			return err
		}
		return coded.Encode(c.Context, in.file, in.size, w, coded.EncodeOptions{Name: in.name, Threads: z.Time.Threads, Done: func(d coded.Done) {
			z.Blocks[d.Method]++
			z.Coded = d.Mark.Coded
			if d.Method != coded.Raw {
				z.payload += d.CodedSize()
				z.entropy += d.Entropy
			}
			if name, ok := planes[d.Block.Source]; ok && d.Method != coded.T5Q {
				z.Invalid = append(z.Invalid, name)
			}
			progress(d.Mark.Source)
		}})
	})
}

// countingWriter counts what passes.
type countingWriter struct {
	w        io.Writer
	n        int64
	progress func(n int64)
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.progress(c.n)
	return n, err
}

func (z *compression) print(w io.Writer) {
	fmt.Fprintf(w, "wrote %q: %s bytes (%s), %.2f %% of the container, in %s\n", z.Out, cli.Group(z.Coded), cli.Size(z.Coded), 100*z.Ratio, z.Time)
	if z.Format == "tv4z" {
		fmt.Fprintf(w, "  blocks   %d of weights, %d of bytes, %d as they are\n", z.Blocks[coded.T5Q], z.Blocks[coded.Byte], z.Blocks[coded.Raw])
	}
	if z.Above != nil {
		fmt.Fprintf(w, "  entropy  coded blocks are %.4f %% above their order-0 entropy, heads included\n", 100**z.Above)
	}
}
