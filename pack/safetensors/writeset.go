package safetensors

import (
	"fmt"
	"io"

	"npack/internal/outfile"
)

// WriteSet writes the files of a model, and their index if they are several,
// into d. data writes the data of all tensors in order to w.
func WriteSet(d *outfile.Dir, files []Header, data func(w io.Writer) error) error {
	w := &setWriter{dir: d, files: files}
	defer w.abort()
	if err := w.next(); err != nil {
		return err
	}
	if err := data(w); err != nil {
		return err
	}
	if err := w.close(); err != nil || len(files) == 1 {
		return err
	}
	return d.WriteFile(ModelName+IndexSuffix, EncodeIndex(files))
}

// setWriter writes to one file after the other.
type setWriter struct {
	dir   *outfile.Dir
	files []Header
	i     int           // the next file
	file  *outfile.File // nil before the first and behind the last
	w     *Writer
}

// next completes the current file and starts the next one.
func (x *setWriter) next() error {
	if x.file != nil {
		if err := x.w.Close(); err != nil {
			return err
		}
		if err := x.file.Commit(); err != nil {
			return err
		}
		x.file = nil
	}
	if x.i == len(x.files) {
		return nil
	}
	f, err := x.dir.Create(ShardName(x.i, len(x.files)))
	if err != nil {
		return err
	}
	x.file = f
	x.w, err = NewWriter(f, &x.files[x.i])
	x.i++
	return err
}

func (x *setWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		for x.file != nil && x.w.left == 0 {
			if err := x.next(); err != nil {
				return n, err
			}
		}
		if x.file == nil {
			return n, fmt.Errorf("safetensors: %d bytes of data too many", len(b))
		}
		part := b[:min(int64(len(b)), x.w.left)]
		k, err := x.w.Write(part)
		n, b = n+k, b[k:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// close completes the files that are left, which have no data or all of it.
func (x *setWriter) close() error {
	for x.file != nil {
		if err := x.next(); err != nil {
			return err
		}
	}
	return nil
}

func (x *setWriter) abort() {
	if x.file != nil {
		x.file.Abort()
	}
}
