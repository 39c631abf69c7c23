package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/formats"
	"npack/runtime/backend"
	"npack/ternary"
)

func inspectCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "inspect",
		Usage:     "show what is in a model",
		UsageText: "npack inspect [flags] FILE|DIR",
		Description: "Shows the geometry, where the bytes go, and what a token of context costs. That takes\n" +
			"milliseconds for any size of file; occupancy and digests read all of it. Of a coded transport\n" +
			"it shows what every layer and projection takes, beside the order-0 entropy; --occupancy and\n" +
			"--digests decode it into memory and look at the container.\n\n" +
			cli.Examples(
				"npack inspect model.bin",
				"npack inspect --occupancy --plot occupancy.png model.bin",
				"npack inspect --entropy --plot sizes.png model.tv4z",
				"npack inspect --json --digests pack/ | jq .digests.model"),
		Flags: []urfave.Flag{
			&urfave.BoolFlag{Name: "occupancy", Usage: "read all weights: check them and count zeros, magnitudes and signs"},
			&urfave.BoolFlag{Name: "digests", Usage: "read all weights: sha256 of every tensor and of the model, the same in every format"},
			&urfave.BoolFlag{Name: "entropy", Usage: "of a coded transport: read all blocks and count their entropy"},
			&urfave.StringFlag{Name: "plot", Usage: "draw occupancy by layer into this `PNG` (implies --occupancy), of a coded transport its sizes"},
			&urfave.BoolFlag{Name: "bench", Usage: "measure memory bandwidth beside the walk's speed (implies --occupancy)"},
			&urfave.IntFlag{Name: "threads", Aliases: []string{"t"}, Usage: "threads for reading all weights", DefaultText: "one a core"},
			jsonFlag(),
			quietFlag("no progress"),
		},
		Action: inspect,
	}
}

// report is what inspect finds: the object that --json prints. Fields are only
// ever added.
type report struct {
	File   string `json:"file"`
	Format string `json:"format"`
	Bytes  int64  `json:"bytes"`       // of the file
	Whole  int64  `json:"model_bytes"` // more than that if the file is a coded form; what the budget adds up to

	Config  config  `json:"config"`
	Weights weights `json:"weights"`
	Bits    struct {
		Ternary float64 `json:"ternary"` // planes, scales, sums and biases, a ternary weight
		File    float64 `json:"file"`    // the whole container, a weight of any kind
	} `json:"bits_per_weight"`
	KV struct {
		F16  int64 `json:"f16"`
		F32  int64 `json:"f32"`
		Int8 int64 `json:"int8"`
	} `json:"kv_bytes_per_token"`
	budget

	Occupancy *occupancy       `json:"occupancy,omitempty"`
	Digests   *ternary.Digests `json:"digests,omitempty"`
}

// config is ternary.Config under the container's names.
type config struct {
	Arch         string  `json:"arch"`
	Layers       int     `json:"n_layers"`
	Hidden       int     `json:"hidden"`
	Heads        int     `json:"n_heads"`
	KVHeads      int     `json:"n_kv_heads"`
	HeadDim      int     `json:"head_dim"`
	RotaryDims   int     `json:"rotary_dims"`
	Intermediate int     `json:"intermediate"`
	Vocab        int     `json:"vocab"`
	MaxPosition  int     `json:"max_position"`
	RMSEps       float32 `json:"rms_norm_eps"`
	RopeTheta    float32 `json:"rope_theta"`
	Tied         bool    `json:"tied"`
}

func newConfig(g *ternary.Config) config {
	return config{g.Arch.String(), g.Layers, g.Hidden, g.Heads, g.KVHeads, g.HeadDim, g.RotaryDims, g.Intermediate,
		g.Vocab, g.MaxPosition, g.RMSEps, g.RopeTheta, g.Tied}
}

func inspect(c *urfave.Context) error {
	args, err := cli.Positionals(c, 1, 1)
	if err != nil {
		return err
	}
	plot := c.String("plot")
	if plot != "" && !strings.EqualFold(filepath.Ext(plot), ".png") {
		return cli.Usagef("name it .png", "cannot draw %q: plots are PNG files", plot)
	}
	if plot != "" {
		if err := outfile.Check(plot); err != nil {
			return err
		}
	}
	path, err := formats.Container(args[0])
	if err != nil {
		return err
	}
	format, err := formats.Detect(path)
	if err != nil {
		return err
	}
	container := c.Bool("occupancy") || c.Bool("digests") || c.Bool("bench")
	switch {
	case c.Bool("entropy") && format.Kind != pack.KindTV4Z:
		return cli.Usagef("leave it out, or make one: npack compress", "--entropy is of a coded transport (.tv4z); %q is a %s file", path, format.Name)
	case c.Bool("entropy") && container:
		return cli.Usagef("give them one after the other", "--entropy looks at the blocks of a transport, --occupancy, --digests and --bench at its container")
	case format.Kind == pack.KindTV4Z && !container:
		return inspectTransport(c, path, plot)
	}
	src, err := formats.Open(c.Context, args[0])
	if err != nil {
		return inspectForeign(c, path, err)
	}
	defer src.Close()
	r := newReport(src)
	st, err := os.Stat(r.File)
	if err != nil {
		return err
	}
	r.Bytes = st.Size()
	if d, ok := src.(formats.Derived); ok {
		r.Bytes = d.Length() // of all shards
	}
	if plot != "" || c.Bool("occupancy") || c.Bool("bench") {
		if r.Occupancy, err = walk(c, src); err != nil {
			return err
		}
		if plot != "" {
			if err := writePlot(plot, r); err != nil {
				return err
			}
		}
	}
	if c.Bool("digests") {
		if r.Digests, err = digests(c, src); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, r)
	}
	r.print(c.App.Writer)
	return nil
}

func newReport(src formats.Source) *report {
	m := src.Model()
	r := &report{File: src.Name(), Format: formatOf(src), Whole: src.Size(), Weights: countWeights(m), budget: newBudget(m, src.Size())}
	g := &m.Config
	r.Config = newConfig(g)
	r.Bits.Ternary = 8 * float64(r.Weights.ternaryBytes) / float64(r.Weights.Ternary)
	r.Bits.File = 8 * float64(r.Whole) / float64(r.Weights.Total)
	r.KV.F16 = backend.KVF16.BytesPerToken(g)
	r.KV.F32 = backend.KVF32.BytesPerToken(g)
	r.KV.Int8 = backend.KVInt8.BytesPerToken(g)
	return r
}

// formatOf names the format of an open model.
func formatOf(src formats.Source) string {
	f, err := formats.Detect(src.Name())
	if err != nil {
		return ""
	}
	return f.Name
}

func digests(c *urfave.Context, src formats.Source) (*ternary.Digests, error) {
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	d, err := src.Model().Digests(c.Context, ternary.WalkOptions{Threads: c.Int("threads"),
		Progress: func(done, total int64) { p.Show("digests", done, total) }})
	return d, src.Place(err)
}

// print writes rows of a table: a name, a tab, what there is to say.
func (g *config) print(t io.Writer) {
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	embedding := "separate input and output embeddings"
	if g.Tied {
		embedding = "one embedding for input and output"
	}
	line("model", "%s, %d layers, %s", g.Arch, g.Layers, embedding)
	line("widths", "hidden %d, intermediate %d, vocabulary %d", g.Hidden, g.Intermediate, g.Vocab)
	line("attention", "%d query and %d key/value heads of %d, %d of them rotated, theta %s", g.Heads, g.KVHeads, g.HeadDim, g.RotaryDims,
		strconv.FormatFloat(float64(g.RopeTheta), 'f', -1, 32))
	line("context", "up to %s tokens", cli.Group(int64(g.MaxPosition)))
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%q: %s, %s bytes (%s)", r.File, r.Format, cli.Group(r.Bytes), cli.Size(r.Bytes))
	switch {
	case r.Format == "gguf" || r.Format == "mlx":
		fmt.Fprintf(w, "; as a container %s, of which this is the table", cli.Group(r.Whole))
	case r.Whole != r.Bytes:
		fmt.Fprintf(w, ", coded; the container has %s", cli.Group(r.Whole))
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	r.Config.print(t)
	line("weights", "%s: %s ternary, %s int8, %s float", cli.Group(r.Weights.Total), cli.Group(r.Weights.Ternary), cli.Group(r.Weights.Int8), cli.Group(r.Weights.Float))
	line("bits", "%.3f a ternary weight with its scales, %.3f a weight over the whole file", r.Bits.Ternary, r.Bits.File)
	line("KV cache", "%s bytes a token in f16, %s in f32, %s in int8", cli.Group(r.KV.F16), cli.Group(r.KV.F32), cli.Group(r.KV.Int8))
	t.Flush()

	printSizes(w, "bytes by part", r.ByPart, r.Whole)
	printSizes(w, "bytes by kind", r.ByKind, r.Whole)
	if r.Occupancy != nil {
		r.Occupancy.print(w)
	}
	if d := r.Digests; d != nil {
		fmt.Fprintf(w, "\nsha256 of the weights, the same in every format\n")
		for _, t := range d.Tensors {
			fmt.Fprintf(w, "  %s  %s\n", t.Digest, t.Name)
		}
		fmt.Fprintf(w, "  %s  model\n", d.Model)
	}
}

// printSizes prints a table of bytes with a bar; rows of 0 bytes are left out.
func printSizes(w io.Writer, title string, sizes []size, total int64) {
	fmt.Fprintf(w, "\n%-16s %17s\n", title, cli.Group(total))
	most := int64(1)
	for _, s := range sizes {
		most = max(most, s.Bytes)
	}
	for _, s := range sizes {
		if s.Bytes > 0 {
			share := 100 * float64(s.Bytes) / float64(total)
			line := fmt.Sprintf("  %-15s%17s %6.2f %%  %s", s.Name, cli.Group(s.Bytes), share, bar(s.Bytes, most, 32))
			fmt.Fprintln(w, strings.TrimRight(line, " "))
		}
	}
}

// bar draws n of most as up to width cells, in eighths.
func bar(n, most int64, width int) string {
	eighths := int(float64(n) / float64(most) * float64(8*width))
	return strings.Repeat("█", eighths/8) + []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[eighths%8]
}
