// Package native reads and writes the native container ("TRTC v4"), the file
// that the publisher's tools make and that npack writes. FORMAT.md beside this
// file is its description; "§" in comments names a section of it.
//
// A file is mapped into memory and opening it takes time by the number of
// records, not bytes: planes, tables and, on little-endian machines, numbers
// are views of the map.
package native

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"

	"npack/pack"
	"npack/ternary"
)

// File is an open container. Its model's slices are views of the file and are
// valid until Close; the file must not be changed or cut short meanwhile.
type File struct {
	name    string
	data    []byte
	model   ternary.Model
	records []Record
	unmap   func() error
}

// Open maps the container at path and checks its structure (§5): everything
// but the values of weights, for which see [ternary.Model.Validate]. Errors are
// [*pack.Error].
func Open(path string) (*File, error) {
	fd, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	st, err := fd.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &pack.Error{Kind: pack.ErrNotModel, File: path, Offset: -1,
			Found: "not a regular file", Expected: "a native container", Hint: "a container is mapped into memory, so it cannot come from a pipe or be a directory"}
	}
	head := make([]byte, min(st.Size(), pack.SniffLen))
	if _, err := fd.ReadAt(head, 0); err != nil {
		return nil, err
	}
	if err := checkKind(path, head, st.Size()); err != nil {
		return nil, err
	}
	if st.Size() > math.MaxInt {
		return nil, &pack.Error{Kind: pack.ErrNoSpace, File: path, Offset: -1, Found: fmt.Sprintf("the file has %d bytes", st.Size()),
			Expected: fmt.Sprintf("at most %d, the address space of this program", math.MaxInt), Hint: "use the 64-bit program"}
	}
	m, err := mapFile(fd, st.Size())
	if err != nil {
		return nil, err
	}
	f := &File{name: path, data: m.data, unmap: m.close}
	if err := f.parse(fd); err != nil {
		err = f.explainPacked(fd, err)
		m.close()
		return nil, err
	}
	f.model.Release = m.release
	return f, nil
}

// OpenBytes opens a container that is in memory, such as an embedded one. b
// must not change afterwards; name is used in errors.
func OpenBytes(name string, b []byte) (*File, error) {
	if err := checkKind(name, b[:min(len(b), pack.SniffLen)], int64(len(b))); err != nil {
		return nil, err
	}
	f := &File{name: name, data: b, unmap: func() error { return nil }}
	if err := f.parse(bytes.NewReader(b)); err != nil {
		return nil, f.explainPacked(bytes.NewReader(b), err)
	}
	return f, nil
}

// checkKind refuses what is not a native container by its first bytes.
func checkKind(name string, head []byte, size int64) error {
	kind, err := pack.Identify(name, head, size)
	if err != nil {
		return err
	}
	if kind != pack.KindTRTC {
		return &pack.Error{Kind: pack.ErrUnsupported, File: name, Offset: 0,
			Found: "this is a " + kind.String() + " file", Expected: "a native container, which starts with \"TRTC\"",
			Hint: "\"npack inspect\" tells what a file is"}
	}
	return nil
}

// Name is the path or name that the file was opened with.
func (f *File) Name() string { return f.name }

// Size is the length of the file in bytes.
func (f *File) Size() int64 { return int64(len(f.data)) }

// Model returns the model, whose slices are views of the file. Structure is
// checked, values are not.
func (f *File) Model() *ternary.Model { return &f.model }

// Records returns the parts of the file in order, the header first. They tile
// the file.
func (f *File) Records() []Record { return f.records }

// Close unmaps the file. The model must not be used afterwards.
func (f *File) Close() error {
	if f.unmap == nil {
		return nil
	}
	unmap := f.unmap
	*f = File{name: f.name}
	return unmap()
}

// Place turns an error of the model, a [*ternary.Error], into a [*pack.Error]
// with the place in the file. Other errors are returned as they are.
func (f *File) Place(err error) error {
	if errors.Is(err, ternary.ErrFault) {
		return pack.Unreadable(f.name, err)
	}
	var e *ternary.Error
	if !errors.As(err, &e) {
		return err
	}
	return f.place(e)
}

func (f *File) place(e *ternary.Error) *pack.Error {
	p := &pack.Error{Kind: pack.ErrCorrupt, File: f.name, Place: fmt.Sprintf("tensor %q", e.Tensor), Offset: -1,
		Found: e.Found, Expected: e.Expected, Hint: hintDamaged}
	if at := e.At(); at != "" {
		p.Place += ": " + at
	}
	if e.Tensor == "" {
		p.Place = "header"
		if off, ok := headerOffset(e.Part); ok {
			p.Offset = off
		}
		return p
	}
	for i := range f.records {
		r := &f.records[i]
		if r.Name != e.Tensor {
			continue
		}
		p.Offset = r.Offset
		if off, ok := r.PartOffset(e.Part); ok {
			p.Offset = off + r.within(e.Part, e.Row, e.Col)
		}
		return p
	}
	return p
}

const hintDamaged = "the file is damaged: compare its sha256 with the publisher's (\"npack verify\") and fetch it again"
