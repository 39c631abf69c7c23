package coded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"npack/pack"
)

// IsPacked reports whether src holds a container in its packed form. The first
// bytes are those of a container: only a walk over the records that ends at
// the end of the file tells. A file that both walks fit is a container.
func IsPacked(src io.ReaderAt, size int64) bool {
	if _, err := walkContainer("", src, size); err == nil {
		return false
	}
	w := walker{src: src, size: size, packed: true}
	return w.walk() == nil
}

// Pack writes the packed form (§8) of the container in src to w. name is used
// in errors. A container with a weight that has no state is refused, naming
// the first one; it cannot be packed.
func Pack(ctx context.Context, name string, src io.ReaderAt, size int64, w io.Writer) error {
	regions, err := walkContainer(name, src, size)
	if err != nil {
		return err
	}
	c := converter{ctx: ctx, src: src, w: w, buf: make([]byte, 1<<20)}
	for i := range regions {
		r := &regions[i]
		if r.Method != T5Q {
			continue
		}
		if err := c.copyTo(r.Offset); err != nil {
			return err
		}
		if err := c.pack(name, r); err != nil {
			return err
		}
	}
	return c.copyTo(size)
}

// UnpackedSize returns the length of the container whose packed form src holds.
func UnpackedSize(name string, src io.ReaderAt, size int64) (int64, error) {
	w, err := walkPacked(name, src, size)
	if err != nil {
		return 0, err
	}
	for i := range w.regions {
		if r := &w.regions[i]; r.Method == T5Q {
			size += r.Size - symbolsOf(r.Size/3)
		}
	}
	return size, nil
}

// walkPacked walks over the records of a packed form, and says so where it is
// a container instead.
func walkPacked(name string, src io.ReaderAt, size int64) (*walker, error) {
	w := &walker{name: name, src: src, size: size, packed: true}
	err := w.walk()
	if err == nil {
		return w, nil
	}
	if _, cerr := walkContainer("", src, size); cerr == nil {
		err = &pack.Error{Kind: pack.ErrUnsupported, File: name, Offset: -1, Found: "this is a container that is not packed",
			Expected: "its packed form (t5q)", Hint: "there is nothing to unpack: use it as it is"}
	}
	return nil, err
}

// Unpack is the reverse of [Pack]. Matrices are unpacked in parts, so that each
// is read three times.
func Unpack(ctx context.Context, name string, src io.ReaderAt, size int64, w io.Writer) error {
	k, err := walkPacked(name, src, size)
	if err != nil {
		return err
	}
	c := converter{ctx: ctx, src: src, w: w, buf: make([]byte, 1<<20)}
	for i := range k.regions {
		r := &k.regions[i]
		if r.Method != T5Q {
			continue
		}
		if err := c.copyTo(r.Offset); err != nil {
			return err
		}
		if err := c.unpack(name, r); err != nil {
			return err
		}
	}
	return c.copyTo(size)
}

// converter copies a source, but for some parts.
type converter struct {
	ctx context.Context
	src io.ReaderAt
	at  int64 // up to where src is done
	w   io.Writer
	buf []byte

	symbols [batchSymbols]byte
	planes  [3][batchBytes + window]byte
}

func (c *converter) copyTo(off int64) error {
	err := copyRange(c.ctx, c.w, c.src, c.at, off, c.buf)
	c.at = off
	return err
}

// read fills b with the bytes at off.
func (c *converter) read(b []byte, off int64) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if n, err := c.src.ReadAt(b, off); n < len(b) {
		return fmt.Errorf("byte %d: %w", off+int64(n), noEOF(err))
	}
	return nil
}

func (c *converter) pack(name string, r *Region) error {
	plane := r.Size / 3
	for at := int64(0); at < plane; at += batchBytes {
		n := int(min(plane-at, batchBytes))
		for i := range c.planes {
			if err := c.read(c.planes[i][:n], r.Offset+int64(i)*plane+at); err != nil {
				return err
			}
			clear(c.planes[i][n:])
		}
		if !toSymbols(c.symbols[:], c.planes[0][:], c.planes[1][:], c.planes[2][:], (n+groupBytes-1)/groupBytes) {
			return c.badWeight(name, r, at, n)
		}
		if _, err := c.w.Write(c.symbols[:symbolsOf(int64(n))]); err != nil {
			return err
		}
	}
	c.at = r.Offset + r.Size
	return nil
}

// badWeight says which of the n bytes at at of r's planes, which are in
// c.planes, holds the first weight without a state.
func (c *converter) badWeight(name string, r *Region, at int64, n int) error {
	for i := range n {
		p, m, b := c.planes[0][i], c.planes[1][i], c.planes[2][i]
		bad := p&m | b&^(p|m)
		if bad == 0 {
			continue
		}
		bit := bits.TrailingZeros8(bad)
		plane, found := 1, "bp and bn both set"
		if p&m>>bit&1 == 0 {
			plane, found = 2, "br set on a zero weight"
		}
		at += int64(i)
		return &pack.Error{Kind: pack.ErrCorrupt, File: name,
			Place:  fmt.Sprintf("tensor %q: row %d: column %d", r.Tensor, at/r.Stride, at%r.Stride*8+int64(bit)),
			Offset: r.Offset + int64(plane)*r.Size/3 + at, Found: found,
			Expected: "planes that keep the rules of weights, which the packed form needs", Hint: hintDamaged}
	}
	return errors.New("coded: no bad weight found")
}

// unpack writes the planes of r, one after the other.
func (c *converter) unpack(name string, r *Region) error {
	plane := r.Size / 3
	total := symbolsOf(plane)
	for i := range c.planes { // bp, then bn, then br
		for at, done := int64(0), int64(0); at < plane; at += batchBytes {
			k := int(min(total-done, batchSymbols))
			n := int(min(plane-at, batchBytes))
			if err := c.convert(name, r, done, k, n); err != nil {
				return err
			}
			if _, err := c.w.Write(c.planes[i][:n]); err != nil {
				return err
			}
			done += int64(k)
		}
	}
	c.at = r.Offset + total
	return nil
}

// convert fills n bytes of each plane of c.planes from the k symbols of r after
// the first done.
func (c *converter) convert(name string, r *Region, done int64, k, n int) error {
	fail := func(off int64, found, expected string) error {
		return &pack.Error{Kind: pack.ErrCorrupt, File: name, Place: fmt.Sprintf("tensor %q", r.Tensor), Offset: r.Offset + off,
			Found: found, Expected: expected, Hint: hintDamaged}
	}
	if err := c.read(c.symbols[:k], r.Offset+done); err != nil {
		return err
	}
	for j, s := range c.symbols[:k] {
		if s > 124 {
			return fail(done+int64(j), fmt.Sprintf("symbol %d", s), "0 to 124")
		}
	}
	groups := (k + groupSymbols - 1) / groupSymbols
	clear(c.symbols[k : groups*groupSymbols])
	toPlanes(c.planes[0][:], c.planes[1][:], c.planes[2][:], c.symbols[:], groups)
	for _, p := range c.planes {
		for _, b := range p[n : groups*groupBytes] {
			if b != 0 {
				return fail(done+int64(k)-1, "the last symbol has weights past the end of the planes", "zeros there")
			}
		}
	}
	return nil
}
