// Command synth writes a native container of a published geometry with made-up
// weights, to measure on without the real file:
//
//	go run ./internal/synth -model 8b -o /tmp/synth-8b.bin
//
// All weights are zero and the file has holes in their place, so that 3.9 GB
// take some 15 MB of disk. Scales and norms are what a loader accepts. With
// -random the weights have the shares that are published of the 8B model, and
// the file takes all of its size. With -gguf it is a file for llama.cpp, to
// compare with. bitnet-2b is a checkpoint of another program, for npack import.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"npack/pack/native"
	"npack/pack/safetensors"
	"npack/ternary"
	"npack/ternary/ternarytest"
)

// geometry is a published model with the size of its container in bytes.
type geometry struct {
	name  string
	bytes int64
	ternary.Config
}

var geometries = []geometry{{"8b", 3_875_404_812, ternarytest.Qwen8B()}, {"0.6b", 327_719_836, ternarytest.Qwen06B()}}

func main() {
	name := flag.String("model", "8b", "geometry: 8b, 0.6b or bitnet-2b, a Hugging Face directory")
	out := flag.String("o", "", "file to write")
	random := flag.Bool("random", false, "random weights of the published shares, not zeros")
	seed := flag.Uint64("seed", 1, "of the random weights")
	peer := flag.Bool("gguf", false, "a GGUF file for llama.cpp instead: random TQ2_0 linears, Q8_0 tables")
	form := flag.String("form", formTrained, "of bitnet-2b: packed or trained")
	part := flag.Int("part", 1, "make one with an `N`th of the layers and of the vocabulary, of the same mix")
	flag.Parse()
	if *name == "bitnet-2b" && *out != "" {
		c := bitnet2B
		c.Layers, c.Vocab = max(1, c.Layers/max(1, *part)), max(1, c.Vocab/max(1, *part))
		report(*name, filepath.Join(*out, safetensors.ShardName(0, 1)), writeBitNet(*out, &c, *form, *seed))
		return
	}
	i := slices.IndexFunc(geometries, func(g geometry) bool { return g.name == *name })
	if i < 0 || *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	g := geometries[i]
	if *part != 1 {
		g.Layers, g.Vocab = max(1, g.Layers/max(1, *part)), max(1, g.Vocab/max(1, *part))
		g.bytes = native.Size(&g.Config)
	}
	var err error
	if *peer {
		err = writePeer(*out, &g.Config, *seed)
	} else if err = write(*out, &g); err == nil && *random {
		err = randomize(*out, *seed)
	}
	report(*name, *out, err)
}

func report(name, path string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "synth: error:", err)
		os.Exit(1)
	}
	if st, err := os.Stat(path); err == nil {
		fmt.Printf("wrote %q: %s, %d bytes\n", path, name, st.Size())
	}
}

// write writes g to path and checks the size.
func write(path string, g *geometry) error {
	return create(path, func(f *os.File) error {
		s := &sparse{f: f}
		if err := native.Write(s, model(&g.Config)); err != nil {
			return err
		}
		if s.off != g.bytes {
			return fmt.Errorf("%s: %d bytes, the published file has %d", g.name, s.off, g.bytes)
		}
		return f.Truncate(s.off) // the file may end in a hole
	})
}

// create makes a file that fill writes, in place of what was there; a part of one
// is removed.
func create(path string, fill func(*os.File) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = fill(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}

// model returns a model whose planes and tables are zero. Equal parts share
// their memory, and what is zero is never touched, so this takes some 30 MB.
func model(c *ternary.Config) *ternary.Model {
	widest := slices.Max([]int{c.QDim(), c.KVDim(), c.Hidden, c.Intermediate})
	lo, hi, one := constant(widest, 1.0/128), constant(widest, 1.0/32), constant(widest, 1)
	sums := make([]int32, widest)
	plane := make([]byte, widest*pad(widest, 512)/8)
	table := ternary.Int8Matrix{Rows: c.Vocab, Cols: c.Hidden, ColsPad: pad(c.Hidden, 64), Stride: pad(c.Hidden, 64),
		Scale: constant(c.Vocab, 1.0/128), WSum: make([]int32, c.Vocab)}
	table.Q = make([]int8, table.Rows*table.Stride)

	m := &ternary.Model{Config: *c, FinalNorm: one[:c.Hidden], Head: table}
	if !c.Tied {
		m.Embed = &table
	}
	shapes := c.LinearShapes()
	for range c.Layers {
		var l ternary.Layer
		for _, n := range l.Norms(c) {
			*n.Data = one[:n.Len]
		}
		for j, w := range l.Linears() {
			rows, colsPad := shapes[j].Rows, pad(shapes[j].Cols, 512)
			p := plane[:rows*colsPad/8]
			*w = ternary.Matrix{Rows: rows, Cols: shapes[j].Cols, ColsPad: colsPad, Stride: colsPad / 8,
				BP: p, BN: p, BR: p, SLo: lo[:rows], SHi: hi[:rows], RSLo: sums[:rows], RSHi: sums[:rows]}
		}
		m.Layers = append(m.Layers, l)
	}
	return m
}

func constant(n int, v float32) []float32 { return slices.Repeat([]float32{v}, n) }

func pad(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// hole is the piece in which zeros are looked for: a block of most file systems.
const hole = 4096

// sparse writes a file from its start and skips blocks of zeros.
type sparse struct {
	f   io.WriterAt
	off int64
}

func (s *sparse) Write(p []byte) (n int, err error) {
	var zero [hole]byte
	for n < len(p) {
		// Pieces end where blocks of the file do.
		b := p[n:min(len(p), n+hole-int(s.off%hole))]
		if !bytes.Equal(b, zero[:len(b)]) {
			if _, err := s.f.WriteAt(b, s.off); err != nil {
				return n, err
			}
		}
		n, s.off = n+len(b), s.off+int64(len(b))
	}
	return n, nil
}
