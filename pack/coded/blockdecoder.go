package coded

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"npack/pack"
)

// payload gives the bytes of one block's payload in pieces of a chunk.
type payload struct {
	r     io.Reader
	left  int64 // bytes not yet read
	ahead *chunk
	n     int // bytes in ahead
}

// next returns the next piece in its chunk, nil after the last. The window
// bytes that follow the piece are the start of the one after it, or zeros.
func (p *payload) next() (c *chunk, n int, err error) {
	if p.ahead == nil {
		if err := p.read(); err != nil || p.ahead == nil {
			return nil, 0, err
		}
	}
	c, n = p.ahead, p.n
	if err := p.read(); err != nil {
		return nil, 0, err
	}
	if p.ahead != nil {
		copy(c[n:n+window], p.ahead[:window])
	}
	return c, n, nil
}

func (p *payload) read() error {
	if p.left == 0 {
		p.ahead = nil
		return nil
	}
	p.ahead, p.n = newChunk(), int(min(p.left, chunkBytes))
	n, err := io.ReadFull(p.r, p.ahead[:p.n])
	p.left -= int64(n)
	clear(p.ahead[p.n : p.n+window])
	return err
}

// blockDecoder decodes one byte or t5q block, a batch of symbols at a time:
//
//	start, more, then until more reports false: some, until dst is empty, more
//
// Whoever has two blocks decodes them with together where it says some.
type blockDecoder struct {
	ctx   context.Context
	name  string
	block *Block
	next  func() (*chunk, int, error) // as payload.next; it gives the chunk away
	emit  func(c *chunk, n int) error // takes the source in order, n bytes in c; those of planes at the end
	count *counts                     // or nil

	chunk *chunk
	n     int // bytes of the payload in chunk
	pos   int
	base  int64 // bytes of the payload before chunk
	x     states
	table decodeTable

	left    int64              // symbols after batch
	batch   []byte             // the symbols at hand
	dst     []byte             // those of batch that are still to be decoded
	symbols [batchSymbols]byte // batch, if the block is t5q
	out     [3]*chunk          // what is being filled: bytes, or a part of each plane
	filled  int                // bytes of each
	planes  [3][]*chunk        // of a t5q block, with out
}

// start reads the initial states.
func (d *blockDecoder) start() error {
	d.base, d.pos, d.filled = 0, 0, 0
	d.left, d.batch, d.dst, d.planes = d.block.Symbols(), nil, nil, [3][]*chunk{}
	var err error
	if d.chunk, d.n, err = d.next(); err != nil {
		return err
	}
	for i := range d.x {
		d.x[i] = binary.LittleEndian.Uint32(d.chunk[4*i:])
		if d.x[i] < stateMin || d.x[i] >= 1<<31 {
			d.pos = 4 * i
			return d.fail(fmt.Sprintf("state %d starts at %#x", i, d.x[i]), "2^23 to 2^31 - 1")
		}
	}
	d.pos = 8
	d.table.set(d.block.freq)
	return nil
}

func (d *blockDecoder) fail(found, expected string) error {
	b := d.block
	return &pack.Error{Kind: pack.ErrCorrupt, File: d.name,
		Place:  fmt.Sprintf("block %d (%s, source bytes %d to %d)", b.Index, b.Method, b.Source, b.Source+b.Size),
		Offset: b.Coded + b.Method.headSize() + d.base + int64(d.pos), Found: found, Expected: expected, Hint: hintDamaged}
}

// settle moves to the chunk in which pos lies and refuses a pos past the end.
func (d *blockDecoder) settle() error {
	for d.pos >= d.n {
		c, n, err := d.next()
		if err != nil {
			return err
		}
		if c == nil {
			if d.pos > d.n {
				d.pos = d.n
				return d.fail("the payload ends before the last symbol", fmt.Sprintf("%d symbols in %d bytes", d.block.Symbols(), d.block.Payload))
			}
			return nil
		}
		d.base += int64(d.n)
		d.pos -= d.n
		chunks.Put(d.chunk)
		d.chunk, d.n = c, n
	}
	return nil
}

// some decodes symbols of dst, which is not empty, as many as the payload's
// chunk holds.
func (d *blockDecoder) some() error {
	if err := d.settle(); err != nil {
		return err
	}
	n, src := 1, d.chunk[:d.n+window]
	if len(d.dst) >= 4 {
		n, d.pos = d.table.decode(&d.x, d.dst, src, d.pos)
	} else {
		i := len(d.batch) - len(d.dst) // batches start at even symbols
		d.dst[0], d.pos = d.table.decodeOne(&d.x, i, src, d.pos)
	}
	d.dst = d.dst[n:]
	return nil
}

// more puts the batch, which is decoded, where it belongs and sets dst to the
// next. It reports false if that was the last one: the block is done then.
func (d *blockDecoder) more() (bool, error) {
	if len(d.batch) > 0 {
		if err := d.took(); err != nil {
			return false, err
		}
	}
	if d.left == 0 {
		return false, d.end()
	}
	if d.filled == 0 {
		if err := d.ctx.Err(); err != nil {
			return false, err
		}
		d.out[0] = newChunk()
		if d.block.Method == T5Q {
			d.out[1], d.out[2] = newChunk(), newChunk()
			for i, c := range d.out {
				d.planes[i] = append(d.planes[i], c)
			}
		}
	}
	n := int(min(d.left, batchSymbols))
	d.batch = d.symbols[:n]
	if d.block.Method == Byte {
		d.batch = d.out[0][d.filled : d.filled+n]
	}
	d.left -= int64(n)
	d.dst = d.batch
	return true, nil
}

// took counts and converts the batch and emits a byte block's full chunk.
func (d *blockDecoder) took() error {
	if err := d.settle(); err != nil {
		return err
	}
	n := len(d.batch)
	if d.count != nil {
		d.count.add(d.batch)
	}
	if d.block.Method == T5Q {
		groups := (n + groupSymbols - 1) / groupSymbols
		clear(d.symbols[n : groups*groupSymbols])
		toPlanes(d.out[0][d.filled:], d.out[1][d.filled:], d.out[2][d.filled:], d.symbols[:], groups)
		n = groups * groupBytes
	}
	d.filled += n
	if d.filled < chunkBytes && d.left > 0 {
		return nil
	}
	n, d.filled = d.filled, 0
	if d.block.Method == Byte {
		return d.emit(d.out[0], n)
	}
	if d.left == 0 {
		// The last symbol may stand for weights past the end.
		plane := int((d.block.Size/3-1)%chunkBytes) + 1
		for _, c := range d.out {
			for _, b := range c[plane:n] {
				if b != 0 {
					return d.fail("the last symbol has weights past the end of the planes", "zeros there")
				}
			}
		}
	}
	return nil
}

// end checks that the payload is used up and the states are back where every
// encoder starts, and emits planes.
func (d *blockDecoder) end() error {
	if left := d.block.Payload - d.base - int64(d.pos); left != 0 {
		return d.fail(fmt.Sprintf("%d bytes of the payload are left over", left), fmt.Sprintf("%d symbols to use it up", d.block.Symbols()))
	}
	for i, x := range d.x {
		if x != stateMin {
			return d.fail(fmt.Sprintf("state %d ends at %#x", i, x), "2^23")
		}
	}
	chunks.Put(d.chunk)
	for _, plane := range d.planes {
		left := d.block.Size / 3
		for _, c := range plane {
			n := min(left, chunkBytes)
			if err := d.emit(c, int(n)); err != nil {
				return err
			}
			left -= n
		}
	}
	return nil
}

// run decodes all of the block.
func (d *blockDecoder) run() error {
	if err := d.start(); err != nil {
		return err
	}
	for {
		if more, err := d.more(); err != nil || !more {
			return err
		}
		for len(d.dst) > 0 {
			if err := d.some(); err != nil {
				return err
			}
		}
	}
}
