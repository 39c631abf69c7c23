package coded

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"npack/internal/membw"
)

// sample returns three planes of n bytes each, one after the other, with the
// published statistics of an 8B model: 62.63 % zeros, a third of the others
// high.
func sample(n int) []byte {
	rng := rand.New(rand.NewPCG(4, 1))
	b := make([]byte, 3*n)
	for i := range 8 * n {
		u := rng.Uint32()
		if float64(u) < 0.6263*(1<<32) {
			continue
		}
		bit := byte(1) << (i % 8)
		b[i/8+int(u&1)*n] |= bit
		if u>>1&0xffff < 0x5555 {
			b[i/8+2*n] |= bit
		}
	}
	return b
}

// sampleTable returns n int8 values as they are in embedding tables: normal,
// sigma 32.
func sampleTable(n int) []byte {
	rng := rand.New(rand.NewPCG(4, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(int8(max(-127, min(127, rng.NormFloat64()*32))))
	}
	return b
}

const (
	benchPlane = 4096 * 4096 / 8 // bytes: a matrix of 4096 x 4096
	benchTable = 8 << 20
)

var samples = sync.OnceValue(func() [2][]byte { return [2][]byte{sample(benchPlane), sampleTable(benchTable)} })

var memory = sync.OnceValue(func() membw.Result { return membw.Read(1, 256<<20, time.Second/4) })

// rate reports n things in millions a second of processor time, and next to it
// what one thread can read from memory.
func rate(b *testing.B, start time.Duration, n int, unit string) {
	b.ReportMetric(float64(n)*float64(b.N)/(cpuTime()-start).Seconds()/1e6, "M"+unit+"/cpu-s")
	b.ReportMetric(memory().BytesPerSecond/1e9, "mem-GB/s")
	b.ReportMetric(0, "ns/op")
}

// block encodes source bytes as one block and returns it, ready to decode.
func block(t testing.TB, m Method, source []byte) (*Block, []byte) {
	e := blockEncoder{ctx: context.Background(), src: bytes.NewReader(source)}
	var head []byte
	var ok bool
	var err error
	if m == T5Q {
		head, ok, err = e.encodePlanes(0, int64(len(source)/3))
	} else {
		head, ok, err = e.encodeBytes(0, int64(len(source)))
	}
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	coded := bytes.Clone(head)
	for _, f := range e.done {
		coded = append(coded, f.c[f.pos:chunkBytes]...)
	}
	s := heads{h: Header{SourceSize: int64(len(source)), Blocks: 1}, size: int64(len(coded))}
	r := bytes.NewReader(coded)
	b, err := s.next(r)
	if err != nil {
		t.Fatal(err)
	}
	return b, coded[len(head):]
}

// BenchmarkDecodeBlock is one core's whole work on blocks, payload to planes or
// bytes: on two, as is usual, and on one that has no other beside it.
func BenchmarkDecodeBlock(b *testing.B) {
	for i, m := range []Method{T5Q, Byte} {
		source := samples()[i]
		blk, coded := block(b, m, source)
		for _, n := range []int{2, 1} {
			b.Run(fmt.Sprintf("%v/%d", m, n), func(b *testing.B) {
				var d decoding
				decode := func() []*unit {
					l := &line{ctx: context.Background(), work: make(chan *unit, n)}
					units := make([]*unit, n)
					for i := range units {
						p := &payload{r: bytes.NewReader(coded), left: blk.Payload}
						units[i] = &unit{block: blk, payload: p.next, ready: make(chan struct{})}
						l.work <- units[i]
					}
					close(l.work)
					d.serve(l)
					for _, u := range units {
						for _, c := range u.chunks {
							chunks.Put(c)
						}
					}
					return units
				}
				for _, u := range decode() {
					if u.err != nil || !bytes.Equal(bytes.Join(u.pieces, nil), source) {
						b.Fatal("wrong bytes", u.err)
					}
				}
				b.SetBytes(int64(n * len(source)))
				b.ReportAllocs()
				start := cpuTime()
				for b.Loop() {
					decode()
				}
				if m == T5Q {
					rate(b, start, n*8*benchPlane, "weights")
				} else {
					rate(b, start, n*len(source), "B")
				}
			})
		}
	}
}

// BenchmarkEncodeBlock is one core's whole work on a block: planes or bytes to
// payload, counting included.
func BenchmarkEncodeBlock(b *testing.B) {
	for i, m := range []Method{T5Q, Byte} {
		b.Run(m.String(), func(b *testing.B) {
			source := samples()[i]
			e := blockEncoder{ctx: context.Background(), src: bytes.NewReader(source)}
			encode := func() {
				var err error
				if m == T5Q {
					_, _, err = e.encodePlanes(0, int64(len(source)/3))
				} else {
					_, _, err = e.encodeBytes(0, int64(len(source)))
				}
				if err != nil {
					b.Fatal(err)
				}
				e.drop()
			}
			b.SetBytes(int64(len(source)))
			b.ReportAllocs()
			encode()
			start := cpuTime()
			for b.Loop() {
				encode()
			}
			if m == T5Q {
				rate(b, start, 8*benchPlane, "weights")
			} else {
				rate(b, start, len(source), "B")
			}
		})
	}
}

// BenchmarkSteps are the parts of a block's work, on a batch in the cache.
func BenchmarkSteps(b *testing.B) {
	source := samples()[0]
	const groups = batchSymbols / groupSymbols
	bp, bn, br := source, source[benchPlane:], source[2*benchPlane:]
	symbols := make([]byte, batchSymbols)
	toSymbols(symbols, bp, bn, br, groups)
	var c counts
	c.add(symbols)
	freq := c.frequencies(125)
	var enc encodeTable
	var dec decodeTable
	enc.set(freq)
	dec.set(freq)
	out := make([]byte, 2*batchSymbols+16)
	x := states{stateMin, stateMin}
	_, pos := enc.encode(&x, symbols, out[:len(out)-window], len(out)-window)
	planes := make([]byte, 3*(batchBytes+window))
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"toSymbols", func() { toSymbols(symbols, bp, bn, br, groups) }},
		{"count", func() { c.add(symbols) }},
		{"encode", func() {
			y := states{stateMin, stateMin}
			enc.encode(&y, symbols, out[:len(out)-window], len(out)-window)
		}},
		{"decode", func() { y := x; dec.decode(&y, symbols, out, pos) }},
		{"toPlanes", func() {
			toPlanes(planes, planes[batchBytes+window:], planes[2*(batchBytes+window):], symbols, groups)
		}},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.SetBytes(3 * batchBytes)
			start := cpuTime()
			for b.Loop() {
				step.do()
			}
			rate(b, start, 3*batchSymbols, "weights")
		})
	}
}

// BenchmarkThreads decodes and encodes a model's worth of blocks with more and
// more threads. md5 is what it cannot be faster than.
func BenchmarkThreads(b *testing.B) {
	source := model(8)
	var coded bytes.Buffer
	if err := Encode(context.Background(), bytes.NewReader(source), int64(len(source)), &coded, EncodeOptions{}); err != nil {
		b.Fatal(err)
	}
	for threads := 1; threads <= runtime.GOMAXPROCS(0); threads *= 2 {
		b.Run(fmt.Sprintf("decode/%d", threads), func(b *testing.B) {
			b.SetBytes(int64(len(source)))
			for b.Loop() {
				r := bytes.NewReader(coded.Bytes())
				h, err := ReadHeader("", r)
				if err != nil {
					b.Fatal(err)
				}
				if err := Decode(context.Background(), h, r, io.Discard, DecodeOptions{Threads: threads}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(memory().BytesPerSecond/1e9, "mem-GB/s")
		})
		b.Run(fmt.Sprintf("encode/%d", threads), func(b *testing.B) {
			b.SetBytes(int64(len(source)))
			for b.Loop() {
				if err := Encode(context.Background(), bytes.NewReader(source), int64(len(source)), io.Discard, EncodeOptions{Threads: threads}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(memory().BytesPerSecond/1e9, "mem-GB/s")
		})
	}
}
