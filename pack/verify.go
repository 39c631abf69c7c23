package pack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Status is what comparing a file with its pin gave.
type Status string

const (
	StatusOK      Status = "ok"
	StatusMissing Status = "missing"
	StatusSize    Status = "wrong size"
	StatusSHA256  Status = "wrong sha256"
)

// FileCheck is the result of comparing one file with its pin.
type FileCheck struct {
	Name   string `json:"name"`
	Want   Pin    `json:"want"`
	Got    Pin    `json:"got"` // without a sha256 if the size is wrong already
	Status Status `json:"status"`
}

// Err returns nil if the file is as pinned, otherwise an [*Error] of kind
// ErrTruncated (missing or too short) or ErrNotEqual.
func (c *FileCheck) Err() error {
	e := &Error{Kind: ErrNotEqual, File: c.Name, Offset: -1, Hint: "fetch the file again"}
	switch c.Status {
	case StatusOK:
		return nil
	case StatusMissing:
		e.Kind, e.Found, e.Expected = ErrTruncated, "the file is missing", fmt.Sprintf("%d bytes, as the manifest says", c.Want.Bytes)
	case StatusSize:
		e.Found, e.Expected = fmt.Sprintf("%d bytes", c.Got.Bytes), fmt.Sprintf("%d, as the manifest says", c.Want.Bytes)
		if c.Got.Bytes < c.Want.Bytes {
			e.Kind, e.Hint = ErrTruncated, "the download may be incomplete: fetch the rest"
		}
	case StatusSHA256:
		e.Found, e.Expected = "sha256 "+c.Got.SHA256, c.Want.SHA256+", as the manifest says"
	}
	return e
}

// Pin returns what the manifest says about the file of that name, relative to
// the manifest's directory.
func (m *Manifest) Pin(name string) (Pin, bool) {
	if c := m.WeightsContainer; c != nil && c.File == name {
		return c.Pin, true
	}
	p, ok := m.Files[name]
	return p, ok
}

// Names returns the names of all pinned files, the container first, then
// sorted.
func (m *Manifest) Names() []string {
	names := slices.Sorted(maps.Keys(m.Files))
	if c := m.WeightsContainer; c != nil {
		names = slices.DeleteFunc(names, func(n string) bool { return n == c.File })
		names = slices.Insert(names, 0, c.File)
	}
	return names
}

// Progress is told which file is being read, and how many bytes of how many
// are done over all files. It may be nil.
type Progress func(file string, done, total int64)

// Verify compares the named files in dir, or all of [Manifest.Names] if names
// is empty, with their pins. A file that differs is a result, not an error; the
// error is ctx's or that of reading.
func (m *Manifest) Verify(ctx context.Context, dir string, names []string, progress Progress) ([]FileCheck, error) {
	if len(names) == 0 {
		names = m.Names()
	}
	checks := make([]FileCheck, len(names))
	var total, done int64
	for i, name := range names {
		want, ok := m.Pin(name)
		if !ok {
			return nil, fmt.Errorf("%s does not pin %q", ManifestName, name)
		}
		c := &checks[i]
		*c = FileCheck{Name: name, Want: want, Status: StatusOK}
		st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			c.Status = StatusMissing
		case err != nil:
			return nil, err
		case !st.Mode().IsRegular():
			return nil, fmt.Errorf("%s is not a regular file", filepath.Join(dir, name))
		case st.Size() != want.Bytes:
			c.Status, c.Got.Bytes = StatusSize, st.Size()
		default:
			total += want.Bytes
		}
	}
	for i := range checks {
		c := &checks[i]
		if c.Status != StatusOK {
			continue
		}
		got, err := HashFile(ctx, filepath.Join(dir, filepath.FromSlash(c.Name)), func(n int64) {
			if progress != nil {
				progress(c.Name, done+n, total)
			}
		})
		if err != nil {
			return nil, err
		}
		done += c.Want.Bytes
		c.Got = got
		switch {
		case got.Bytes != c.Want.Bytes: // changed meanwhile
			c.Status = StatusSize
		case !got.equal(c.Want):
			c.Status = StatusSHA256
		}
	}
	return checks, nil
}

// HashFile reads a file and returns its length and sha256. progress, which may
// be nil, is told the bytes read so far, about once a MiB, which is also how
// often ctx is looked at.
func HashFile(ctx context.Context, path string, progress func(done int64)) (Pin, error) {
	f, err := os.Open(path)
	if err != nil {
		return Pin{}, err
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	var n int64
	for {
		if err := ctx.Err(); err != nil {
			return Pin{}, err
		}
		k, err := f.Read(buf)
		h.Write(buf[:k])
		n += int64(k)
		if progress != nil && k > 0 {
			progress(n)
		}
		if err == io.EOF {
			return Pin{Bytes: n, SHA256: fmt.Sprintf("%x", h.Sum(nil))}, nil
		}
		if err != nil {
			return Pin{}, err
		}
	}
}

// BuildManifest pins all files below dir but hidden ones and the manifest
// itself. container, if not empty, is the name of the model's container in dir;
// a .tv4z file of the same name becomes its coded transport. Symbolic links to
// files count as files, those to directories are not followed.
func BuildManifest(ctx context.Context, dir, container string, progress Progress) (*Manifest, error) {
	sizes := map[string]int64{}
	var total, done int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != dir && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if name := filepath.ToSlash(rel); st.Mode().IsRegular() && name != ManifestName {
			if !LocalName(name) {
				return fmt.Errorf("the name %q cannot be used on every system", name)
			}
			sizes[name] = st.Size()
			total += st.Size()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := &Manifest{Files: make(map[string]Pin, len(sizes))}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		m.Files[name], err = HashFile(ctx, filepath.Join(dir, filepath.FromSlash(name)), func(n int64) {
			if progress != nil {
				progress(name, done+n, total)
			}
		})
		if err != nil {
			return nil, err
		}
		done += sizes[name]
	}
	if container != "" {
		pin, ok := m.Files[container]
		if !ok {
			return nil, fmt.Errorf("the container %q is not in %s", container, dir)
		}
		m.WeightsContainer = &ContainerPin{File: container, Pin: pin}
		coded := strings.TrimSuffix(container, filepath.Ext(container)) + ".tv4z"
		if p, ok := m.Files[coded]; ok {
			m.WeightsContainer.CodedTransport = &CodedTransport{File: coded, Bytes: p.Bytes}
		}
	}
	return m, nil
}
