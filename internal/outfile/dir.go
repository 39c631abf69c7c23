package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Dir is a directory that is being written: it appears under its name when all
// its files are complete. Exactly one of Commit and Abort should be called;
// Abort after Commit does nothing, so it can be deferred.
type Dir struct {
	path, tmp string
	done      bool
}

// CreateDir starts a directory that will become path, whose files will have
// size bytes together if that is known, else 0; see [Create]. A directory that
// is there stays as it is until Commit replaces it.
func CreateDir(path string, size int64) (*Dir, error) {
	path = filepath.Clean(path)
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		return nil, fmt.Errorf("cannot write %q: it is there and is no directory", path)
	}
	if err := way(path); err != nil {
		return nil, err
	}
	if err := room(path, size); err != nil {
		return nil, err
	}
	for {
		tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.tmp%d", filepath.Base(path), rand.Uint32()))
		err := os.Mkdir(tmp, 0o777)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot write %q: %w", path, err)
		}
		return &Dir{path: path, tmp: tmp}, nil
	}
}

// Create starts a file of the directory. It is complete with its own Commit.
func (d *Dir) Create(name string) (*File, error) {
	f, err := Create(filepath.Join(d.tmp, name), 0)
	if err != nil {
		return nil, err
	}
	f.reported = filepath.Join(d.path, name)
	return f, nil
}

// WriteFile writes a small file.
func (d *Dir) WriteFile(name string, b []byte) error {
	f, err := d.Create(name)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Commit()
}

// TempName is where the directory lies until Commit, for checking it.
func (d *Dir) TempName() string { return d.tmp }

// Commit gives the directory its name. One that was there is removed with all
// that is in it, so callers look into it before. If Commit fails nothing is left
// of the new one.
func (d *Dir) Commit() error {
	defer d.Abort()
	old := ""
	if _, err := os.Stat(d.path); err == nil {
		old = d.tmp + ".old"
		if err := os.Rename(d.path, old); err != nil {
			return err
		}
	}
	if err := os.Rename(d.tmp, d.path); err != nil {
		if old != "" {
			err = errors.Join(err, os.Rename(old, d.path))
		}
		return err
	}
	d.done = true
	syncDir(filepath.Dir(d.path))
	if old != "" {
		return os.RemoveAll(old)
	}
	return nil
}

// Abort removes what was written, unless it was committed.
func (d *Dir) Abort() {
	if !d.done {
		d.done = true
		os.RemoveAll(d.tmp)
	}
}
