package main

import (
	"fmt"
	"io"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack/coded"
)

// bounds are what each block of a transport needs at least, in bits.
type bounds struct {
	entropy []float64 // order 0, of its symbols
	ideal   []float64 // with its table of frequencies, if counted
}

// bounds estimates the entropies from the blocks' tables or, with --entropy,
// decodes the blocks and counts.
func (r *transportReport) bounds(c *urfave.Context, x *coded.Index, f io.ReaderAt) (bounds, error) {
	b := bounds{make([]float64, len(x.Blocks)), make([]float64, len(x.Blocks))}
	if r.Exact = c.Bool("entropy"); !r.Exact {
		for i := range x.Blocks {
			b.entropy[i] = x.Blocks[i].Estimate()
		}
		return b, nil
	}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	return b, coded.Decode(c.Context, x.Header, io.NewSectionReader(f, coded.HeaderSize, x.Size-coded.HeaderSize), nil,
		coded.DecodeOptions{Name: x.Name, Size: x.Size, Threads: c.Int("threads"), Count: true, Done: func(d coded.Done) {
			b.entropy[d.Index], b.ideal[d.Index] = d.Entropy, d.Ideal
			p.Show("entropy", d.Mark.Source, r.Whole)
		}})
}

// excess tells how far a block is above the order-0 entropy of its symbols.
type excess struct {
	Block   int64   `json:"block"`
	Payload float64 `json:"payload"` // what the coder made, its 8 bytes of state included
	Whole   float64 `json:"whole"`   // with the head and its table of frequencies
}

// coding tells how far the blocks of one kind are above their entropies, and
// why. Shares are of the sum of the entropies.
type coding struct {
	Kind    string  `json:"kind"`
	Blocks  int     `json:"blocks"`        // but for those of one symbol, which have no entropy
	Entropy float64 `json:"entropy_bytes"` // of all
	Table   float64 `json:"table"`         // frequencies are steps of 1/16384
	Coder   float64 `json:"coder"`         // its 8 bytes of state a block, and what it loses
	Head    float64 `json:"head"`
	Within  int     `json:"within_200_ppm"` // blocks whose payload is
	Whole   int     `json:"whole_within_200_ppm"`
	Worst   excess  `json:"worst"` // by its payload
}

const within = 0.0002

// addCoding adds up the blocks, by kind: weights, values of tables, and what
// lies between.
func (r *transportReport) addCoding(x *coded.Index, regions []coded.Region, bounds bounds) {
	kinds := []coding{{Kind: "weights (t5q)"}, {Kind: "tables (byte)"}, {Kind: "between (byte)"}}
	r.Worst = map[string]*excess{}
	next := 0 // the first region that does not end before the block
	for i := range x.Blocks {
		b := &x.Blocks[i]
		for next < len(regions) && regions[next].Offset+regions[next].Size <= b.Source {
			next++
		}
		entropy := bounds.entropy[i] / 8
		if b.Method == coded.Raw || entropy == 0 {
			continue
		}
		k := &kinds[2]
		switch {
		case b.Method == coded.T5Q:
			k = &kinds[0]
		case next < len(regions) && regions[next].Offset <= b.Source:
			k = &kinds[1]
		}
		k.add(b, entropy, bounds.ideal[i]/8)
		if w := r.Worst[b.Method.String()]; w == nil || k.Worst.Payload > w.Payload {
			e := k.Worst
			r.Worst[b.Method.String()] = &e
		}
	}
	for _, k := range kinds {
		if k.Blocks > 0 {
			k.Table, k.Coder, k.Head = k.Table/k.Entropy, k.Coder/k.Entropy, k.Head/k.Entropy
			r.Coding = append(r.Coding, k)
		}
	}
}

// add adds a block with its bounds in bytes.
func (k *coding) add(b *coded.Block, entropy, ideal float64) {
	e := excess{b.Index, float64(b.Payload)/entropy - 1, float64(b.CodedSize())/entropy - 1}
	if k.Blocks == 0 || e.Payload > k.Worst.Payload {
		k.Worst = e
	}
	if e.Payload <= within {
		k.Within++
	}
	if e.Whole <= within {
		k.Whole++
	}
	k.Blocks++
	k.Entropy += entropy
	k.Table += ideal - entropy
	k.Coder += float64(b.Payload) - ideal
	k.Head += float64(b.CodedSize() - b.Payload)
}

func printCoding(w io.Writer, kinds []coding) {
	if len(kinds) == 0 {
		return
	}
	fmt.Fprintf(w, "\nabove the entropy, %%: of all blocks of a kind together, and how many are within %.2f %%\n", 100*within)
	fmt.Fprintf(w, "%-16s %6s %8s %8s %8s %8s   %-22s %13s %11s\n", "kind", "blocks", "table", "coder", "head", "all", "worst without head", "without head", "with head")
	for _, k := range kinds {
		worst := fmt.Sprintf("%.4f (block %d)", 100*k.Worst.Payload, k.Worst.Block)
		fmt.Fprintf(w, "  %-14s %6d %8.4f %8.4f %8.4f %8.4f   %-22s %13d %11d\n", k.Kind, k.Blocks, 100*k.Table, 100*k.Coder, 100*k.Head,
			100*(k.Table+k.Coder+k.Head), worst, k.Within, k.Whole)
	}
	fmt.Fprintln(w, "  table: frequencies are steps of 1/16384, as the format has it; coder: its 8 bytes of state a block included")
}
