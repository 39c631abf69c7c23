package safetensors

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/text/encoding"
	"golang.org/x/text/transform"

	"npack/pack"
)

// Limits of a file. A header is compared with the bytes of the file as well;
// these bound what a large file of small entries costs.
const (
	maxHeader     = 16 << 20
	maxTensors    = 1 << 17
	maxSetTensors = 1 << 18
	maxDims       = 16
	maxName       = 4096 // bytes

	metadataKey = "__metadata__"
)

// parser reads the JSON of a header, token by token: what it holds in memory is
// what has been found so far.
type parser struct {
	*file
	dec   *json.Decoder
	place string
	seen  map[string]bool
	h     Header
}

// parse reads the header (§1, §2) and checks where the tensors lie (§3).
func (x *file) parse() (*Header, error) {
	if x.end < 8 {
		return nil, x.fail(pack.ErrTruncated, "header", x.end, fmt.Sprintf("truncated: %d bytes are there", x.end), "8 of the header's length", hintIncomplete)
	}
	var b [8]byte
	if _, err := x.r.ReadAt(b[:], 0); err != nil {
		return nil, err
	}
	n, left := binary.LittleEndian.Uint64(b[:]), uint64(x.end-8)
	switch {
	case n > maxHeader && n > left:
		return nil, x.fail(pack.ErrCorrupt, "header", 0, fmt.Sprintf("the header should have %d bytes, %d are left", n, left), fmt.Sprintf("at most %d", maxHeader), hintDamaged)
	case n > maxHeader:
		return nil, x.fail(pack.ErrUnsupported, "header", 0, fmt.Sprintf("the header has %d bytes", n), fmt.Sprintf("at most %d", maxHeader), "no known model has as many tensors")
	case n > left:
		return nil, x.fail(pack.ErrTruncated, "header", x.end, fmt.Sprintf("truncated: the header has %d bytes, %d are there", n, left), "a longer file", hintIncomplete)
	}
	x.data = 8 + int64(n)
	text := transform.NewReader(bufio.NewReaderSize(io.NewSectionReader(x.r, 8, int64(n)), 1<<16), encoding.UTF8Validator)
	p := &parser{file: x, dec: json.NewDecoder(text), place: "header", seen: map[string]bool{}}
	p.dec.UseNumber()
	if err := p.object(p.entry); err != nil {
		return nil, err
	}
	p.place = "header"
	if t, err := p.dec.Token(); err == nil {
		return nil, p.wrong(t, "nothing behind the object")
	} else if !errors.Is(err, io.EOF) {
		return nil, p.syntax(err)
	}
	for i := range p.h.Tensors {
		p.h.Tensors[i].file = x
	}
	return &p.h, x.layOut(p.h.Tensors)
}

// object reads an object and calls member behind each of its keys.
func (p *parser) object(member func(key string) error) error {
	if err := p.delim('{', "an object"); err != nil {
		return err
	}
	for p.dec.More() {
		t, err := p.dec.Token()
		if err != nil {
			return p.syntax(err)
		}
		key := t.(string) // the decoder takes no other keys
		if len(key) > maxName {
			return p.failAt(pack.ErrUnsupported, fmt.Sprintf("a name of %d bytes", len(key)), fmt.Sprintf("at most %d", maxName))
		}
		if err := member(key); err != nil {
			return err
		}
	}
	return p.delim('}', "the object's end")
}

// entry reads what stands behind a key of the header.
func (p *parser) entry(key string) error {
	p.place = place(key)
	if p.seen[key] {
		return p.failAt(pack.ErrCorrupt, "the name is there twice", "each name once")
	}
	p.seen[key] = true
	if key == metadataKey {
		return p.metadata()
	}
	if len(p.h.Tensors) == maxTensors {
		return p.failAt(pack.ErrUnsupported, fmt.Sprintf("more than %d tensors", maxTensors), "fewer")
	}
	t := Tensor{Name: key}
	var dtype string
	var offsets []int64
	err := p.object(func(field string) (err error) {
		twice := false
		switch field {
		case "dtype":
			twice = dtype != ""
			dtype, err = p.text()
		case "shape":
			twice = t.Shape != nil
			t.Shape, err = p.integers(maxDims)
		case "data_offsets":
			twice = offsets != nil
			offsets, err = p.integers(2)
		default:
			return p.failAt(pack.ErrUnsupported, fmt.Sprintf("field %q", field), `"dtype", "shape" and "data_offsets"`)
		}
		if err == nil && twice {
			return p.failAt(pack.ErrCorrupt, fmt.Sprintf("%q is there twice", field), "once")
		}
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case dtype == "" || t.Shape == nil:
		return p.failAt(pack.ErrCorrupt, `"dtype" or "shape" is missing`, "both")
	case len(offsets) != 2:
		return p.failAt(pack.ErrCorrupt, fmt.Sprintf("%d data_offsets", len(offsets)), "2")
	}
	var ok bool
	if t.DType, ok = dtypeNamed(dtype); !ok {
		return p.failAt(pack.ErrUnsupported, fmt.Sprintf("dtype %q", dtype), "one of the format's types")
	}
	want, ok := t.DType.size(t.Shape)
	if !ok {
		return p.failAt(pack.ErrCorrupt, fmt.Sprintf("%v of shape %v", t.DType, t.Shape), "whole bytes, fewer than 2^63")
	}
	if t.Offset, t.Size = offsets[0], offsets[1]-offsets[0]; t.Size != want {
		return p.failAt(pack.ErrCorrupt, fmt.Sprintf("data_offsets %v make %d bytes", offsets, t.Size), fmt.Sprintf("%d for %v of shape %v", want, t.DType, t.Shape))
	}
	p.h.Tensors = append(p.h.Tensors, t)
	return nil
}

// metadata reads an object of strings.
func (p *parser) metadata() error {
	seen := map[string]bool{}
	return p.object(func(key string) error {
		if seen[key] {
			return p.failAt(pack.ErrCorrupt, fmt.Sprintf("key %q is there twice", key), "each key once")
		}
		seen[key] = true
		v, err := p.text()
		if err != nil {
			return err
		}
		if len(p.h.Metadata) == maxTensors {
			return p.failAt(pack.ErrUnsupported, fmt.Sprintf("more than %d keys", maxTensors), "fewer")
		}
		p.h.Metadata = append(p.h.Metadata, KV{key, v})
		return nil
	})
}

// integers reads an array of at most n integers, none negative. It is not nil.
func (p *parser) integers(n int) ([]int64, error) {
	if err := p.delim('[', "an array"); err != nil {
		return nil, err
	}
	v := []int64{}
	for p.dec.More() {
		t, err := p.dec.Token()
		if err != nil {
			return nil, p.syntax(err)
		}
		number, ok := t.(json.Number)
		i, err := strconv.ParseInt(string(number), 10, 64)
		if !ok || err != nil || i < 0 {
			return nil, p.wrong(t, "an integer from 0 to 2^63-1")
		}
		if len(v) == n {
			return nil, p.failAt(pack.ErrUnsupported, fmt.Sprintf("more than %d integers", n), fmt.Sprint(n))
		}
		v = append(v, i)
	}
	return v, p.delim(']', "the array's end")
}

func (p *parser) text() (string, error) {
	t, err := p.dec.Token()
	if err != nil {
		return "", p.syntax(err)
	}
	s, ok := t.(string)
	if !ok {
		return "", p.wrong(t, "a string")
	}
	return s, nil
}

func (p *parser) delim(d json.Delim, what string) error {
	t, err := p.dec.Token()
	if err != nil {
		return p.syntax(err)
	}
	if t != d {
		return p.wrong(t, what)
	}
	return nil
}

// wrong is the error about a token that does not belong where it stands.
func (p *parser) wrong(t json.Token, expected string) error {
	found := fmt.Sprintf("%v", t)
	if s, ok := t.(string); ok {
		found = fmt.Sprintf("%q", s)
	}
	return p.failAt(pack.ErrCorrupt, "there is "+found, expected)
}

// syntax is the error about text that is no JSON.
func (p *parser) syntax(err error) error {
	var s *json.SyntaxError
	found := err.Error()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		found = "the JSON is not complete"
	case errors.Is(err, encoding.ErrInvalidUTF8):
		found = "the header is not UTF-8"
	case !errors.As(err, &s):
		return err // of reading
	}
	return p.failAt(pack.ErrCorrupt, found, "an object of tensors")
}

// failAt is an error at the place in the header that has been read last.
func (p *parser) failAt(kind error, found, expected string) error {
	return p.fail(kind, p.place, 8+p.dec.InputOffset(), found, expected, hintDamaged)
}

// layOut checks that the tensors' data lie one behind the other and fill the
// file (§3).
func (x *file) layOut(tensors []Tensor) error {
	var end int64 // of the data so far
	for _, t := range sorted(tensors) {
		if t.Offset != end {
			found := fmt.Sprintf("the data starts at %d, inside another tensor", t.Offset)
			if t.Offset > end {
				found = fmt.Sprintf("the data starts at %d, behind a hole", t.Offset)
			}
			return x.fail(pack.ErrCorrupt, place(t.Name), -1, found, fmt.Sprintf("%d, where the tensor before it ends", end), hintDamaged)
		}
		if t.Size > x.end-x.data-end {
			return x.fail(pack.ErrTruncated, place(t.Name), x.data+t.Offset, fmt.Sprintf("truncated: the tensor needs %d bytes, %d are there", t.Size, max(0, x.end-x.data-end)), "a longer file", hintIncomplete)
		}
		end += t.Size
	}
	if left := x.end - x.data - end; left > 0 {
		return x.fail(pack.ErrCorrupt, "", x.data+end, fmt.Sprintf("%d bytes are left behind the last tensor", left), "none", hintDamaged)
	}
	return nil
}
