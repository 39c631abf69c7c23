package native

import (
	"encoding/binary"
	"fmt"
	"io"

	"npack/pack"
	"npack/ternary"
)

// explainPacked replaces the parser's error for a file that is no broken
// container but a t5q file: the same records with the three planes of a matrix,
// of L bytes each, packed into ceil(8L/3) bytes. It has the same first bytes,
// so only a walk over the records that ends at the end of the file can tell.
func (f *File) explainPacked(src io.ReaderAt, err error) error {
	if !isPacked(&f.model.Config, src, int64(len(f.data))) {
		return err
	}
	return &pack.Error{Kind: pack.ErrUnsupported, File: f.name, Offset: headerSize,
		Found: "this is a container in its packed form (t5q)", Expected: "a native container (TRTC)",
		Hint: fmt.Sprintf("expand it first: npack expand %q", f.name)}
}

func isPacked(c *ternary.Config, src io.ReaderAt, size int64) bool {
	if c.CheckDims() != nil {
		return false
	}
	off, ok := int64(headerSize), true
	word := func(at int64) int64 {
		var b [4]byte
		if _, err := src.ReadAt(b[:], at); err != nil && err != io.EOF || at > size-4 {
			ok = false
			return 0
		}
		return int64(int32(binary.LittleEndian.Uint32(b[:])))
	}
	// Rows agree with the dimensions, at most 2^24, before they are multiplied
	// by a stride below 2^31: nothing overflows.
	table := func() {
		rows, stride := word(off), word(off+12)
		if ok = ok && rows == int64(c.Vocab) && stride >= int64(c.Hidden); ok {
			off += geometry + rows*(stride+8)
		}
	}
	if !c.Tied {
		table()
	}
	shapes := c.LinearShapes()
	for range c.Layers {
		for _, n := range new(ternary.Layer).Norms(c) {
			off += 4 * int64(n.Len)
		}
		for _, s := range shapes {
			rows, stride := word(off), word(off+12)
			if ok = ok && rows == int64(s.Rows) && stride*8 >= int64(s.Cols); !ok {
				return false
			}
			off += geometry + (8*rows*stride+2)/3 + 16*rows
			bias := word(off)
			off += 4
			if bias != 0 {
				off += 4 * rows
			}
			if !ok || off > size {
				return false
			}
		}
	}
	off += 4 * int64(c.Hidden)
	table()
	return ok && off == size
}
