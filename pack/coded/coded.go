// Package coded reads and writes the two compressed forms of a native
// container: the coded transport ("TV4Z", [Decode] and [Encode]) and the packed
// form ("t5q", [Pack] and [Unpack]). FORMAT.md beside this file describes both;
// "§" in comments names a section of it.
//
// A transport is a sequence of blocks, each of which restores one run of the
// container. Blocks do not depend on each other: they are worked on in
// parallel and handed on in order, in memory that does not depend on the size
// of the file. Data flows
//
//	io.Reader -> heads and payloads -> workers -> in order: io.Writer, MD5, check
package coded

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"npack/pack"
)

// HeaderSize is the length of a transport's header in bytes.
const HeaderSize = 40

// Header is the start of a transport (§2).
type Header struct {
	SourceSize int64    // bytes of the container
	MD5        [16]byte // of the container
	Blocks     uint32
}

// Method says how a block is coded (§3).
type Method uint8

const (
	Raw  Method = iota // the source bytes themselves
	Byte               // source bytes, entropy coded
	T5Q                // three planes as symbols of three weights, entropy coded
)

// String returns the name used in messages.
func (m Method) String() string {
	if m > T5Q {
		return fmt.Sprintf("method %d", uint8(m))
	}
	return [...]string{"raw", "byte", "t5q"}[m]
}

// alphabet is the number of frequencies in a block's head.
func (m Method) alphabet() int { return [...]int{0, 256, 125}[m] }

// headSize is the length of a block's head in bytes.
func (m Method) headSize() int64 { return [...]int64{17, 25 + 2*256, 25 + 2*125}[m] }

// Block is one block of a transport.
type Block struct {
	Index   int64
	Method  Method
	Coded   int64 // where its head starts in the transport
	Payload int64 // bytes after the head
	Source  int64 // where its bytes start in the container
	Size    int64 // bytes of the container that it restores

	freq []uint16 // [alphabet], nil for Raw
}

// CodedSize is the length of the block in the transport, head and payload.
func (b *Block) CodedSize() int64 { return b.Method.headSize() + b.Payload }

// Symbols is the number of symbols that the coder sees (§4).
func (b *Block) Symbols() int64 {
	switch b.Method {
	case Byte:
		return b.Size
	case T5Q:
		return symbolsOf(b.Size / 3)
	}
	return 0
}

// symbolsOf returns ceil(8L/3), the symbols of planes of L bytes, for all L whose
// three planes fit an int64.
func symbolsOf(plane int64) int64 { return plane/3*8 + (plane%3*8+2)/3 }

// ReadHeader reads a transport's header from r. name is used in errors.
// SourceSize is what the file claims: whoever gives room for the container
// should first ask whether that can be.
func ReadHeader(name string, r io.Reader) (Header, error) {
	var b [HeaderSize]byte
	n, err := io.ReadFull(r, b[:])
	fail := func(kind error, off int64, found, expected, hint string) (Header, error) {
		return Header{}, &pack.Error{Kind: kind, File: name, Place: "header", Offset: off, Found: found, Expected: expected, Hint: hint}
	}
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		if k := min(n, 4); string(b[:k]) == magic[:k] {
			return fail(pack.ErrTruncated, int64(n), fmt.Sprintf("truncated: the header needs %d bytes, %d are there", HeaderSize, n), "", hintIncomplete)
		}
	case err != nil:
		return Header{}, fmt.Errorf("%q: header: %w", name, err)
	}
	if string(b[:4]) != magic {
		return fail(pack.ErrNotModel, 0, fmt.Sprintf("it starts with %q", b[:min(n, 4)]), "a coded transport, which starts with \"TV4Z\"", "\"npack inspect\" tells what a file is")
	}
	if b[4] != 1 {
		return fail(pack.ErrUnsupported, 4, fmt.Sprintf("version is %d", b[4]), "1", "a newer program may be needed; if the file should be version 1 it is damaged")
	}
	size := binary.LittleEndian.Uint64(b[8:])
	if size > math.MaxInt64 {
		return fail(pack.ErrCorrupt, 8, fmt.Sprintf("source_size is %d", size), "at most 2^63 - 1", hintDamaged)
	}
	h := Header{SourceSize: int64(size), Blocks: binary.LittleEndian.Uint32(b[32:])}
	copy(h.MD5[:], b[16:])
	return h, nil
}

// bytes returns the header as it is written.
func (h *Header) bytes() []byte {
	b := append(make([]byte, 0, HeaderSize), magic...)
	b = append(b, 1, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.SourceSize))
	b = append(b, h.MD5[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.Blocks)
	return append(b, 0, 0, 0, 0)
}

const (
	magic          = "TV4Z"
	hintDamaged    = "the file is damaged: compare its sha256 with the publisher's and fetch it again"
	hintIncomplete = "the download may be incomplete: compare the size with the publisher's and fetch the rest"
)
