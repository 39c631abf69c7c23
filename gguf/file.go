// Package gguf reads and writes GGUF files, versions 2 and 3, and the block
// formats of llama.cpp that concern ternary models. It knows no model: what
// keys and tensors mean is for its callers. FORMAT.md beside this file is the
// description; "§" in comments names a section of it.
//
// A file is mapped into memory. Opening it takes time by its metadata, not its
// tensors: metadata stays as it lies in the file and tensors are views.
package gguf

import (
	"fmt"
	"math"
	"os"
)

// File is an open GGUF file, or an open set of shards. All slices in it are
// views of the mapped files and are valid until Close; the files must not be
// changed or cut short meanwhile.
type File struct {
	Header
	// Shards are the files of a set in order, or nil. The Header is then the
	// first one's, but Tensors are those of all.
	Shards []*File

	name      string
	data      []byte
	dataStart int64 // of the tensors' data, in data
	unmap     func() error
	release   func([]byte)
}

// Header is what precedes the tensors' data: what a file is written from.
type Header struct {
	Version   uint32 // 2 or 3
	Alignment int    // of tensors' data, in bytes; general.alignment or 32
	Metadata  []KV
	Tensors   []Tensor
	// Unpadded says that the file ends with the last tensor's last byte. Most
	// writers pad the last tensor like all others.
	Unpadded bool
}

// Tensor is an entry of the table of tensors.
type Tensor struct {
	Name   string
	Dims   []uint64 // fastest first: columns, rows; empty for one value
	Type   Type
	Offset int64 // in the data section, in bytes
	Size   int64 // in bytes, without padding

	Data     []byte // [Size], a view of an open file
	FileAt   int64  // where Data starts in its file, in bytes
	fileName string
}

// Rows is the product of all dimensions but the first.
func (t *Tensor) Rows() uint64 {
	n := uint64(1)
	for _, d := range t.Dims[min(1, len(t.Dims)):] {
		n *= d
	}
	return n
}

// Cols is the first dimension: the values of a row.
func (t *Tensor) Cols() uint64 {
	if len(t.Dims) == 0 {
		return 1
	}
	return t.Dims[0]
}

// File is the name of the file that holds the tensor: a shard's in a set.
func (t *Tensor) File() string { return t.fileName }

// Value returns the metadata under key.
func (h *Header) Value(key string) (Value, bool) {
	for i := range h.Metadata {
		if h.Metadata[i].Key == key {
			return h.Metadata[i].Value, true
		}
	}
	return Value{}, false
}

// Tensor returns the tensor of that name, or nil.
func (h *Header) Tensor(name string) *Tensor {
	for i := range h.Tensors {
		if h.Tensors[i].Name == name {
			return &h.Tensors[i]
		}
	}
	return nil
}

// Open maps the file at path and reads its metadata and table of tensors. A file
// that is a shard (§6) opens the whole set, whichever of its files path names.
// Errors about the content are an [*Error].
func Open(path string) (*File, error) {
	f, err := openOne(path)
	if err != nil {
		return nil, err
	}
	set, err := f.openShards()
	if err != nil {
		f.Close()
		return nil, err
	}
	return set, nil
}

// openOne opens a single file.
func openOne(path string) (*File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() { // asked before opening: opening a pipe waits
		return nil, &Error{Kind: ErrNotGGUF, File: path, Offset: -1, Found: "not a regular file", Expected: "a GGUF file",
			Hint: "a file is mapped into memory, so it cannot come from a pipe or be a directory"}
	}
	fd, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	if st, err = fd.Stat(); err != nil {
		return nil, err
	}
	if st.Size() == 0 { // cannot be mapped
		return nil, &Error{Kind: ErrTruncated, File: path, Offset: -1, Found: "the file is empty", Expected: "a GGUF file", Hint: hintIncomplete}
	}
	if st.Size() > math.MaxInt {
		return nil, &Error{Kind: ErrUnsupported, File: path, Offset: -1, Found: fmt.Sprintf("the file has %d bytes", st.Size()),
			Expected: fmt.Sprintf("at most %d, the address space of this program", math.MaxInt), Hint: "use the 64-bit program"}
	}
	m, err := mapFile(fd, st.Size())
	if err != nil {
		return nil, err
	}
	f := &File{name: path, data: m.data, unmap: m.close, release: m.release}
	if err := f.parse(); err != nil {
		m.close()
		return nil, err
	}
	return f, nil
}

// OpenBytes opens a file that is in memory. b must not change afterwards; name
// is used in errors. A shard opens as the one file that it is.
func OpenBytes(name string, b []byte) (*File, error) {
	f := &File{name: name, data: b, unmap: func() error { return nil }}
	if err := f.parse(); err != nil {
		return nil, err
	}
	return f, nil
}

// Name is the path or name that the file was opened with.
func (f *File) Name() string { return f.name }

// Length is the length of the file in bytes, of all files of a set.
func (f *File) Length() int64 {
	if f.Shards == nil {
		return int64(len(f.data))
	}
	var n int64
	for _, s := range f.Shards {
		n += s.Length()
	}
	return n
}

// DataStart is where the data section begins, in bytes; of a set, in the first
// shard.
func (f *File) DataStart() int64 { return f.dataStart }

// Release tells that the bytes of b, a part of a tensor's Data, will not be
// needed soon: they leave this process's memory and come back when touched.
func (f *File) Release(b []byte) {
	if f.release != nil {
		f.release(b)
	}
	for _, s := range f.Shards {
		if s != f {
			s.Release(b)
		}
	}
}

// Close unmaps the file. Nothing that came from it must be used afterwards.
func (f *File) Close() error {
	if f.Shards != nil {
		var err error
		for _, s := range f.Shards {
			if e := s.Close(); err == nil {
				err = e
			}
		}
		f.Shards = nil
		return err
	}
	if f.unmap == nil {
		return nil
	}
	unmap := f.unmap
	*f = File{name: f.name}
	return unmap()
}

const hintIncomplete = "the download may be incomplete: compare the size with the publisher's and fetch the rest"
