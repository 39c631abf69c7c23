package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"npack/pack"
)

// LayOut checks h and sets Offset and Size of each tensor, one behind the other
// in their order (§5). The error is a [*pack.Error].
func (h *Header) LayOut() error {
	fail := func(place, found, expected string) error {
		return &pack.Error{Kind: pack.ErrUnsupported, Place: place, Offset: -1, Found: found, Expected: expected}
	}
	if len(h.Tensors) > maxTensors {
		return fail("header", fmt.Sprintf("%d tensors", len(h.Tensors)), fmt.Sprintf("at most %d", maxTensors))
	}
	seen := map[string]bool{}
	for _, kv := range h.Metadata {
		if seen[kv.Key] || !utf8.ValidString(kv.Key) || !utf8.ValidString(kv.Value) || len(kv.Key) > maxName {
			return fail("header", fmt.Sprintf("the key %q of the metadata", kv.Key), "each key once, text in UTF-8")
		}
		seen[kv.Key] = true
	}
	clear(seen)
	seen[metadataKey] = true
	var end int64
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if seen[t.Name] || !utf8.ValidString(t.Name) || len(t.Name) > maxName || len(t.Shape) > maxDims {
			return fail(place(t.Name), fmt.Sprintf("a name of %d bytes and %d dimensions", len(t.Name), len(t.Shape)),
				fmt.Sprintf("at most %d and %d, and each name once", maxName, maxDims))
		}
		seen[t.Name] = true
		size, ok := t.DType.size(t.Shape)
		if !ok || end+size < end {
			return fail(place(t.Name), fmt.Sprintf("%v of shape %v", t.DType, t.Shape), "whole bytes, fewer than 2^63 in all")
		}
		t.Offset, t.Size = end, size
		end += size
	}
	if n := len(h.json()); n > maxHeader {
		return fail("header", fmt.Sprintf("%d bytes", n), fmt.Sprintf("at most %d", maxHeader))
	}
	return nil
}

// DataSize is the bytes of all tensors of h, which is laid out.
func (h *Header) DataSize() int64 {
	if len(h.Tensors) == 0 {
		return 0
	}
	t := &h.Tensors[len(h.Tensors)-1]
	return t.Offset + t.Size
}

// Encode returns the bytes of the file up to the first tensor's data, of a
// header that is laid out.
func (h *Header) Encode() []byte {
	text := h.json()
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
}

func (h *Header) json() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	if len(h.Metadata) > 0 {
		fmt.Fprintf(&b, "%q:{", metadataKey)
		for i, kv := range h.Metadata {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quote(kv.Key) + ":" + quote(kv.Value))
		}
		b.WriteByte('}')
	}
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(t.Shape), "[]"), " ", ",")
		fmt.Fprintf(&b, `%s:{"dtype":"%v","shape":[%s],"data_offsets":[%d,%d]}`, quote(t.Name), t.DType, shape, t.Offset, t.Offset+t.Size)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// quote writes a string as JSON, without the escapes that HTML wants.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}

// Split divides tensors into files of at most max bytes of data each, in their
// order; one that is larger gets a file of its own. The headers are laid out and
// all have h's metadata. max 0 means one file.
func (h *Header) Split(max int64) ([]Header, error) {
	if err := h.LayOut(); err != nil {
		return nil, err
	}
	files := []Header{{Metadata: h.Metadata}}
	var size int64
	for _, t := range h.Tensors {
		last := &files[len(files)-1]
		if max > 0 && size+t.Size > max && len(last.Tensors) > 0 {
			files, size = append(files, Header{Metadata: h.Metadata}), 0
			last = &files[len(files)-1]
		}
		last.Tensors = append(last.Tensors, t)
		size += t.Size
	}
	for i := range files {
		if err := files[i].LayOut(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Writer writes a file: the header, then the tensors' data in order.
type Writer struct {
	w    io.Writer
	left int64
}

// NewWriter lays out h and writes all that precedes the data.
func NewWriter(w io.Writer, h *Header) (*Writer, error) {
	if err := h.LayOut(); err != nil {
		return nil, err
	}
	if _, err := w.Write(h.Encode()); err != nil {
		return nil, err
	}
	return &Writer{w, h.DataSize()}, nil
}

// Write writes data, and no more than is left.
func (x *Writer) Write(b []byte) (int, error) {
	if int64(len(b)) > x.left {
		return 0, fmt.Errorf("safetensors: %d bytes of data, %d are left", len(b), x.left)
	}
	n, err := x.w.Write(b)
	x.left -= int64(n)
	return n, err
}

// Close reports an error if data is missing. It does not close the file.
func (x *Writer) Close() error {
	if x.left > 0 {
		return fmt.Errorf("safetensors: %d bytes of data are missing", x.left)
	}
	return nil
}
