// Package safetensors reads and writes safetensors files and the sets of them
// that Hugging Face repositories consist of. It knows no model: what names mean
// is for its callers. FORMAT.md beside this file is the description; "§" in
// comments names a section of it.
//
// Opening a file reads its header alone. Data is read where and when it is
// asked for, with [Tensor.ReadAt], so that memory does not depend on the size of
// a file.
package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"npack/pack"
)

// File is an open safetensors file or an open set of them. It may be used by
// several goroutines. The files must not be changed or cut short until Close.
type File struct {
	// Header is what the file says; of a set, Metadata is the first file's and
	// Tensors are those of all, file after file.
	Header
	name   string
	files  []*file
	byName map[string]int // index in Tensors
}

// Header is what precedes the data: what a file is written from.
type Header struct {
	Metadata []KV     // in the file's order
	Tensors  []Tensor // in the header's order, which need not be that of the data
}

// KV is an entry of the metadata.
type KV struct{ Key, Value string }

// Tensor is an entry of the header.
type Tensor struct {
	Name   string
	DType  DType
	Shape  []int64 // slowest first: rows, columns; empty for one value
	Offset int64   // in the data section, in bytes
	Size   int64   // in bytes

	file *file // where the data is; nil in a header that is being made
}

// file is one file of a set.
type file struct {
	name string
	r    io.ReaderAt
	data int64 // where the data section starts, in bytes
	end  int64 // of the file
}

// Rows is the product of all dimensions but the last.
func (t *Tensor) Rows() int64 {
	n := int64(1)
	for _, d := range t.Shape[:max(0, len(t.Shape)-1)] {
		n *= d
	}
	return n
}

// Cols is the last dimension: the values of a row.
func (t *Tensor) Cols() int64 {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// File is the name of the file that holds the tensor: a shard's in a set.
func (t *Tensor) File() string { return t.file.name }

// FileAt is where the tensor's data starts in its file, in bytes.
func (t *Tensor) FileAt() int64 { return t.file.data + t.Offset }

// ReadAt reads the tensor's data from off on, as [io.ReaderAt] does. It may be
// called from several goroutines, of an open file. A file that has become
// shorter is an error of kind [pack.ErrTruncated].
func (t *Tensor) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > t.Size {
		return 0, fmt.Errorf("tensor %q: byte %d of %d", t.Name, off, t.Size)
	}
	short := int64(len(p)) > t.Size-off
	if short {
		p = p[:t.Size-off]
	}
	n, err := t.file.r.ReadAt(p, t.FileAt()+off)
	switch {
	case n == len(p) && short:
		return n, io.EOF
	case n == len(p):
		return n, nil
	case errors.Is(err, io.EOF):
		err = &pack.Error{Kind: pack.ErrTruncated, File: t.file.name, Place: place(t.Name), Offset: t.FileAt() + off + int64(n),
			Found: "the file ends here", Expected: fmt.Sprintf("%d bytes, as when it was opened", t.file.end), Hint: "let no other program change the file while it is read"}
	}
	return n, err
}

// Floats returns all values of a tensor of type F32, BF16 or F16, exactly, as a
// new slice. The caller has looked at the shape: a tensor may be large.
func (t *Tensor) Floats() ([]float32, error) {
	bits := t.DType.Bits()
	if !t.DType.isFloat() {
		return nil, &pack.Error{Kind: pack.ErrUnsupported, File: t.File(), Place: place(t.Name), Offset: t.FileAt(),
			Found: fmt.Sprintf("type %v", t.DType), Expected: "F32, BF16 or F16", Hint: "convert the tensor to one of them"}
	}
	b := make([]byte, t.Size)
	if _, err := t.ReadAt(b, 0); err != nil {
		return nil, err
	}
	v := make([]float32, len(b)/(bits/8))
	t.DType.Float32s(v, b)
	return v, nil
}

// Tensor returns the tensor of that name, or nil.
func (f *File) Tensor(name string) *Tensor {
	if i, ok := f.byName[name]; ok {
		return &f.Tensors[i]
	}
	return nil
}

// Name is the path that was opened.
func (f *File) Name() string { return f.name }

// Files are the names of the files of the set, in order.
func (f *File) Files() []string {
	var names []string
	for _, x := range f.files {
		names = append(names, x.name)
	}
	return names
}

// Size is the length of all files together in bytes.
func (f *File) Size() int64 {
	var n int64
	for _, x := range f.files {
		n += x.end
	}
	return n
}

// Close closes the files.
func (f *File) Close() error {
	var errs []error
	for _, x := range f.files {
		if c, ok := x.r.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// Open opens the file at path. An index (*.index.json), a file whose name says
// that it is one of several (§4), or a directory opens the whole set. Errors
// about the content are [*pack.Error].
func Open(path string) (*File, error) {
	paths, index, err := set(path)
	if err != nil {
		return nil, err
	}
	f := &File{name: path}
	for _, p := range paths {
		if err := f.add(p); err != nil {
			f.Close()
			return nil, err
		}
	}
	err = f.index()
	if err == nil && index != nil {
		err = index.check(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// New opens a file of size bytes that r reads; name is used in errors. The file
// is read by itself, whatever its name is.
func New(name string, r io.ReaderAt, size int64) (*File, error) {
	f := &File{name: name}
	x := &file{name: name, r: r, end: size}
	h, err := x.parse()
	if err != nil {
		return nil, err
	}
	f.files, f.Header = []*file{x}, *h
	return f, f.index()
}

// add opens one file of the set.
func (f *File) add(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() { // asked before opening: opening a pipe waits
		return &pack.Error{Kind: pack.ErrNotModel, File: path, Offset: -1, Found: "not a regular file", Expected: "a safetensors file"}
	}
	fd, err := os.Open(path)
	if err != nil {
		return err
	}
	x := &file{name: path, r: fd, end: st.Size()}
	f.files = append(f.files, x)
	if err := x.identify(); err != nil {
		return err
	}
	h, err := x.parse()
	if err != nil {
		return err
	}
	if len(f.Tensors)+len(h.Tensors) > maxSetTensors {
		return x.fail(pack.ErrUnsupported, "", 0, fmt.Sprintf("more than %d tensors in the set", maxSetTensors), "fewer", "no known model has as many")
	}
	if len(f.files) == 1 {
		f.Metadata = h.Metadata
	}
	f.Tensors = append(f.Tensors, h.Tensors...)
	return nil
}

// identify refuses what is no safetensors file at all in the words of package
// pack.
func (x *file) identify() error {
	head := make([]byte, min(x.end, pack.SniffLen))
	if _, err := x.r.ReadAt(head, 0); err != nil {
		return err
	}
	kind, err := pack.Identify(x.name, head, x.end)
	if err == nil && kind != pack.KindSafetensors {
		err = &pack.Error{Kind: pack.ErrNotModel, File: x.name, Offset: 0, Found: "this is a " + kind.String() + " file", Expected: "safetensors"}
	}
	return err
}

// index makes the index by name and refuses a name that is in two files.
func (f *File) index() error {
	f.byName = make(map[string]int, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if j, twice := f.byName[t.Name]; twice {
			return t.file.fail(pack.ErrCorrupt, place(t.Name), -1, fmt.Sprintf("the tensor is in %q as well", f.Tensors[j].file.name), "each tensor once", hintDamaged)
		}
		f.byName[t.Name] = i
	}
	return nil
}

func (x *file) fail(kind error, place string, offset int64, found, expected, hint string) *pack.Error {
	return &pack.Error{Kind: kind, File: x.name, Place: place, Offset: offset, Found: found, Expected: expected, Hint: hint}
}

func place(name string) string { return fmt.Sprintf("tensor %q", name) }

const (
	hintDamaged    = "the file is damaged or was made wrongly: compare its sha256 with the publisher's and fetch it again"
	hintIncomplete = "the download may be incomplete: compare the size with the publisher's and fetch the rest"
)

// sorted returns the tensors in the order of their data.
func sorted(tensors []Tensor) []*Tensor {
	p := make([]*Tensor, len(tensors))
	for i := range tensors {
		p[i] = &tensors[i]
	}
	slices.SortStableFunc(p, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	})
	return p
}
