package coded

import (
	"context"
	"fmt"
	"io"
	"math"

	"npack/pack"
)

// Index is what the heads of a transport say, without its payloads.
type Index struct {
	Name   string
	Size   int64 // of the transport
	Header Header
	Blocks []Block

	src io.ReaderAt
}

// ReadIndex reads the heads of all blocks of the transport of size bytes in
// src: some 140 kB of an 8B model's 2.56 GB. It checks what can be checked
// without payloads. src is kept for [Index.Regions].
func ReadIndex(ctx context.Context, name string, src io.ReaderAt, size int64) (*Index, error) {
	h, err := ReadHeader(name, io.NewSectionReader(src, 0, size))
	if err != nil {
		return nil, err
	}
	if h.Blocks > maxIndex {
		return nil, &pack.Error{Kind: pack.ErrUnsupported, File: name, Place: "header", Offset: 32, Found: fmt.Sprintf("%d blocks", h.Blocks),
			Expected: fmt.Sprintf("at most %d to be listed", maxIndex), Hint: "expand the file"}
	}
	x := &Index{Name: name, Size: size, Header: h, src: src}
	s := heads{name: name, h: h, size: size, coded: HeaderSize}
	for s.more() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := s.next(io.NewSectionReader(src, s.coded, size-s.coded))
		if err != nil {
			return nil, err
		}
		s.advance(b)
		x.Blocks = append(x.Blocks, *b)
	}
	return x, s.end(io.NewSectionReader(src, s.coded, size-s.coded))
}

// maxIndex keeps an index of blocks that restore nothing, 17 bytes each, from
// filling the memory. Genuine files have some 15 blocks a layer.
const maxIndex = 1 << 19

// Estimate is about the order-0 entropy in bits of the block's symbols, from
// its table of frequencies. Tables are rounded down to 1/16384 and the most
// frequent symbol gets what is left (§5), so a share is half a step more than
// its frequency says, but for that one. [Done.Entropy] is exact.
func (b *Block) Estimate() float64 {
	used, top := 0, 0
	for s, f := range b.freq {
		if f > 0 {
			used++
		}
		if f > b.freq[top] {
			top = s
		}
	}
	bits := 0.0
	for s, f := range b.freq {
		if f == 0 {
			continue
		}
		share := float64(f)
		if s == top {
			share = max(1, share-float64(used-1)/2)
		} else {
			share += 0.5
		}
		bits -= share / scale * math.Log2(share/scale)
	}
	return max(0, bits) * float64(b.Symbols())
}

// Tensor adds up the blocks of one region of the container.
type Tensor struct {
	Region
	Blocks  int
	Methods [3]int  // blocks of each method
	Coded   int64   // bytes, heads included
	Entropy float64 // bits: the bound of its blocks, see [Tensors]
}

// BitsPerWeight is the coded size for each weight (or value) that the matrix
// has, padding columns not counted.
func (t *Tensor) BitsPerWeight() float64 { return 8 * float64(t.Coded) / float64(t.Rows*t.Cols) }

// Tensors joins regions with the blocks that hold them. entropy holds each
// block's bound in bits; nil takes [Block.Estimate]. The bound of a raw block
// is taken to be its size. Blocks of other encoders may cover several regions or
// parts: they count for the region in which they start.
func (x *Index) Tensors(regions []Region, entropy []float64) []Tensor {
	var all []Tensor
	i := 0
	for _, r := range regions {
		t := Tensor{Region: r}
		for ; i < len(x.Blocks) && x.Blocks[i].Source < r.Offset+r.Size; i++ {
			b := &x.Blocks[i]
			if b.Source < r.Offset {
				continue // a gap
			}
			t.Blocks++
			t.Methods[b.Method]++
			t.Coded += b.CodedSize()
			switch {
			case b.Method == Raw:
				t.Entropy += 8 * float64(b.Size)
			case entropy != nil:
				t.Entropy += entropy[i]
			default:
				t.Entropy += b.Estimate()
			}
		}
		all = append(all, t)
	}
	return all
}

// Regions returns the regions of the container without decoding it: what lies
// between them tells where they are, and only the blocks that hold that are
// decoded. A block that is decoded for this is held whole; one of more than
// 256 MiB, which no encoder that cuts the source makes of a gap, is refused.
func (x *Index) Regions(ctx context.Context) ([]Region, error) {
	return walkContainer(x.Name, x.Source(ctx), x.Header.SourceSize)
}

// Source returns the container inside a transport for reading at any place. Of
// each block that is touched all is decoded; the last stays in memory. It is
// for a few bytes here and there, in blocks of up to 256 MiB, and for one
// goroutine.
func (x *Index) Source(ctx context.Context) io.ReaderAt {
	return &lazySource{x: x, ctx: ctx, block: -1}
}

// lazySource reads the container of a transport, decoding a block when it is
// read.
type lazySource struct {
	x     *Index
	ctx   context.Context
	block int // the last decoded
	data  []byte
}

const maxLazy = 256 << 20

// ReadAt reads from the blocks that hold b, of which the last is kept.
func (s *lazySource) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		i := s.find(off + int64(n))
		if i < 0 {
			return n, io.EOF
		}
		blk := &s.x.Blocks[i]
		if err := s.decode(i); err != nil {
			return n, err
		}
		n += copy(b[n:], s.data[off+int64(n)-blk.Source:])
	}
	return n, nil
}

// find returns the block that holds the source byte at off, or -1.
func (s *lazySource) find(off int64) int {
	lo, hi := 0, len(s.x.Blocks)
	for lo < hi {
		mid := (lo + hi) / 2
		if b := &s.x.Blocks[mid]; b.Source+b.Size <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(s.x.Blocks) || s.x.Blocks[lo].Source > off {
		return -1
	}
	return lo
}

func (s *lazySource) decode(i int) error {
	if i == s.block {
		return nil
	}
	b := s.x.Blocks[i]
	if b.Size > maxLazy {
		return &pack.Error{Kind: pack.ErrUnsupported, File: s.x.Name, Place: fmt.Sprintf("block %d", i), Offset: b.Coded,
			Found: fmt.Sprintf("the records cannot be told without decoding %d bytes", b.Size), Hint: "expand the file"}
	}
	data, err := s.x.decode(s.ctx, &b)
	if err != nil {
		return err
	}
	s.block, s.data = i, data
	return nil
}

// decode returns the source bytes of one block.
func (x *Index) decode(ctx context.Context, b *Block) ([]byte, error) {
	p := &payload{r: io.NewSectionReader(x.src, b.Coded+b.Method.headSize(), b.Payload), left: b.Payload}
	next := func() (*chunk, int, error) {
		c, n, err := p.next()
		if err != nil {
			err = fmt.Errorf("%q: block %d: %w", x.Name, b.Index, noEOF(err))
		}
		return c, n, err
	}
	var out []byte
	emit := func(c *chunk, n int) error {
		out = append(out, c[:n]...)
		chunks.Put(c)
		return nil
	}
	if b.Method != Raw {
		d := blockDecoder{ctx: ctx, name: x.Name, block: b, next: next, emit: emit}
		err := d.run()
		return out, err
	}
	for {
		c, n, err := next()
		if c == nil {
			return out, err
		}
		if err := emit(c, n); err != nil {
			return out, err
		}
	}
}
