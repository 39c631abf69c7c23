// Package outfile writes files that appear under their name only when they are
// complete. Until then they lie beside the target under a hidden temporary
// name, so that the last step is one rename.
package outfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"npack/pack"
)

// File is an output that is being written. Exactly one of Commit and Abort
// should be called; Abort after Commit does nothing, so it can be deferred.
type File struct {
	path     string
	reported string // path as errors name it, if it is another
	tmp      *os.File
	n        int64 // bytes written
	done     bool
}

// earlyBytes is how much is written before the disk is told to begin.
const earlyBytes = 32 << 20

// Create starts an output that will become path. size is its length in bytes if
// known, else 0: if the file system has less room, Create writes nothing and
// returns an error of kind [pack.ErrNoSpace]. An existing file at path stays as
// it is until Commit replaces it.
func Create(path string, size int64) (*File, error) {
	if err := place(path); err != nil {
		return nil, err
	}
	if err := room(path, size); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	reportFileLimit()
	// os.CreateTemp would make the file private; this leaves it to the umask.
	for {
		name := filepath.Join(dir, fmt.Sprintf(".%s.tmp%d", filepath.Base(path), rand.Uint32()))
		tmp, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot write %q: %w", path, err)
		}
		return &File{path: path, tmp: tmp}, nil
	}
}

// Check returns the error that [Create] would. What takes long asks it before the
// work, so that no result is lost for a slip in a name.
func Check(path string) error {
	f, err := Create(path, 0)
	if err == nil {
		f.Abort()
	}
	return err
}

// place refuses a path that no file can have.
func place(path string) error {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return fmt.Errorf("cannot write %q: it is a directory; name a file in it", path)
	case err == nil && !st.Mode().IsRegular():
		return fmt.Errorf("cannot write %q: it is there and is not a regular file", path)
	}
	return way(path)
}

// way refuses a path in a directory that is not there, and one that is a link to what
// is not there: the disk that it leads to may be missing, and this one too small.
func way(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if link, err := os.Readlink(path); err == nil {
			return fmt.Errorf("cannot write %q: it is a link to %q, which is not there; remove it or name another output", path, link)
		}
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot write %q: its directory is not there: %w", path, err)
	}
	return nil
}

// room refuses an output of size bytes at path where less is free.
func room(path string, size int64) error {
	if free, ok := freeBytes(filepath.Dir(path)); ok && free < size {
		return &pack.Error{Kind: pack.ErrNoSpace, File: path, Offset: -1,
			Found: fmt.Sprintf("%d bytes are free", free), Expected: fmt.Sprintf("%d for the output", size),
			Hint: "free some space or write to another disk"}
	}
	return nil
}

// Write appends to the output. An error of kind [pack.ErrNoSpace] says how far
// it came.
func (f *File) Write(b []byte) (int, error) {
	n, err := f.tmp.Write(b)
	if f.n/earlyBytes != (f.n+int64(n))/earlyBytes {
		writeEarly(f.tmp)
	}
	f.n += int64(n)
	return n, f.explain(err)
}

// Seek moves to another place in the output, for formats that fill in numbers
// of their header at the end.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.tmp.Seek(offset, whence) }

// TempName is where the output lies until Commit, for checking it.
func (f *File) TempName() string { return f.tmp.Name() }

// Commit makes the output durable and gives it its name. If that fails nothing
// is left of it.
func (f *File) Commit() error {
	defer f.Abort()
	if err := f.explain(f.tmp.Sync()); err != nil {
		return err
	}
	if err := f.explain(f.tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.tmp.Name(), f.path); err != nil {
		return err
	}
	f.done = true
	syncDir(filepath.Dir(f.path))
	return nil
}

// Abort removes what was written, unless it was committed.
func (f *File) Abort() {
	if !f.done {
		f.done = true
		f.tmp.Close()
		os.Remove(f.tmp.Name())
	}
}

// explain words errors that mean that the disk is full.
func (f *File) explain(err error) error {
	if err == nil || !isFull(err) {
		return err
	}
	return &pack.Error{Kind: pack.ErrNoSpace, File: cmp.Or(f.reported, f.path), Offset: -1, Err: err,
		Found: fmt.Sprintf("no room after %d bytes of the output", f.n), Hint: "free some space or write to another disk; nothing was kept"}
}
