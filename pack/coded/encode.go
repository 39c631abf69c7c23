package coded

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"math"
)

// EncodeOptions say how to encode. The zero value is ready to use; none of
// them changes what is written.
type EncodeOptions struct {
	Name    string // of the container, for errors
	Threads int    // 0: one a processor
	Memory  int64  // bytes for blocks that are being worked on; 0: 256 MiB
	// Done is called after each block that w has taken. Its CRC is 0.
	Done func(Done)
}

// Encode writes the coded transport of the container in src, the publisher's
// program's bit for bit. Errors about the content are [*pack.Error].
//
// The header, which comes first, has the container's MD5. If w is an
// [io.WriteSeeker], such as a file, it is filled in at the end, and on errors
// it is missing. Otherwise the container is read once more before. Hand over
// something that only looks seekable, such as os.Stdout, as a plain io.Writer.
//
// Parts of the container are read three times, close to each other, and several
// at once. Memory is as for [Decode]; a block that takes more is worked on
// alone.
func Encode(ctx context.Context, src io.ReaderAt, size int64, w io.Writer, o EncodeOptions) error {
	regions, err := walkContainer(o.Name, src, size)
	if err != nil {
		return err
	}
	cuts := cut(regions, size)
	if int64(len(cuts)) > math.MaxUint32 {
		return fmt.Errorf("%q: %d blocks do not fit the format", o.Name, len(cuts))
	}
	e := &encoding{ctx: ctx, o: o, src: src, w: w, md5: md5.New(), coded: HeaderSize}
	h := Header{SourceSize: size, Blocks: uint32(len(cuts))}
	seeker, _ := w.(io.WriteSeeker)
	var start int64
	if seeker != nil {
		start, err = seeker.Seek(0, io.SeekCurrent)
	} else {
		err = copyRange(ctx, e.md5, src, 0, size, make([]byte, 1<<20))
		e.md5.Sum(h.MD5[:0])
		e.md5 = nil
	}
	if err == nil {
		_, err = w.Write(h.bytes())
	}
	if err != nil {
		return err
	}
	if err := run(ctx, o.Threads, o.Memory, func(l *line) error { return e.fill(l, cuts) }, e.serve, e.finish); err != nil {
		return err
	}
	if seeker == nil {
		return nil
	}
	e.md5.Sum(h.MD5[:0])
	if _, err := seeker.Seek(start, io.SeekStart); err != nil {
		return err
	}
	if _, err := w.Write(h.bytes()); err != nil {
		return err
	}
	_, err = seeker.Seek(start+e.coded, io.SeekStart)
	return err
}

// How the publisher's encoder cuts what is no planes (§6).
const (
	cutGap   = 64 << 20
	cutTable = 32 << 20
)

// cut returns the blocks of a container with these regions: Method, Source and
// Size are set. A block can still turn out to be of another method, never of
// another size.
func cut(regions []Region, size int64) []Block {
	var cuts []Block
	pieces := func(from, to, most int64) {
		for ; from < to; from += most {
			cuts = append(cuts, Block{Index: int64(len(cuts)), Method: Byte, Source: from, Size: min(most, to-from)})
		}
	}
	at := int64(0)
	for _, r := range regions {
		pieces(at, r.Offset, cutGap)
		at = r.Offset + r.Size
		if r.Method == T5Q {
			cuts = append(cuts, Block{Index: int64(len(cuts)), Method: T5Q, Source: r.Offset, Size: r.Size})
		} else {
			pieces(r.Offset, at, cutTable)
		}
	}
	pieces(at, size, cutGap)
	return cuts
}

// encoding is one run of Encode.
type encoding struct {
	ctx   context.Context
	o     EncodeOptions
	src   io.ReaderAt
	w     io.Writer
	md5   hash.Hash // nil if the header is complete
	buf   []byte
	coded int64 // bytes written
}

// fill puts a unit for each block in the line.
func (e *encoding) fill(l *line, cuts []Block) error {
	for i := range cuts {
		b := &cuts[i]
		// No payload that is kept is larger than its source, but for a chunk.
		need := int(min(chunksFor(b.Size)+1, int64(l.total)))
		if err := l.take(need); err != nil {
			return err
		}
		if err := l.put(&unit{block: b, last: true, tokens: need, ready: make(chan struct{})}); err != nil {
			return err
		}
	}
	return nil
}

// serve encodes blocks as they come.
func (e *encoding) serve(l *line) {
	for u := l.poll(true); u != nil; u = l.poll(true) {
		u.err = e.encode(l.ctx, u)
		close(u.ready)
	}
}

// encode makes the block of u.
func (e *encoding) encode(ctx context.Context, u *unit) error {
	be := blockEncoders.Get().(*blockEncoder)
	defer blockEncoders.Put(be)
	be.ctx, be.src = ctx, e.src
	b := u.block
	var head []byte
	var ok bool
	var err error
	if b.Method == T5Q {
		if head, ok, err = be.encodePlanes(b.Source, b.Size/3); !ok && err == nil {
			b.Method = Byte // a rule of the planes is broken
		}
	}
	if b.Method == Byte && err == nil {
		if head, ok, err = be.encodeBytes(b.Source, b.Size); !ok {
			b.Method = Raw
		}
	}
	if err != nil {
		return fmt.Errorf("%q: %w", e.o.Name, err)
	}
	if b.Method == Raw {
		b.Payload = b.Size
		head = binary.LittleEndian.AppendUint64([]byte{byte(Raw)}, uint64(b.Source))
		u.pieces = [][]byte{binary.LittleEndian.AppendUint64(head, uint64(b.Size))}
		return nil
	}
	b.Payload = be.length
	c := be.counts
	u.counts = &c
	u.pieces = append(u.pieces, head)
	for _, f := range be.done {
		u.chunks = append(u.chunks, f.c)
		u.pieces = append(u.pieces, f.c[f.pos:chunkBytes])
	}
	return nil
}

// finish writes a block and, while it does, hashes its source.
func (e *encoding) finish(u *unit) error {
	b := u.block
	if e.buf == nil {
		e.buf = make([]byte, 1<<20)
	}
	hashed := make(chan error, 1)
	if e.md5 == nil {
		hashed <- nil
	} else {
		go func() { hashed <- copyRange(e.ctx, e.md5, e.src, b.Source, b.Source+b.Size, e.buf) }()
	}
	err := writeAll(e.w, u.pieces)
	if err == nil && b.Method == Raw {
		err = copyRange(e.ctx, e.w, e.src, b.Source, b.Source+b.Size, make([]byte, min(b.Size, 1<<20)))
	}
	if hashErr := <-hashed; err == nil {
		err = hashErr
	}
	if err != nil {
		return err
	}
	b.Coded = e.coded
	e.coded += b.CodedSize()
	if e.o.Done != nil {
		d := Done{Block: b, Mark: Mark{Number: b.Index, Coded: e.coded, Source: b.Source + b.Size}}
		if u.counts != nil {
			d.Entropy = u.counts.entropy()
		}
		e.o.Done(d)
	}
	return nil
}
