package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"os"
	"runtime"
	"sync"

	"npack/pack/native"
	"npack/ternary"
)

// What is published about the ternary weights of the 8B model.
const (
	zeros = 0.6263    // of all weights
	highs = 1.0 / 3.0 // of those that are not zero
	sigma = 32        // of the values of int8 tables, about normal
)

// randomize fills the file of a model whose weights are zero with random ones
// of these shares, with the sums that belong to them. Each row has its own
// generator: the bytes do not depend on the number of threads.
func randomize(path string, seed uint64) error {
	f, err := native.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fd, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer fd.Close()
	type job struct {
		r      *native.Record
		seed   uint64
		r0, r1 int
	}
	jobs := make(chan job)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			g := newFiller(fd)
			for j := range jobs {
				if err := g.fill(j.r, j.seed, j.r0, j.r1); err != nil {
					cancel(fmt.Errorf("%s: %w", j.r.Name, err))
				}
			}
		})
	}
	records := f.Records()
	for i := range records {
		r := &records[i]
		if r.Stride == 0 {
			continue
		}
		for row, step := 0, max(1, (1<<20)/r.Stride); row < r.Rows && ctx.Err() == nil; row += step {
			jobs <- job{r, seed + uint64(i)<<32, row, min(r.Rows, row+step)}
		}
	}
	close(jobs)
	wg.Wait()
	return context.Cause(ctx)
}

// filler makes rows and writes them into the file.
type filler struct {
	f      *os.File
	values [1 << 16]byte     // of an int8 table, for 16 random bits
	parts  map[string][]byte // of some rows, by name
}

func newFiller(f *os.File) *filler {
	g := &filler{f: f}
	for i := range g.values {
		p := (float64(i) + 0.5) / float64(len(g.values))
		v := math.Sqrt2 * math.Erfinv(2*p-1) * sigma
		g.values[i] = byte(int8(math.Round(max(-127, min(127, v)))))
	}
	return g
}

// fill writes rows r0 to r1 of a record.
func (g *filler) fill(r *native.Record, seed uint64, r0, r1 int) error {
	g.parts = map[string][]byte{}
	for row := r0; row < r1; row++ {
		start := random(seed + uint64(row))
		rnd := random(start.next()) // far from all others
		if r.Kind == native.KindTrit {
			g.trits(r, &rnd)
		} else {
			g.table(r, &rnd)
		}
	}
	for name, b := range g.parts {
		off, ok := r.PartOffset(name)
		if !ok {
			return fmt.Errorf("no part %q", name)
		}
		if _, err := g.f.WriteAt(b, off+int64(r0)*int64(len(b)/(r1-r0))); err != nil {
			return err
		}
	}
	return nil
}

func (g *filler) word(part string, v uint32) {
	g.parts[part] = binary.LittleEndian.AppendUint32(g.parts[part], v)
}

// trits makes a row of a ternary matrix: 64 weights at a time, in each of which
// a weight is a bit of three words.
func (g *filler) trits(r *native.Record, rnd *random) {
	bp, bn, br := g.parts[ternary.PartBP], g.parts[ternary.PartBN], g.parts[ternary.PartBR]
	var lo, hi int
	for col := 0; col < 8*r.Stride; col += 64 {
		set := rnd.bits(1 - zeros)
		if left := r.Cols - col; left < 64 {
			set &= 1<<max(0, left) - 1
		}
		sign, high := rnd.next(), rnd.bits(highs)&set
		p, n := set&sign, set&^sign
		lo += bits.OnesCount64(p&^high) - bits.OnesCount64(n&^high)
		hi += bits.OnesCount64(p&high) - bits.OnesCount64(n&high)
		bp = binary.LittleEndian.AppendUint64(bp, p)
		bn = binary.LittleEndian.AppendUint64(bn, n)
		br = binary.LittleEndian.AppendUint64(br, high)
	}
	g.parts[ternary.PartBP], g.parts[ternary.PartBN], g.parts[ternary.PartBR] = bp, bn, br
	small := (0.75 + rnd.unit()/2) / 128
	g.word(ternary.PartSLo, math.Float32bits(small))
	g.word(ternary.PartSHi, math.Float32bits(small*(2+rnd.unit())))
	g.word(ternary.PartRSLo, uint32(lo))
	g.word(ternary.PartRSHi, uint32(hi))
}

// table makes a row of an embedding table.
func (g *filler) table(r *native.Record, rnd *random) {
	q, sum := g.parts[ternary.PartQ], 0
	for col := 0; col < r.Stride; col += 4 {
		w := rnd.next()
		for i := col; i < min(col+4, r.Stride); i++ {
			v := g.values[w&0xffff]
			if w >>= 16; i >= r.Cols {
				v = 0
			}
			sum += int(int8(v))
			q = append(q, v)
		}
	}
	g.parts[ternary.PartQ] = q
	g.word(ternary.PartScale, math.Float32bits((0.75+rnd.unit()/2)/1024))
	g.word(ternary.PartWSum, uint32(sum))
}

// random is a SplitMix64 generator.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	x := uint64(*r)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// bits returns 64 bits, each set with probability p to 16 binary digits: a bit
// is set if a random number of those digits is below p.
func (r *random) bits(p float64) uint64 {
	var w uint64
	for n := int(math.Round(p*(1<<16))) | 1<<16; n > 1; n >>= 1 {
		if n&1 != 0 {
			w |= r.next()
		} else {
			w &= r.next()
		}
	}
	return w
}

// unit returns a number from 0 to below 1.
func (r *random) unit() float32 { return float32(r.next()>>40) / (1 << 24) }
