package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
)

// maxNameLen is what llama.cpp reads: 64 with the zero at the end.
const maxNameLen = 63

// LayOut checks h by the rules that all programs keep (§7) and sets Alignment,
// and Offset and Size of each tensor, contiguous in their order. Version 0
// becomes 3. The error is an [*Error].
func (h *Header) LayOut() error {
	fail := func(place, found, expected string) error {
		return &Error{Kind: ErrUnsupported, Place: place, Offset: -1, Found: found, Expected: expected}
	}
	if h.Version == 0 {
		h.Version = 3
	}
	if h.Version != 2 && h.Version != 3 {
		return fail("header", fmt.Sprintf("version is %d", h.Version), "2 or 3")
	}
	if len(h.Metadata) > maxKeys || len(h.Tensors) > maxTensors {
		return fail("header", fmt.Sprintf("%d keys and %d tensors", len(h.Metadata), len(h.Tensors)), fmt.Sprintf("at most %d", maxKeys))
	}
	p := parser{f: &File{Header: Header{Metadata: h.Metadata}}}
	if err := p.alignment(); err != nil {
		return err
	}
	h.Alignment = p.f.Alignment
	keys := make(map[string]bool, len(h.Metadata))
	for _, kv := range h.Metadata {
		place := fmt.Sprintf("key %q", kv.Key)
		switch {
		case len(kv.Key) > maxKeyLen:
			return fail(place, fmt.Sprintf("a key of %d bytes", len(kv.Key)), fmt.Sprintf("at most %d", maxKeyLen))
		case keys[kv.Key]:
			return fail(place, "the key is there twice", "each key once")
		case kv.Value.raw == nil && kv.Value.Kind != KindString && kv.Value.Kind != KindArray:
			return fail(place, "no value", "one made by this package")
		}
		keys[kv.Key] = true
	}
	names := make(map[string]bool, len(h.Tensors))
	off := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		place := fmt.Sprintf("tensor %q", t.Name)
		switch {
		case len(t.Name) > maxNameLen:
			return fail(place, fmt.Sprintf("a name of %d bytes", len(t.Name)), fmt.Sprintf("at most %d", maxNameLen))
		case names[t.Name]:
			return fail(place, "the name is there twice", "each tensor once")
		case len(t.Dims) > maxDims:
			return fail(place, fmt.Sprintf("%d dimensions", len(t.Dims)), fmt.Sprintf("at most %d", maxDims))
		}
		names[t.Name] = true
		size, err := t.Type.Size(t.Dims)
		if err != nil {
			e := err.(*Error)
			e.Place = place
			return e
		}
		if size > maxSize-off {
			return fail(place, "the tensors come to more than 2^63 bytes", "fewer")
		}
		t.Offset, t.Size = off, size
		off = alignUp(off+size, h.Alignment)
	}
	return nil
}

// FileSize is the length in bytes of the file that h, laid out, describes.
func (h *Header) FileSize() int64 {
	size := alignUp(h.encodedLen(), h.Alignment)
	if len(h.Tensors) == 0 {
		return h.encodedLen()
	}
	last := &h.Tensors[len(h.Tensors)-1]
	if size += last.Offset + last.Size; !h.Unpadded {
		size = alignUp(size, h.Alignment)
	}
	return size
}

func (h *Header) encodedLen() int64 {
	n := int64(headerSize)
	for i := range h.Metadata {
		n += 8 + int64(len(h.Metadata[i].Key)) + h.Metadata[i].Value.encodedLen()
	}
	for i := range h.Tensors {
		n += 8 + int64(len(h.Tensors[i].Name)) + 4 + 8*int64(len(h.Tensors[i].Dims)) + 4 + 8
	}
	return n
}

// Encode returns the bytes of the file up to the first tensor's data.
func (h *Header) Encode() []byte {
	n := h.encodedLen()
	b := make([]byte, 0, alignUp(n, h.Alignment))
	b = append(b, "GGUF"...)
	b = binary.LittleEndian.AppendUint32(b, h.Version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(h.Tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(h.Metadata)))
	text := func(s string) { b = append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...) }
	for i := range h.Metadata {
		text(h.Metadata[i].Key)
		b = h.Metadata[i].Value.append(b)
	}
	for i := range h.Tensors {
		t := &h.Tensors[i]
		text(t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			b = binary.LittleEndian.AppendUint64(b, d)
		}
		b = binary.LittleEndian.AppendUint32(b, t.Type.ID())
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Offset))
	}
	if len(h.Tensors) == 0 {
		return b
	}
	return b[:alignUp(n, h.Alignment)]
}

// Writer writes a file: the header, then the tensors' data in order.
type Writer struct {
	w    io.Writer
	h    *Header
	i    int   // tensor that is being written
	left int64 // bytes of it
	err  error // of w
}

// NewWriter lays out h and writes all that precedes the data.
func NewWriter(w io.Writer, h *Header) (*Writer, error) {
	if err := h.LayOut(); err != nil {
		return nil, err
	}
	if _, err := w.Write(h.Encode()); err != nil {
		return nil, err
	}
	x := &Writer{w: w, h: h, i: -1}
	return x, x.next()
}

// next moves to the next tensor that has bytes, writing padding.
func (x *Writer) next() error {
	for x.left == 0 && x.i < len(x.h.Tensors) {
		if x.i >= 0 {
			if t := &x.h.Tensors[x.i]; !x.h.Unpadded || x.i < len(x.h.Tensors)-1 {
				pad := alignUp(t.Size, x.h.Alignment) - t.Size
				if _, x.err = x.w.Write(make([]byte, pad)); x.err != nil {
					return x.err
				}
			}
		}
		if x.i++; x.i < len(x.h.Tensors) {
			x.left = x.h.Tensors[x.i].Size
		}
	}
	return nil
}

// Write writes data of the current tensor, and no more than it has left; the
// last byte of a tensor makes the next one current.
func (x *Writer) Write(b []byte) (int, error) {
	if x.err != nil {
		return 0, x.err
	}
	if int64(len(b)) > x.left {
		return 0, fmt.Errorf("gguf: %d bytes for a tensor that has %d left", len(b), x.left)
	}
	n, err := x.w.Write(b)
	x.left -= int64(n)
	if x.err = err; err == nil && x.left == 0 {
		err = x.next()
	}
	return n, err
}

// Close reports an error if a tensor's data is missing. It does not close the
// file.
func (x *Writer) Close() error {
	if x.err == nil && x.i < len(x.h.Tensors) {
		return fmt.Errorf("gguf: tensor %q: %d bytes are missing", x.h.Tensors[x.i].Name, x.left)
	}
	return x.err
}
