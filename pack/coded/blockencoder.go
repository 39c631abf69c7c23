package coded

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
)

// blockEncoder encodes one block. It reads the source twice, first to count and then, backwards,
// to encode: converting planes again costs less than keeping symbols.
type blockEncoder struct {
	ctx context.Context
	src io.ReaderAt

	counts counts
	table  encodeTable
	batch  [batchSymbols]byte
	in     [3]chunk // what was read of the source

	x      states
	out    *chunk // being filled, from its end
	pos    int
	done   []filled // full chunks, the last of the payload first
	length int64    // of what is in done
}

type filled struct {
	c   *chunk
	pos int // where its bytes start; they end at chunkBytes
}

var blockEncoders = sync.Pool{New: func() any { return new(blockEncoder) }}

// read fills in[i] with n bytes at off.
func (e *blockEncoder) read(i, n int, off int64) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	if k, err := e.src.ReadAt(e.in[i][:n], off); k < n {
		return fmt.Errorf("byte %d: %w", off+int64(k), noEOF(err))
	}
	return nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// encodeBytes encodes n source bytes at off as a byte block. ok is false, and
// nothing is given, if that would not be smaller than they are.
func (e *blockEncoder) encodeBytes(off, n int64) (head []byte, ok bool, err error) {
	e.counts = counts{}
	for at := int64(0); at < n; at += chunkBytes {
		k := int(min(n-at, chunkBytes))
		if err := e.read(0, k, off+at); err != nil {
			return nil, false, err
		}
		e.counts.add(e.in[0][:k])
	}
	freq := e.counts.frequencies(256)
	e.start(freq)
	for end := n; end > 0; {
		at := (end - 1) / chunkBytes * chunkBytes // chunks start at even symbols
		k := int(end - at)
		if err := e.read(0, k, off+at); err != nil {
			return nil, false, err
		}
		e.push(e.in[0][:k])
		if e.size() >= n {
			break
		}
		end = at
	}
	e.finish()
	if Byte.headSize()+e.length >= n {
		e.drop()
		return nil, false, nil
	}
	return e.head(Byte, off, n, freq), true, nil
}

// encodePlanes encodes the three planes of n bytes each at off as a t5q block.
// ok is false, and nothing is given, if a weight has no state.
func (e *blockEncoder) encodePlanes(off, n int64) (head []byte, ok bool, err error) {
	e.counts = counts{}
	for at := int64(0); at < n; at += chunkBytes {
		k, err := e.readPlanes(off, n, at)
		if err != nil {
			return nil, false, err
		}
		for b := 0; b < k; b += batchBytes {
			symbols, ok := e.convert(b, k)
			if !ok {
				return nil, false, nil
			}
			e.counts.add(symbols)
		}
	}
	freq := e.counts.frequencies(125)
	e.start(freq)
	for at := (n - 1) / chunkBytes * chunkBytes; at >= 0 && n > 0; at -= chunkBytes {
		k, err := e.readPlanes(off, n, at)
		if err != nil {
			return nil, false, err
		}
		for b := (k - 1) / batchBytes * batchBytes; b >= 0; b -= batchBytes {
			symbols, ok := e.convert(b, k)
			if !ok {
				return nil, false, fmt.Errorf("byte %d: the file changed while it was read", off+at)
			}
			e.push(symbols)
		}
	}
	e.finish()
	return e.head(T5Q, off, n, freq), true, nil
}

// readPlanes reads the chunk at at of each plane of n bytes and returns its
// length.
func (e *blockEncoder) readPlanes(off, n, at int64) (int, error) {
	k := int(min(n-at, chunkBytes))
	for i := range e.in {
		if err := e.read(i, k, off+int64(i)*n+at); err != nil {
			return 0, err
		}
		clear(e.in[i][k : k+window])
	}
	return k, nil
}

// convert returns the symbols of the batch at b of planes of k bytes in e.in.
// The bytes after them are 0.
func (e *blockEncoder) convert(b, k int) (symbols []byte, ok bool) {
	n := min(k-b, batchBytes)
	ok = toSymbols(e.batch[:], e.in[0][b:], e.in[1][b:], e.in[2][b:], (n+groupBytes-1)/groupBytes)
	return e.batch[:symbolsOf(int64(n))], ok
}

func (e *blockEncoder) start(freq []uint16) {
	e.table.set(freq)
	e.x = states{stateMin, stateMin}
	e.done, e.length = e.done[:0], 0
	e.out, e.pos = newChunk(), chunkBytes
}

// push encodes symbols, of which the first is of state 0, before those that
// were pushed already.
func (e *blockEncoder) push(symbols []byte) {
	for left := len(symbols); left > 0; {
		left, e.pos = e.table.encode(&e.x, symbols[:left], e.out[:chunkBytes], e.pos)
		if left > 0 {
			e.turn()
		}
	}
}

// turn goes on in a new chunk.
func (e *blockEncoder) turn() {
	e.done = append(e.done, filled{e.out, e.pos})
	e.length += int64(chunkBytes - e.pos)
	e.out, e.pos = newChunk(), chunkBytes
}

func (e *blockEncoder) size() int64 { return e.length + int64(chunkBytes-e.pos) }

// finish puts the states in front.
func (e *blockEncoder) finish() {
	if e.pos < 8 {
		e.turn()
	}
	e.pos -= 8
	binary.LittleEndian.PutUint32(e.out[e.pos:], e.x[0])
	binary.LittleEndian.PutUint32(e.out[e.pos+4:], e.x[1])
	e.done = append(e.done, filled{e.out, e.pos})
	e.length += int64(chunkBytes - e.pos)
	slices.Reverse(e.done)
}

// drop gives up the payload.
func (e *blockEncoder) drop() {
	for _, f := range e.done {
		chunks.Put(f.c)
	}
	e.done = e.done[:0]
}

// head returns the block's head (§3).
func (e *blockEncoder) head(m Method, off, n int64, freq []uint16) []byte {
	b := make([]byte, 0, m.headSize())
	b = append(b, byte(m))
	b = binary.LittleEndian.AppendUint64(b, uint64(off))
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.length))
	for _, f := range freq {
		b = binary.LittleEndian.AppendUint16(b, f)
	}
	return b
}
