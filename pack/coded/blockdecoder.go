package coded

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

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

// blockDecoder decodes one byte or t5q block.
type blockDecoder struct {
	ctx   context.Context
	name  string
	block *Block
	next  func() (*chunk, int, error) // as payload.next; it gives the chunk away
	count *counts                     // or nil

	chunk *chunk
	n     int // bytes of the payload in chunk
	pos   int
	base  int64 // bytes of the payload before chunk
	x     states
	table decodeTable
	batch [batchSymbols]byte
}

var blockDecoders = sync.Pool{New: func() any { return new(blockDecoder) }}

// start reads the initial states.
func (d *blockDecoder) start() error {
	d.base, d.pos = 0, 0
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

// symbols decodes the next len(dst) symbols. All calls but the last of a block
// ask for a multiple of four.
func (d *blockDecoder) symbols(dst []byte) error {
	all := dst
	for len(dst) > 0 {
		if err := d.settle(); err != nil {
			return err
		}
		n := 0
		if len(dst) >= 4 {
			n, d.pos = d.table.decode(&d.x, dst, d.chunk[:d.n+window], d.pos)
		} else {
			i := len(all) - len(dst)
			dst[0], d.pos = d.table.decodeOne(&d.x, i, d.chunk[:d.n+window], d.pos)
			n = 1
		}
		dst = dst[n:]
	}
	if d.count != nil {
		d.count.add(all)
	}
	return d.settle()
}

// end checks that the payload is used up and the states are back where every
// encoder starts.
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
	return nil
}

// bytes decodes a byte block and hands each chunk of the source to emit.
func (d *blockDecoder) bytes(emit func(c *chunk, n int) error) error {
	if err := d.start(); err != nil {
		return err
	}
	for left := d.block.Size; left > 0; {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		c, n := newChunk(), int(min(left, chunkBytes))
		for at := 0; at < n; at += batchSymbols {
			if err := d.symbols(c[at:min(n, at+batchSymbols)]); err != nil {
				return err
			}
		}
		left -= int64(n)
		if err := emit(c, n); err != nil {
			return err
		}
	}
	return d.end()
}

// planes decodes a t5q block. It gives the chunks of bp, bn and br, each plane
// starting in a chunk of its own.
func (d *blockDecoder) planes() (planes [3][]*chunk, err error) {
	if err := d.start(); err != nil {
		return planes, err
	}
	plane := d.block.Size / 3
	for at, left := int64(0), d.block.Symbols(); left > 0; at += batchBytes {
		off := int(at % chunkBytes)
		if off == 0 {
			if err := d.ctx.Err(); err != nil {
				return planes, err
			}
			for i := range planes {
				planes[i] = append(planes[i], newChunk())
			}
		}
		n := int(min(left, batchSymbols))
		if err := d.symbols(d.batch[:n]); err != nil {
			return planes, err
		}
		left -= int64(n)
		groups := (n + groupSymbols - 1) / groupSymbols
		clear(d.batch[n : groups*groupSymbols])
		var out [3][]byte
		for i := range out {
			out[i] = planes[i][len(planes[i])-1][off:]
		}
		toPlanes(out[0], out[1], out[2], d.batch[:], groups)
		if left == 0 {
			// The last symbol may stand for weights past the end.
			for i := range out {
				for _, b := range out[i][plane-at : groups*groupBytes] {
					if b != 0 {
						return planes, d.fail("the last symbol has weights past the end of the planes", "zeros there")
					}
				}
			}
		}
	}
	return planes, d.end()
}
