package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack/coded"
	"npack/pack/native"
	"npack/ternary"
)

// transportReport is what inspect finds in the heads of a coded transport: the
// object that --json prints. Fields are only ever added.
type transportReport struct {
	File   string  `json:"file"`
	Format string  `json:"format"`
	Bytes  int64   `json:"bytes"`
	Whole  int64   `json:"model_bytes"` // of the container
	Ratio  float64 `json:"ratio"`
	MD5    string  `json:"md5"` // of the container
	Config config  `json:"config"`

	Blocks      [3]int             `json:"blocks"` // raw, byte, t5q
	Exact       bool               `json:"exact"`  // entropies are counted, not estimated from tables
	Projections []codedSize        `json:"projections"`
	Tables      []codedSize        `json:"tables"`
	Between     codedSize          `json:"between"` // what lies between matrices: norms, scales, sums
	Layers      []codedSize        `json:"layers"`  // ternary matrices of a layer together
	Tensors     []codedSize        `json:"tensors"`
	Worst       map[string]*excess `json:"worst,omitempty"`  // by method: the block most above its entropy, if exact
	Coding      []coding           `json:"coding,omitempty"` // by kind of block, if exact
}

// codedSize is what a matrix, or several, take in the transport.
type codedSize struct {
	Name    string  `json:"name"`
	Weights int64   `json:"weights"`
	Raw     int64   `json:"raw_bytes"`
	Coded   int64   `json:"coded_bytes"`
	Ratio   float64 `json:"ratio"`
	Bits    float64 `json:"bits_per_weight"`
	Entropy float64 `json:"entropy_per_weight"` // bits: the order-0 bound
	Above   float64 `json:"above_entropy"`      // coded over it, minus 1; an estimate of it is worth little

	bound float64 // bits
}

func (s *codedSize) add(weights, raw, coded int64, bound float64) {
	s.Weights += weights
	s.Raw += raw
	s.Coded += coded
	s.bound += bound
}

func (s *codedSize) finish() {
	if s.Raw > 0 {
		s.Ratio = float64(s.Coded) / float64(s.Raw)
	}
	if s.Weights > 0 {
		s.Bits = 8 * float64(s.Coded) / float64(s.Weights)
		s.Entropy = s.bound / float64(s.Weights)
	}
	if s.bound > 0 {
		s.Above = 8*float64(s.Coded)/s.bound - 1
	}
}

func inspectTransport(c *urfave.Context, path, plot string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	x, err := coded.ReadIndex(c.Context, path, f, st.Size())
	if err != nil {
		return err
	}
	regions, err := x.Regions(c.Context)
	if err != nil {
		return err
	}
	g, err := native.ReadConfig(path, x.Source(c.Context), x.Header.SourceSize)
	if err != nil {
		return err
	}
	r := &transportReport{File: path, Format: "tv4z", Bytes: x.Size, Whole: x.Header.SourceSize, MD5: fmt.Sprintf("%x", x.Header.MD5), Config: newConfig(g)}
	r.Ratio = float64(r.Bytes) / float64(r.Whole)
	bounds, err := r.bounds(c, x, f)
	if err != nil {
		return err
	}
	r.addTensors(x.Tensors(regions, bounds.entropy))
	for i := range x.Blocks {
		r.Blocks[x.Blocks[i].Method]++
	}
	if r.Exact {
		r.addCoding(x, regions, bounds)
	}
	if plot != "" {
		if err := writeTransportPlot(plot, r); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, r)
	}
	r.print(c.App.Writer)
	return nil
}

func (r *transportReport) addTensors(tensors []coded.Tensor) {
	r.Projections = make([]codedSize, ternary.NumProjections)
	for j, name := range ternary.Projections {
		r.Projections[j].Name = name
	}
	r.Between = codedSize{Name: "between", Raw: r.Whole, Coded: r.Bytes}
	j := 0
	for i := range tensors {
		t := &tensors[i]
		weights := t.Rows * t.Cols
		one := codedSize{Name: t.Tensor}
		one.add(weights, t.Size, t.Coded, t.Entropy)
		one.finish()
		r.Tensors = append(r.Tensors, one)
		r.Between.Raw -= t.Size
		r.Between.Coded -= t.Coded
		if t.Layer < 0 {
			r.Tables = append(r.Tables, one)
			continue
		}
		if t.Layer == len(r.Layers) {
			r.Layers = append(r.Layers, codedSize{Name: fmt.Sprint(t.Layer)})
		}
		r.Layers[t.Layer].add(weights, t.Size, t.Coded, t.Entropy)
		r.Projections[j].add(weights, t.Size, t.Coded, t.Entropy)
		j = (j + 1) % ternary.NumProjections
	}
	for _, all := range [][]codedSize{r.Projections, r.Layers} {
		for i := range all {
			all[i].finish()
		}
	}
	r.Between.finish()
}

func (r *transportReport) print(w io.Writer) {
	fmt.Fprintf(w, "%q: %s, %s bytes (%s), %.2f %% of the container's %s\n\n", r.File, r.Format, cli.Group(r.Bytes), cli.Size(r.Bytes), 100*r.Ratio, cli.Group(r.Whole))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	r.Config.print(t)
	fmt.Fprintf(t, "md5\t%s, of the container\n", r.MD5)
	fmt.Fprintf(t, "blocks\t%d of weights, %d of bytes, %d as they are\n", r.Blocks[coded.T5Q], r.Blocks[coded.Byte], r.Blocks[coded.Raw])
	t.Flush()

	// Only counted bounds are good enough to tell the last hundredths.
	about, above := "estimated from the blocks' tables; --entropy counts", ""
	percent := func(*codedSize) string { return "" }
	if r.Exact {
		about, above = "counted; heads are part of what is above", fmt.Sprintf(" %9s", "above %")
		percent = func(s *codedSize) string { return fmt.Sprintf(" %+9.4f", 100*s.Above) }
	}
	fmt.Fprintf(w, "\n%-13s %15s %15s %8s %8s %8s%s\n", "size", "raw", "coded", "of raw %", "bits", "entropy", above)
	line := func(s *codedSize) {
		fmt.Fprintf(w, "  %-11s %15s %15s %8.2f", s.Name, cli.Group(s.Raw), cli.Group(s.Coded), 100*s.Ratio)
		if s.Weights > 0 {
			fmt.Fprintf(w, " %8.4f %8.4f%s", s.Bits, s.Entropy, percent(s))
		}
		fmt.Fprintln(w)
	}
	for i := range r.Projections {
		line(&r.Projections[i])
	}
	for i := range r.Tables {
		line(&r.Tables[i])
	}
	line(&r.Between)
	line(&codedSize{Name: "total", Raw: r.Whole, Coded: r.Bytes, Ratio: r.Ratio})
	fmt.Fprintf(w, "  bits and entropy: of a weight; the order-0 bound of each block's symbols, %s\n", about)
	printCoding(w, r.Coding)

	fmt.Fprintf(w, "\nbits a weight, by layer\n%5s %8s %8s %8s%s ", "layer", "of raw %", "bits", "entropy", above)
	for _, name := range []string{"q", "k", "v", "o", "gate", "up", "down"} {
		fmt.Fprintf(w, "%8s", name)
	}
	fmt.Fprintln(w)
	for i := range r.Layers {
		l := &r.Layers[i]
		fmt.Fprintf(w, "%5d %8.2f %8.4f %8.4f%s ", i, 100*l.Ratio, l.Bits, l.Entropy, percent(l))
		for _, s := range r.layer(i) {
			fmt.Fprintf(w, "%8.4f", s.Bits)
		}
		fmt.Fprintln(w)
	}
}

// layer returns the matrices of layer i.
func (r *transportReport) layer(i int) []codedSize {
	first := len(r.Tables) - 1 // an embedding before the layers
	return r.Tensors[first+i*ternary.NumProjections:][:ternary.NumProjections]
}
