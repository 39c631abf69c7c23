package coded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"npack/internal/machine"
	"npack/pack"
	"npack/pack/native"
	"npack/ternary"
)

// File is a transport that was decoded into memory.
type File struct {
	*native.File // of the container
}

// Open decodes the transport at path into memory, as many bytes as the
// container has, and opens that. The sizes in the file must be possible and
// the memory must be there before any is taken. It ends with ctx.
func Open(ctx context.Context, path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	x, err := ReadIndex(ctx, path, f, st.Size())
	if err != nil {
		return nil, err
	}
	free := machine.ReadMemory().Available
	if free > 0 && x.Header.SourceSize > free || x.Header.SourceSize != int64(int(x.Header.SourceSize)) {
		return nil, &pack.Error{Kind: pack.ErrNoSpace, File: path, Offset: -1,
			Found: fmt.Sprintf("the container takes %d bytes of memory, %d are available", x.Header.SourceSize, free),
			Hint:  fmt.Sprintf("expand it once and use the container, which is mapped: npack expand %q", path)}
	}
	var out bytes.Buffer
	if free > 0 { // else it grows with what is really decoded
		out.Grow(int(x.Header.SourceSize))
	}
	if err := Decode(ctx, x.Header, io.NewSectionReader(f, HeaderSize, st.Size()-HeaderSize), &out, DecodeOptions{Name: path, Size: st.Size()}); err != nil {
		return nil, err
	}
	n, err := native.OpenBytes(path, out.Bytes())
	if err != nil {
		return nil, decoded(err)
	}
	return &File{n}, nil
}

// Place says that offsets count in the container, not in the file.
func (f *File) Place(err error) error { return decoded(f.File.Place(err)) }

func decoded(err error) error {
	var e *pack.Error
	if errors.As(err, &e) {
		c := *e
		if c.Place = "decoded container"; e.Place != "" {
			c.Place += ": " + e.Place
		}
		return &c
	}
	return err
}

// Write writes m as a transport. The container goes to a temporary file
// meanwhile: the coder reads it more than once.
func Write(w io.Writer, m *ternary.Model) (err error) {
	f, err := os.CreateTemp("", "npack-*.bin")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := native.Write(f, m); err != nil {
		return err
	}
	return Encode(context.Background(), f, native.ModelSize(m), w, EncodeOptions{})
}
