package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Limits of a file. Counts are compared with the bytes that are left as well;
// these bound what a large file of small entries costs.
const (
	maxKeys      = 1 << 16
	maxTensors   = 1 << 16
	maxDims      = 4 // llama.cpp's
	maxKeyLen    = 1<<16 - 1
	maxAlignment = 1 << 16
	minAlignment = 8

	defaultAlignment = 32
	headerSize       = 24
)

// parser walks over the metadata. Every length is compared with the bytes that
// are left before it is used.
type parser struct {
	f     *File
	off   int64
	place string // what is being read
}

// parse reads all that precedes the data section and lays out the tensors.
func (f *File) parse() error {
	p := &parser{f: f, place: "header"}
	keys, tensors, err := p.header()
	if err != nil {
		return err
	}
	if err := p.metadata(keys); err != nil {
		return err
	}
	if err := p.alignment(); err != nil {
		return err
	}
	if err := p.table(tensors); err != nil {
		return err
	}
	return f.layOut(p.off)
}

// header reads §1 and returns the two counts.
func (p *parser) header() (keys, tensors uint64, err error) {
	data := p.f.data
	if !bytes.HasPrefix(data, []byte("GGUF")) {
		if len(data) < 4 && bytes.HasPrefix([]byte("GGUF"), data) {
			return 0, 0, p.short(headerSize)
		}
		return 0, 0, &Error{Kind: ErrNotGGUF, File: p.f.name, Offset: 0, Found: fmt.Sprintf("the file starts with %q", data[:min(8, len(data))]), Expected: "\"GGUF\""}
	}
	if len(data) < headerSize {
		return 0, 0, p.short(headerSize)
	}
	version := binary.LittleEndian.Uint32(data[4:])
	switch {
	case version&0xffff == 0 && version != 0:
		e := p.fail(ErrUnsupported, 4, fmt.Sprintf("this is a big-endian file, version %d", bits.ReverseBytes32(version)), "a little-endian one")
		e.Hint = "convert it with gguf_convert_endian.py of llama.cpp, or fetch the little-endian file"
		return 0, 0, e
	case version == 1:
		e := p.fail(ErrUnsupported, 4, "version is 1", "2 or 3")
		e.Hint = "version 1 was in use for some weeks of 2023: fetch a newer file of the model"
		return 0, 0, e
	case version != 2 && version != 3:
		e := p.fail(ErrUnsupported, 4, fmt.Sprintf("version is %d", version), "2 or 3")
		e.Hint = "a newer program may be needed; if the file should be version 3 it is damaged"
		return 0, 0, e
	}
	p.f.Version = version
	tensors = binary.LittleEndian.Uint64(data[8:])
	keys = binary.LittleEndian.Uint64(data[16:])
	p.off = headerSize
	// An entry of the metadata has 13 bytes or more, one of the table 24.
	left := uint64(len(data) - headerSize)
	for _, c := range []struct {
		what       string
		n, least   uint64
		limit      uint64
		at         int64
		entryBytes string
	}{
		{"tensors", tensors, 24, maxTensors, 8, "24 bytes or more each"},
		{"keys", keys, 13, maxKeys, 16, "13 bytes or more each"},
	} {
		if c.n > left/c.least {
			return 0, 0, p.fail(ErrCorrupt, c.at, fmt.Sprintf("%d %s in %d bytes", c.n, c.what, left), c.entryBytes)
		}
		if c.n > c.limit {
			e := p.fail(ErrUnsupported, c.at, fmt.Sprintf("%d %s", c.n, c.what), fmt.Sprintf("at most %d", c.limit))
			e.Hint = "no known model has as many"
			return 0, 0, e
		}
	}
	return keys, tensors, nil
}

// metadata reads §2.
func (p *parser) metadata(n uint64) error {
	p.f.Metadata = make([]KV, 0, n)
	seen := make(map[string]struct{}, n)
	for i := range n {
		p.place = fmt.Sprintf("key %d", i)
		at := p.off
		b, err := p.bytes()
		if err != nil {
			return err
		}
		if len(b) > maxKeyLen {
			return p.fail(ErrUnsupported, at, fmt.Sprintf("a key of %d bytes", len(b)), fmt.Sprintf("at most %d", maxKeyLen))
		}
		key := string(b)
		p.place = fmt.Sprintf("key %q", key)
		if _, twice := seen[key]; twice {
			return p.fail(ErrCorrupt, at, "the key is there twice", "each key once")
		}
		seen[key] = struct{}{}
		v, err := p.value()
		if err != nil {
			return err
		}
		p.f.Metadata = append(p.f.Metadata, KV{key, v})
	}
	return nil
}

// value reads a kind and a value of it.
func (p *parser) value() (v Value, err error) {
	at := p.off
	k, err := p.u32()
	if err != nil {
		return v, err
	}
	v.Kind = Kind(k)
	switch {
	case v.Kind == KindString:
		v.raw, err = p.bytes()
		return v, err
	case v.Kind == KindArray:
		return p.array()
	case v.Kind > KindFloat64:
		return v, p.fail(ErrCorrupt, at, fmt.Sprintf("%d is no kind of value", k), "0 to 12")
	}
	if v.raw, err = p.take(uint64(kinds[v.Kind].size), 1); err != nil {
		return v, err
	}
	if v.Kind == KindBool && v.raw[0] > 1 {
		return v, p.fail(ErrCorrupt, at+4, fmt.Sprintf("a bool is %d", v.raw[0]), "0 or 1")
	}
	return v, nil
}

// array reads what follows the kind of an array.
func (p *parser) array() (v Value, err error) {
	v.Kind = KindArray
	at := p.off
	k, err := p.u32()
	if err != nil {
		return v, err
	}
	v.Elem = Kind(k)
	count, err := p.u64()
	if err != nil {
		return v, err
	}
	start := p.off
	switch {
	case v.Elem == KindArray:
		e := p.fail(ErrUnsupported, at, "an array of arrays", "an array of numbers or strings")
		e.Hint = "no known program writes one"
		return v, e
	case v.Elem > KindFloat64:
		return v, p.fail(ErrCorrupt, at, fmt.Sprintf("%d is no kind of value", k), "0 to 12")
	case v.Elem == KindString:
		if left := uint64(p.left()); count > left/8 {
			return v, p.fail(ErrCorrupt, at+4, fmt.Sprintf("%d strings in %d bytes", count, left), "8 bytes or more each")
		}
		// Only the lengths are read: a vocabulary costs no memory.
		for i := range count {
			if _, err := p.bytes(); err != nil {
				e := err.(*Error)
				e.Place += fmt.Sprintf(": string %d", i)
				return v, e
			}
		}
	default:
		if _, err := p.take(count, uint64(kinds[v.Elem].size)); err != nil {
			return v, err
		}
	}
	v.Len = int(count) // at most the bytes of the file
	v.raw = p.f.data[start:p.off:p.off]
	if v.Elem == KindBool {
		if i := bytes.IndexFunc(v.raw, func(r rune) bool { return r > 1 }); i >= 0 {
			return v, p.fail(ErrCorrupt, start+int64(i), fmt.Sprintf("a bool is %d", v.raw[i]), "0 or 1")
		}
	}
	return v, nil
}

// alignment finds the alignment of tensors' data in the metadata.
func (p *parser) alignment() error {
	p.f.Alignment = defaultAlignment
	v, ok := p.f.Value(alignmentKey)
	if !ok {
		return nil
	}
	p.place = fmt.Sprintf("key %q", alignmentKey)
	n, ok := v.Uint()
	if v.Kind != KindUint32 || !ok {
		return p.fail(ErrCorrupt, -1, fmt.Sprintf("the value is of kind %v", v.Kind), "u32")
	}
	if n < minAlignment || n > maxAlignment || n&(n-1) != 0 {
		e := p.fail(ErrCorrupt, -1, fmt.Sprintf("the alignment is %d", n), fmt.Sprintf("a power of two from %d to %d", minAlignment, maxAlignment))
		if n%8 == 0 && n > 0 {
			e.Kind, e.Hint = ErrUnsupported, "llama.cpp refuses it too; write the file again with an alignment of 32"
		}
		return e
	}
	p.f.Alignment = int(n)
	return nil
}

const alignmentKey = "general.alignment"

// table reads §3: names, dimensions, types and offsets, but no data.
func (p *parser) table(n uint64) error {
	p.f.Tensors = make([]Tensor, 0, n)
	seen := make(map[string]struct{}, n)
	dims := make([]uint64, 0, n*2)
	for i := range n {
		p.place = fmt.Sprintf("tensor %d", i)
		at := p.off
		b, err := p.bytes()
		if err != nil {
			return err
		}
		if len(b) > maxKeyLen {
			return p.fail(ErrUnsupported, at, fmt.Sprintf("a name of %d bytes", len(b)), fmt.Sprintf("at most %d", maxKeyLen))
		}
		t := Tensor{Name: string(b), fileName: p.f.name}
		p.place = fmt.Sprintf("tensor %q", t.Name)
		if _, twice := seen[t.Name]; twice {
			return p.fail(ErrCorrupt, at, "the name is there twice", "each tensor once")
		}
		seen[t.Name] = struct{}{}
		at = p.off
		nd, err := p.u32()
		if err != nil {
			return err
		}
		if nd > maxDims {
			return p.fail(ErrCorrupt, at, fmt.Sprintf("%d dimensions", nd), fmt.Sprintf("0 to %d", maxDims))
		}
		first := len(dims)
		for range nd {
			d, err := p.u64()
			if err != nil {
				return err
			}
			dims = append(dims, d)
		}
		t.Dims = dims[first:len(dims):len(dims)]
		at = p.off
		id, err := p.u32()
		if err != nil {
			return err
		}
		t.Type = Type(id)
		if t.Size, err = t.Type.Size(t.Dims); t.Type.ID() != id { // a type of this package alone
			err = unknownID(id)
		}
		if err != nil {
			e := err.(*Error)
			e.File, e.Place, e.Offset = p.f.name, p.place, at
			return e
		}
		at = p.off
		off, err := p.u64()
		if err != nil {
			return err
		}
		if off > maxSize {
			return p.fail(ErrCorrupt, at, fmt.Sprintf("the offset is %d", off), fmt.Sprintf("one inside the file, which has %d bytes", len(p.f.data)))
		}
		t.Offset = int64(off)
		if off%uint64(p.f.Alignment) != 0 {
			return p.fail(ErrCorrupt, at, fmt.Sprintf("the offset is %d", off), fmt.Sprintf("a multiple of the alignment, %d", p.f.Alignment))
		}
		p.f.Tensors = append(p.f.Tensors, t)
	}
	return nil
}

func (p *parser) left() int64 { return int64(len(p.f.data)) - p.off }

// take returns the next n elements of some bytes each.
func (p *parser) take(n, size uint64) ([]byte, error) {
	if n > uint64(p.left())/size {
		return nil, p.fail(ErrTruncated, p.off, fmt.Sprintf("truncated: %d × %d bytes are needed, %d are there", n, size, p.left()), "a longer file").hint(hintIncomplete)
	}
	end := p.off + int64(n*size)
	b := p.f.data[p.off:end:end]
	p.off = end
	return b, nil
}

func (p *parser) u32() (uint32, error) {
	b, err := p.take(4, 1)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (p *parser) u64() (uint64, error) {
	b, err := p.take(8, 1)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// bytes reads a string: a length and as many bytes.
func (p *parser) bytes() ([]byte, error) {
	at := p.off
	n, err := p.u64()
	if err != nil {
		return nil, err
	}
	if n > uint64(p.left()) {
		return nil, p.fail(ErrCorrupt, at, fmt.Sprintf("a string of %d bytes, %d are left", n, p.left()), "one that fits into the file")
	}
	return p.take(n, 1)
}

func (p *parser) short(need int64) error {
	return p.fail(ErrTruncated, int64(len(p.f.data)), fmt.Sprintf("truncated: the header needs %d bytes, %d are there", need, len(p.f.data)), "").hint(hintIncomplete)
}

func (p *parser) fail(kind error, off int64, found, expected string) *Error {
	return &Error{Kind: kind, File: p.f.name, Place: p.place, Offset: off, Found: found, Expected: expected, Hint: hintDamaged}
}

func (e *Error) hint(h string) *Error {
	e.Hint = h
	return e
}
