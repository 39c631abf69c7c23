// Package formats is the table of model file formats and opens a model of any
// of them.
package formats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"npack/gguf"
	"npack/pack"
	"npack/pack/coded"
	"npack/pack/fv5"
	"npack/pack/mlx"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/pack/safetensors"
	"npack/ternary"
)

// Source is an open model file.
type Source interface {
	// Model is valid until Close. Its structure is checked, its values are
	// not.
	Model() *ternary.Model
	// Name is the path that was opened.
	Name() string
	// Size is the length of the file in bytes.
	Size() int64
	// Place adds the place in the file to an error of the model.
	Place(err error) error
	Close() error
}

// Format is one kind of model file.
type Format struct {
	Name       string    // short, lower case, as on the command line
	About      string    // one line for people
	Extensions []string  // with the dot
	Kind       pack.Kind // how files of it are recognised
	// Is tells formats with files of one kind apart; nil where there is one.
	Is func(path string) bool

	// Open opens a file; nil if this program does not read the format. What takes
	// long, which is decoding alone, ends with ctx.
	Open func(ctx context.Context, path string) (Source, error)
	// Write writes a model; nil if this program does not write the format.
	Write func(w io.Writer, m *ternary.Model) error
	// Size tells how many bytes Write will write; nil if only writing tells.
	Size func(m *ternary.Model) int64
	// Directory says that a model is a directory, which its own command writes.
	Directory bool
}

// Derived is a Source in a format of other programs that may know which
// container it was made of.
type Derived interface {
	Source
	// Container returns the sha256, in hex, and the length in bytes of that
	// container; ok is false if the file does not say.
	Container() (sha256 string, bytes int64, ok bool)
	// CheckTensors compares the data with what the file says of it, until ctx
	// ends.
	CheckTensors(ctx context.Context) error
	// Length is the bytes of all files; Size is the container's.
	Length() int64
}

// All is the table of formats, in the order in which they are listed.
var All = []Format{
	{
		Name: "native", About: "the native container (TRTC v4)", Extensions: []string{".bin"}, Kind: pack.KindTRTC,
		Open:  func(_ context.Context, path string) (Source, error) { return source(native.Open(path)) },
		Write: native.Write, Size: native.ModelSize,
	},
	{
		Name: "tv4z", About: "the coded transport of a native container", Extensions: []string{".tv4z"}, Kind: pack.KindTV4Z,
		// In memory, all of it: who opens a large one often should expand it.
		Open:  func(ctx context.Context, path string) (Source, error) { return source(coded.Open(ctx, path)) },
		Write: coded.Write,
	},
	{
		Name: "gguf", About: "GGUF with the tensor types FV5 and FV5B", Extensions: []string{".gguf"}, Kind: pack.KindGGUF,
		Open:  func(_ context.Context, path string) (Source, error) { return source(fv5.Open(path)) },
		Write: func(w io.Writer, m *ternary.Model) error { return fv5.Write(w, m, fv5.Options{}) },
	},
	{
		Name: "mlx", About: "a directory for mlx-lm", Extensions: []string{safetensors.Extension}, Kind: pack.KindSafetensors, Directory: true,
		Is:   mlx.Is,
		Open: func(_ context.Context, path string) (Source, error) { return source(mlx.Open(path)) },
	},
	{Name: "safetensors", About: "safetensors", Extensions: []string{safetensors.Extension}, Kind: pack.KindSafetensors},
}

// source keeps a nil pointer out of the interface.
func source[F Source](f F, err error) (Source, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ByName returns the format with the given name.
func ByName(name string) (*Format, error) {
	var names []string
	for i := range All {
		if All[i].Name == name {
			return &All[i], nil
		}
		names = append(names, All[i].Name)
	}
	return nil, fmt.Errorf("unknown format %q: %s", name, strings.Join(names, ", "))
}

// Detect tells the format of the file at path from its first bytes. Errors
// about the content are [*pack.Error].
func Detect(path string) (*Format, error) {
	// Asked before opening: opening a pipe waits for its writer.
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &pack.Error{Kind: pack.ErrNotModel, File: path, Offset: -1, Found: "not a regular file", Expected: "a model file or a pack directory"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, min(st.Size(), pack.SniffLen))
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, err
	}
	kind, err := pack.Identify(path, head, st.Size())
	if err != nil {
		return nil, err
	}
	for i := range All {
		if All[i].Kind == kind && (All[i].Is == nil || All[i].Is(path)) {
			return &All[i], nil
		}
	}
	return nil, fmt.Errorf("%s: no format for %s", path, kind)
}

// Open opens a model: a file of any format that this program reads, or a pack
// directory, of which it takes the container (see [Container]). A coded transport
// is decoded into memory, until ctx ends.
func Open(ctx context.Context, path string) (Source, error) {
	path, err := Container(path)
	if err != nil {
		return nil, err
	}
	f, err := Detect(path)
	if err != nil {
		return nil, err
	}
	if f.Open == nil {
		return nil, &pack.Error{Kind: pack.ErrUnsupported, File: path, Offset: 0,
			Found: "this is " + f.About + ", which this version does not read", Expected: "a native container (TRTC)",
			Hint: "\"npack import\" makes a container of a model whose weights have at most two magnitudes a row"}
	}
	return f.Open(ctx, path)
}

// Container returns the model file that path means: path itself unless it is a
// directory, otherwise the container that the directory's MANIFEST.json names,
// otherwise the only *.bin in it, otherwise the only file of another format that
// is read, by its extension. The shards of a GGUF file count as one. Symbolic
// links are followed.
func Container(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		return path, err
	}
	m, err := pack.ReadManifest(filepath.Join(path, pack.ManifestName))
	switch {
	case err == nil && m.WeightsContainer != nil:
		file := filepath.Join(path, filepath.FromSlash(m.WeightsContainer.File))
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return "", &pack.Error{Kind: pack.ErrTruncated, File: file, Offset: -1,
				Found: "the container that " + pack.ManifestName + " names is not there", Expected: fmt.Sprintf("%d bytes", m.WeightsContainer.Bytes),
				Hint: "fetch it, or name another model file"}
		}
		return file, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	found := models(path, entries, All[:1])
	if len(found) == 0 {
		found = models(path, entries, All[1:])
	}
	switch len(found) {
	case 1:
		return filepath.Join(path, found[0]), nil
	case 0:
		hint := "name the model file itself"
		if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == safetensors.Extension }) {
			hint = "its safetensors are no MLX pack; \"npack import\" makes a container of a Hugging Face directory"
		}
		return "", &pack.Error{Kind: pack.ErrNotModel, File: path, Offset: -1, Found: "no model file in the directory: no *.bin, *.gguf, *.tv4z and no MLX pack", Expected: "one of them",
			Hint: hint}
	}
	return "", &pack.Error{Kind: pack.ErrNotModel, File: path, Offset: -1, Found: fmt.Sprintf("%d model files: %s", len(found), strings.Join(found, ", ")),
		Expected: "one, or a " + pack.ManifestName + " that names it", Hint: "name the model file itself"}
}

// ShardSet returns what the names of all files of a model have in common, or ""
// if name is not that of one of several.
func ShardSet(name string) string {
	if set := gguf.ShardSet(name); set != "" {
		return set
	}
	return safetensors.ShardSet(name)
}

// models returns the files in dir that have an extension of a format that is
// read, of a set of shards the first that is there.
func models(dir string, entries []os.DirEntry, of []Format) (found []string) {
	sets := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		known := slices.ContainsFunc(of, func(f Format) bool {
			return f.Open != nil && slices.Contains(f.Extensions, strings.ToLower(filepath.Ext(name))) && (f.Is == nil || f.Is(filepath.Join(dir, name)))
		})
		set := ShardSet(name)
		if !known || strings.HasPrefix(name, ".") || name == rows.Name || sets[set] {
			continue
		}
		sets[set] = set != ""
		found = append(found, name)
	}
	return found
}
