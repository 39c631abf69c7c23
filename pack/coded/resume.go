package coded

import (
	"context"
	"crypto/md5"
	"hash"
	"hash/crc32"
	"io"
)

// Mark is the end of a finished block: what a journal of a long run keeps, a
// line a block.
type Mark struct {
	Number int64  `json:"block"`
	Coded  int64  `json:"coded"`  // where the block ends in the transport
	Source int64  `json:"source"` // and in the container
	CRC    uint32 `json:"crc32c"` // of the block's source bytes
}

// Point is where a run can go on: the end of the last block of an earlier run
// whose bytes are there.
type Point struct {
	Block  int64 // the next one
	Coded  int64 // where its head starts in the transport
	Source int64 // where its bytes start in the container
	md5    hash.Hash
}

// Recover reads what an earlier run of Decode wrote, block by block, as long
// as it is what marks, the journal of that run, say; whatever is wrong with
// either only moves the point to the front. What is right goes through MD5
// and to check, if that is not nil. The journal must be kept with the header
// that it belongs to: Recover cannot tell which transport it is of.
//
// Decode then wants r positioned at Point.Coded and w at Point.Source.
func Recover(ctx context.Context, h Header, part io.ReaderAt, marks []Mark, check io.Writer) (*Point, error) {
	p := &Point{Coded: HeaderSize, md5: md5.New()}
	var w io.Writer = p.md5
	if check != nil {
		w = io.MultiWriter(w, check)
	}
	buf := make([]byte, 1<<20)
	for _, m := range marks {
		if m.Number != p.Block || m.Number >= int64(h.Blocks) || m.Coded <= p.Coded || m.Source < p.Source || m.Source > h.SourceSize {
			break
		}
		// Nothing is handed on before the whole block is known to be right,
		// so each block is read twice, the second time from the cache.
		crc := crc32.New(castagnoli)
		if err := copyRange(ctx, crc, part, p.Source, m.Source, buf); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			break // shorter than the journal says, or unreadable
		}
		if crc.Sum32() != m.CRC {
			break
		}
		if err := copyRange(ctx, w, part, p.Source, m.Source, buf); err != nil {
			return nil, err
		}
		p.Block, p.Coded, p.Source = m.Number+1, m.Coded, m.Source
	}
	return p, nil
}

// copyRange writes the bytes from from to to of r to w.
func copyRange(ctx context.Context, w io.Writer, r io.ReaderAt, from, to int64, buf []byte) error {
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(int64(len(buf)), to-from)]
		if n, err := r.ReadAt(b, from); n < len(b) {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		from += int64(len(b))
	}
	return nil
}
