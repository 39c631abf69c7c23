// Package foreign reads ternary models that other programs have made and brings
// them in as a [ternary.Model]: Hugging Face safetensors (five-valued or ternary
// weights, BitNet b1.58 packed and as trained) and GGUF with ternary types.
// FORMAT.md beside this file lists the sources; "§" in comments names a section
// of it.
//
// Nothing is rounded. Each row is turned into planes and two magnitudes, decoded
// again and compared with the source's values bit for bit; a row that does not
// fit is an error that says what it holds. Models are read row by row, so memory
// does not depend on their size.
package foreign

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"npack/gguf"
	"npack/pack"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
)

// File is an open model of another program. It is valid until Close; its files
// must not be changed meanwhile.
type File struct {
	name string
	form string
	dir  string
	// repository says that the files in dir are parts of the source.
	repository bool
	size       int64
	model      ternary.Model
	sources    map[string]source // by [ternary.Tensor.Name]
	dropped    []Dropped
	closer     io.Closer
	known      *rows.File // or nil
	tables     tableReport
	near       atomic.Int64
	trained    bool // the weights are made ternary by the model
}

// Dropped is something of the source that the container does not hold.
type Dropped struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Options say how a source is read.
type Options struct {
	// RoundTables takes the nearest int8 values for a row of an embedding that
	// no int8 row holds; [File.Rounded] then says how far they are away.
	RoundTables bool
}

// Open opens the model at path: a GGUF file, a safetensors file or its index, or
// a directory with safetensors. It reads norms and biases and checks that all
// parts are there in their shapes; matrices and tables are read, and judged,
// when rows are asked for. Errors are [*pack.Error].
func Open(path string, o Options) (*File, error) {
	kind, err := identify(path)
	if err != nil {
		return nil, err
	}
	f := &File{name: path, tables: tableReport{round: o.RoundTables}}
	switch kind {
	case pack.KindGGUF:
		err = f.openGGUF(path)
	case pack.KindSafetensors:
		err = f.openHF(path)
	default:
		err = &pack.Error{Kind: pack.ErrUnsupported, File: path, Offset: 0, Found: "this is a " + kind.String() + " file", Expected: "GGUF or safetensors of another program",
			Hint: "\"npack convert\" reads it"}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// identify tells what is at path. A directory is one of safetensors.
func identify(path string) (pack.Kind, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return 0, err
	case st.IsDir() || isIndex(path):
		return pack.KindSafetensors, nil
	case !st.Mode().IsRegular(): // asked before opening: opening a pipe waits
		return 0, &pack.Error{Kind: pack.ErrNotModel, File: path, Offset: -1, Found: "not a regular file", Expected: "a model file or a directory"}
	}
	fd, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer fd.Close()
	head := make([]byte, min(st.Size(), pack.SniffLen))
	if _, err := io.ReadFull(fd, head); err != nil {
		return 0, err
	}
	return pack.Identify(path, head, st.Size())
}

// Model returns the model, whose matrices and tables are not in memory. Rows
// that do not fit are an error when they are read.
func (f *File) Model() *ternary.Model { return &f.model }

// Name is the path that was opened.
func (f *File) Name() string { return f.name }

// Form says what kind of source it is, for people.
func (f *File) Form() string { return f.form }

// Size is the length of the source's files with weights in bytes.
func (f *File) Size() int64 { return f.size }

// Dir is the directory of the files that lie beside the source.
func (f *File) Dir() string { return f.dir }

// SideFiles returns those of the named files that lie beside the source and
// belong to it: beside safetensors. A GGUF file has all in itself.
func (f *File) SideFiles(names []string) (found []string) {
	if !f.repository {
		return nil
	}
	for _, name := range names {
		if st, err := os.Stat(filepath.Join(f.dir, name)); err == nil && st.Mode().IsRegular() {
			found = append(found, name)
		}
	}
	return found
}

// GGUF returns the file that the model is read from, or nil if it is none.
func (f *File) GGUF() *gguf.File {
	g, _ := f.closer.(*gguf.File)
	return g
}

// Dropped lists what the container will not hold.
func (f *File) Dropped() []Dropped { return f.dropped }

// Notes says, once all rows have been read, what is to be known about how the
// weights compare with the source's.
func (f *File) Notes() []string {
	var notes []string
	if f.trained {
		notes = append(notes, "weights: what the model makes of its own numbers whenever it runs; the mean of their magnitudes is rounded once")
	}
	if f.tables.narrow.Load() {
		notes = append(notes, "embeddings: the products of int8 and scale are the source's values when rounded to its 16-bit type, as the source itself stores them")
	}
	if f.tables.rounded > 0 {
		notes = append(notes, f.tables.String())
	}
	if n := f.near.Load(); n > 0 {
		notes = append(notes, fmt.Sprintf("%d weights are within %.2g of the threshold of rounding: a program that adds up the mean in another order may take them differently", n, thresholdSlack))
	}
	return notes
}

// Rounded reports whether rows of embeddings had to be rounded.
func (f *File) Rounded() bool { return f.tables.rounded > 0 }

// Container returns the sha256, in hex, and the length of the container that the
// source was exported from, if it says so.
func (f *File) Container() (sha256 string, bytes int64, ok bool) {
	if f.known == nil {
		return "", 0, false
	}
	sha256, bytes = f.known.Container()
	return sha256, bytes, true
}

// Place words errors of reading; those of this package have their place already.
func (f *File) Place(err error) error {
	if errors.Is(err, ternary.ErrFault) {
		return pack.Unreadable(f.name, err)
	}
	return f.configError(f.name, err)
}

// configError turns an error about the geometry into one about a file.
func (f *File) configError(file string, err error) error {
	var e *ternary.Error
	if !errors.As(err, &e) {
		return err
	}
	return &pack.Error{Kind: pack.ErrUnsupported, File: file, Place: e.Tensor, Offset: -1, Found: e.Found, Expected: e.Expected, Hint: hintDamaged}
}

// Close closes the files. The model must not be used afterwards.
func (f *File) Close() error {
	var errs []error
	if f.closer != nil {
		errs = append(errs, f.closer.Close())
	}
	if f.known != nil {
		errs = append(errs, f.known.Close())
	}
	return errors.Join(errs...)
}

func (f *File) drop(name, why string) { f.dropped = append(f.dropped, Dropped{name, why}) }

const hintDamaged = "the file is damaged or was made wrongly: compare its sha256 with the publisher's and fetch it again"

// isIndex reports whether path is the index of a set of safetensors.
func isIndex(path string) bool { return strings.HasSuffix(path, safetensors.IndexSuffix) }
