package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/membw"
	"npack/pack/formats"
	"npack/ternary"
)

// occupancy is what a walk over all weights finds.
type occupancy struct {
	Total       counts                           `json:"total"`
	Projections [ternary.NumProjections]counts   `json:"projections"` // over all layers
	Layers      [][ternary.NumProjections]counts `json:"layers"`
	Warnings    sumWarnings                      `json:"row_sums"`
	Walk        speed                            `json:"walk"`
	Memory      *bandwidth                       `json:"memory,omitempty"`
	FileRead    *bandwidth                       `json:"file_read,omitempty"`
}

// counts are the values that the weights of one linear take.
type counts struct {
	Name    string  `json:"name"`
	Weights int64   `json:"weights"`
	Zeros   int64   `json:"zeros"`
	PlusLo  int64   `json:"plus_lo"`
	MinusLo int64   `json:"minus_lo"`
	PlusHi  int64   `json:"plus_hi"`
	MinusHi int64   `json:"minus_hi"`
	Entropy float64 `json:"entropy_bits"` // of the five values, a weight
}

// sumWarnings says how many integrity words are not what convention says.
type sumWarnings struct {
	Mismatches int64  `json:"mismatches"`
	First      string `json:"first,omitempty"`
}

type speed struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Threads int     `json:"threads"`
}

func (s speed) rate() float64 { return float64(s.Bytes) / s.Seconds }

// bandwidth is the machine's, of memory or of reading this file with the
// system's read call, measured right before the walk.
type bandwidth struct {
	BytesPerSecond float64 `json:"bytes_per_second"`
	Threads        int     `json:"threads"`
	Buffer         int     `json:"buffer_bytes"`
}

// benchBuffer is the memory that is read to measure bandwidth: four times a
// last-level cache of 32 MiB, and little enough for small machines.
const benchBuffer = 128 << 20

// benchFile is how much of the file is read to measure that.
const benchFile = 1 << 30

// walk reads all weights once. What breaks a rule of the format is an error,
// wrong row sums are a warning.
func walk(c *urfave.Context, src formats.Source) (*occupancy, error) {
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	threads := c.Int("threads")
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	passes := 1
	var memory, file *bandwidth
	if c.Bool("bench") { // before the walk, so that the buffer and the walk's pages do not add up
		b := membw.Read(threads, benchBuffer, time.Second)
		memory = &bandwidth{b.BytesPerSecond, b.Threads, b.Bytes}
		f, err := membw.ReadFile(src.Name(), threads, benchFile)
		if err != nil {
			return nil, err
		}
		file = &bandwidth{f.BytesPerSecond, f.Threads, f.Bytes}
		passes = 3 // the first may read the disk
	}
	var o *occupancy
	for i := range passes {
		start := time.Now()
		s, err := src.Model().Survey(c.Context, ternary.WalkOptions{Threads: threads,
			Progress: func(done, total int64) { p.Show("reading weights", int64(i)*total+done, int64(passes)*total) }})
		if err != nil {
			return nil, src.Place(err)
		}
		walked := speed{s.Bytes, time.Since(start).Seconds(), threads}
		if o == nil {
			o = newOccupancy(s, walked)
			if s.SumMismatches > 0 {
				o.Warnings.First = src.Place(s.FirstMismatch).Error()
			}
		}
		o.Walk.Seconds = min(o.Walk.Seconds, walked.Seconds)
	}
	p.Done()
	if o.Warnings.Mismatches > 0 {
		cli.Warn(c.App.ErrWriter, c.App.Name, "%s", o.Warnings)
	}
	o.Memory, o.FileRead = memory, file
	return o, nil
}

func newOccupancy(s *ternary.Survey, walked speed) *occupancy {
	o := &occupancy{Total: newCounts("total", s.Total), Walk: walked, Warnings: sumWarnings{Mismatches: s.SumMismatches}}
	for j, name := range ternary.Projections {
		o.Projections[j] = newCounts(name, s.Projection(j))
	}
	o.Layers = make([][ternary.NumProjections]counts, len(s.Layers))
	for i := range s.Layers {
		for j, name := range ternary.Projections {
			o.Layers[i][j] = newCounts(ternary.LayerName(i, name), s.Layers[i][j])
		}
	}
	return o
}

func newCounts(name string, o ternary.Occupancy) counts {
	c := counts{Name: name, Weights: o.Weights, Zeros: o.Zeros(), PlusLo: o.PlusLo, MinusLo: o.MinusLo, PlusHi: o.PlusHi, MinusHi: o.MinusHi}
	for _, n := range []int64{c.Zeros, c.PlusLo, c.MinusLo, c.PlusHi, c.MinusHi} {
		if p := float64(n) / float64(c.Weights); p > 0 {
			c.Entropy -= p * math.Log2(p)
		}
	}
	c.Entropy = max(c.Entropy, 0) // and not -0
	return c
}

// percent of the weights.
func (c counts) percent(n int64) float64 { return 100 * float64(n) / float64(c.Weights) }

func (s sumWarnings) String() string {
	return fmt.Sprintf("%s row sums are not the sums of their rows; the first: %s", cli.Group(s.Mismatches), s.First)
}

func (o *occupancy) print(w io.Writer) {
	fmt.Fprintf(w, "\noccupancy          weights   zero %%     lo %%     hi %%   +lo %%   -lo %%   +hi %%   -hi %%  bits\n")
	for _, c := range append(o.Projections[:], o.Total) {
		fmt.Fprintf(w, "  %-11s%13s %8.3f %8.3f %8.3f %7.3f %7.3f %7.3f %7.3f %5.3f\n", c.Name, cli.Group(c.Weights), c.percent(c.Zeros),
			c.percent(c.PlusLo+c.MinusLo), c.percent(c.PlusHi+c.MinusHi),
			c.percent(c.PlusLo), c.percent(c.MinusLo), c.percent(c.PlusHi), c.percent(c.MinusHi), c.Entropy)
	}
	fmt.Fprintf(w, "  bits: entropy of the five values, a weight. All counts, by layer too: --json\n")

	fmt.Fprintf(w, "\nzero and hi %%, by layer\nlayer")
	for _, name := range []string{"q", "k", "v", "o", "gate", "up", "down"} {
		fmt.Fprintf(w, "%11s", name)
	}
	fmt.Fprintln(w)
	for i := range o.Layers {
		fmt.Fprintf(w, "%5d", i)
		for _, c := range o.Layers[i] {
			fmt.Fprintf(w, " %5.1f%5.1f", c.percent(c.Zeros), c.percent(c.PlusHi+c.MinusHi))
		}
		fmt.Fprintln(w)
	}

	if o.Warnings.Mismatches == 0 {
		fmt.Fprintf(w, "\nrow sums    all as the rows add up\n")
	} else {
		fmt.Fprintf(w, "\nrow sums    %s\n", o.Warnings)
	}
	fmt.Fprintf(w, "walk        %s bytes in %.3f s with %d threads: %.2f GB/s\n", cli.Group(o.Walk.Bytes), o.Walk.Seconds, o.Walk.Threads, o.Walk.rate()/1e9)
	if m := o.Memory; m != nil {
		fmt.Fprintf(w, "memory      reads at %.2f GB/s with %d threads (%d MiB); the walk has %.0f %% of that, best passes\n",
			m.BytesPerSecond/1e9, m.Threads, m.Buffer>>20, 100*o.Walk.rate()/m.BytesPerSecond)
	}
	if f := o.FileRead; f != nil {
		fmt.Fprintf(w, "file        read() gives %.2f GB/s with %d threads; the walk has %.0f %% of that\n",
			f.BytesPerSecond/1e9, f.Threads, 100*o.Walk.rate()/f.BytesPerSecond)
	}
}
