package coded

import (
	"bufio"
	"context"
	"crypto/md5"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"npack/pack"
)

// DecodeOptions say how to decode. The zero value is ready to use.
type DecodeOptions struct {
	Name    string // of the transport, for errors
	Size    int64  // its length in bytes where known: heads are held to it; 0 if not
	Threads int    // 0: one a processor
	Memory  int64  // bytes for blocks that are being worked on; 0: 256 MiB

	// From continues an earlier run: see [Recover].
	From *Point
	// Check is given all source bytes in order, those before From aside,
	// while they are written. Its error ends the run.
	Check io.Writer
	// Done is called after each block whose bytes w and Check have taken.
	Done func(Done)
	// Count asks for exact statistics in Done, at some 8 % of the speed.
	Count bool
}

// Done tells of one finished block.
type Done struct {
	*Block
	Mark
	// Entropy is the order-0 entropy of the block's symbols in bits, if
	// DecodeOptions.Count was set; always when encoding. Ideal is what a
	// perfect coder would need with the block's table of frequencies; only
	// when decoding.
	Entropy, Ideal float64
}

// Decode reads the blocks of a transport from r, which is positioned after the
// header h, and writes the container to w. It holds every rule of §7: an error
// about the content is a [*pack.Error] with the block and the offset in r's
// file. The result is whole if and only if the error is nil; w has taken
// unverified bytes otherwise.
//
// w may be nil to verify only. Memory does not depend on sizes in the file, but
// for a t5q block: it is held whole, and one of more than 1 GiB is refused as
// unsupported.
//
// If ctx ends, Decode returns its error at once, even if a Read of r still
// blocks: r must not be used before that Read ends.
func Decode(ctx context.Context, h Header, r io.Reader, w io.Writer, o DecodeOptions) error {
	d := &decoding{ctx: ctx, o: o, w: w, md5: md5.New(), r: bufio.NewReaderSize(r, 64<<10),
		heads: heads{name: o.Name, h: h, size: -1, coded: HeaderSize}}
	if o.Size > 0 {
		d.heads.size = o.Size
	}
	if p := o.From; p != nil {
		d.heads.index, d.heads.coded, d.heads.source = p.Block, p.Coded, p.Source
		d.md5 = p.md5
	}
	if err := run(ctx, o.Threads, o.Memory, d.fill, d.serve, d.finish); err != nil {
		return err
	}
	if got := d.md5.Sum(nil); [16]byte(got) != h.MD5 {
		return &pack.Error{Kind: pack.ErrCorrupt, File: o.Name, Place: "end", Offset: 16,
			Found: fmt.Sprintf("the decoded container's md5 is %x", got), Expected: fmt.Sprintf("%x, from the header", h.MD5), Hint: hintDamaged}
	}
	return nil
}

// maxPlanes is the most that the planes of one block may take: those of a
// matrix of 53248 x 16384, the largest of a 405B model, take 327 MB.
const maxPlanes = 1 << 30

// decoding is one run of Decode.
type decoding struct {
	ctx   context.Context
	o     DecodeOptions
	w     io.Writer
	md5   hash.Hash
	r     io.Reader
	heads heads
	crc   uint32 // of the current block
}

// fill reads heads and payloads and puts the blocks in the line.
func (d *decoding) fill(l *line) error {
	for d.heads.more() {
		b, err := d.heads.next(d.r)
		if err == nil {
			switch need := chunksFor(b.Payload) + d.output(b); {
			case b.Method == Raw:
				err = d.raw(l, b)
			case need <= int64(l.total):
				err = d.whole(l, b, need)
			case b.Method == Byte:
				err = d.longBytes(l, b)
			default:
				err = d.longPlanes(l, b)
			}
		}
		if err != nil {
			return err
		}
		d.heads.advance(b)
	}
	return d.heads.end(d.r)
}

// output is the number of chunks that a block's source bytes take.
func (d *decoding) output(b *Block) int64 {
	if b.Method == T5Q {
		return 3 * chunksFor(b.Size/3)
	}
	return chunksFor(b.Size)
}

// raw passes a raw block on, in parts of a chunk.
func (d *decoding) raw(l *line, b *Block) error {
	for at := int64(0); ; {
		n := min(b.Size-at, chunkBytes)
		u := &unit{block: b, last: at+n == b.Size}
		var buf []byte
		if n <= 4096 {
			buf = make([]byte, n) // most are: the gaps between matrices
		} else {
			if err := l.take(1); err != nil {
				return err
			}
			c := newChunk()
			u.tokens, u.chunks, buf = 1, []*chunk{c}, c[:n]
		}
		if k, err := io.ReadFull(d.r, buf); err != nil {
			return d.payloadFailed(b, err, at+int64(k))
		}
		u.pieces = [][]byte{buf}
		if err := l.put(u); err != nil {
			return err
		}
		if at += n; u.last {
			return nil
		}
	}
}

// payloadFailed words an error of reading the payload, of which got bytes came.
func (d *decoding) payloadFailed(b *Block, err error, got int64) error {
	return d.heads.readFailed(err, b.Method.headSize(), "payload", b.Payload, got)
}

// counts returns what shall count a block's symbols.
func (d *decoding) counts() *counts {
	if !d.o.Count {
		return nil
	}
	return new(counts)
}

// whole reads the payload of a block and leaves the rest to a worker.
func (d *decoding) whole(l *line, b *Block, need int64) error {
	if err := l.take(int(need)); err != nil {
		return err
	}
	type part struct {
		c *chunk
		n int
	}
	var parts []part
	p := &payload{r: d.r, left: b.Payload}
	for {
		c, n, err := p.next()
		if err != nil {
			return d.payloadFailed(b, err, b.Payload-p.left)
		}
		if c == nil {
			break
		}
		parts = append(parts, part{c, n})
	}
	next := func() (*chunk, int, error) {
		if len(parts) == 0 {
			return nil, 0, nil
		}
		p := parts[0]
		parts = parts[1:]
		return p.c, p.n, nil
	}
	return l.put(&unit{block: b, last: true, tokens: int(need), counts: d.counts(), payload: next, ready: make(chan struct{})})
}

// job is a block that a worker is decoding.
type job struct {
	blockDecoder
	unit *unit // nil: none
}

// serve decodes whole blocks as they come, two at a time.
func (d *decoding) serve(l *line) {
	jobs := new([2]job)
	a, b := &jobs[0], &jobs[1]
	for {
		if a.unit == nil {
			d.begin(a, l, b.unit == nil)
		}
		if b.unit == nil {
			d.begin(b, l, a.unit == nil)
		}
		if a.unit == nil && b.unit == nil {
			return
		}
		if n := min(a.room(), b.room()); n >= minTogether {
			together(&a.blockDecoder, &b.blockDecoder, n)
			a.step(nil)
			b.step(nil)
			continue
		}
		for i := range jobs {
			if j := &jobs[i]; j.unit != nil && (j.room() < minTogether || jobs[1-i].unit == nil) {
				j.step(j.some())
			}
		}
	}
}

// begin gives j the next unit, if there is one: now, or at all if it shall wait.
func (d *decoding) begin(j *job, l *line, wait bool) {
	u := l.poll(wait)
	if u == nil {
		return
	}
	j.unit = u
	j.ctx, j.name, j.block, j.next, j.count = l.ctx, d.o.Name, u.block, u.payload, u.counts
	j.emit = func(c *chunk, n int) error {
		u.add(c, n)
		return nil
	}
	j.step(j.start())
}

// step sees to a batch that is decoded, and to the end of the block.
func (j *job) step(err error) {
	more := true
	if err == nil && len(j.dst) == 0 {
		more, err = j.more()
	}
	if more && err == nil {
		return
	}
	j.unit.err = err
	close(j.unit.ready)
	j.unit, j.dst = nil, nil
}

// long decodes a block that is not held whole: its payload is read as it goes.
func (d *decoding) long(l *line, b *Block, c *counts, emit func(c *chunk, n int) error) error {
	p := &payload{r: d.r, left: b.Payload}
	next := func() (*chunk, int, error) {
		c, n, err := p.next()
		if err != nil {
			err = d.payloadFailed(b, err, b.Payload-p.left)
		}
		return c, n, err
	}
	bd := blockDecoder{ctx: l.ctx, name: d.o.Name, block: b, next: next, emit: emit, count: c}
	return bd.run()
}

// longBytes decodes a byte block that is too large to be held, in parts of a
// chunk.
func (d *decoding) longBytes(l *line, b *Block) error {
	count, left := d.counts(), b.Size
	// The last part waits for the checks at the end of the block.
	var last *unit
	err := d.long(l, b, count, func(c *chunk, n int) error {
		if last != nil {
			if err := l.put(last); err != nil {
				return err
			}
		}
		if err := l.take(1); err != nil {
			return err
		}
		left -= int64(n)
		last = &unit{block: b, last: left == 0, tokens: 1, counts: count}
		last.add(c, n)
		return nil
	})
	if err != nil {
		return err
	}
	return l.put(last)
}

// longPlanes decodes a ternary block with more planes than fit the memory of
// the run, when nothing else is in it.
func (d *decoding) longPlanes(l *line, b *Block) error {
	if b.Size > maxPlanes {
		e := d.heads.fail(pack.ErrUnsupported, 9, fmt.Sprintf("three planes of %d bytes in one block", b.Size/3), fmt.Sprintf("at most %d together", maxPlanes))
		e.Hint = "this program holds the planes of one matrix in memory, and these are larger than those of any known model"
		return e
	}
	if err := l.take(l.total); err != nil {
		return err
	}
	u := &unit{block: b, last: true, tokens: l.total, counts: d.counts()}
	err := d.long(l, b, u.counts, func(c *chunk, n int) error {
		u.add(c, n)
		return nil
	})
	if err != nil {
		return err
	}
	return l.put(u)
}

// finish hands the bytes of a unit to the writer, to MD5 and to the check, each
// on its own: MD5 is the slowest of the three and sets the pace.
func (d *decoding) finish(u *unit) error {
	var wg sync.WaitGroup
	var checkErr error
	wg.Go(func() {
		for _, p := range u.pieces {
			d.md5.Write(p)
		}
	})
	if d.o.Check != nil {
		wg.Go(func() { checkErr = writeAll(d.o.Check, u.pieces) })
	}
	var err error
	if d.w != nil {
		err = writeAll(d.w, u.pieces)
	}
	if d.o.Done != nil {
		for _, p := range u.pieces {
			d.crc = crc32.Update(d.crc, castagnoli, p)
		}
	}
	wg.Wait()
	if err == nil {
		err = checkErr
	}
	if err != nil || !u.last {
		return err
	}
	if d.o.Done != nil {
		b := u.block
		done := Done{Block: b, Mark: Mark{b.Index, b.Coded + b.CodedSize(), b.Source + b.Size, d.crc}}
		if u.counts != nil {
			done.Entropy, done.Ideal = u.counts.entropy(), u.counts.ideal(b.freq)
		}
		d.o.Done(done)
	}
	d.crc = 0
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func writeAll(w io.Writer, pieces [][]byte) error {
	for _, p := range pieces {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}
