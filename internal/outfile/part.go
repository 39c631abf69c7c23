package outfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"npack/pack"
)

// Part is an output that outlives the program: until Commit it lies beside its
// target as NAME.part, with what is known about it in NAME.part.json, and both
// stay if the program ends. It may be written and read at any place, by several
// goroutines.
type Part struct {
	path string
	f    *os.File
	done bool // closed, one way or another
}

// ErrBusy is the error about a part that another program has open.
var ErrBusy = errors.New("another program is writing it")

// OpenPart opens path's part or makes an empty one. It refuses a part that
// another program is writing.
func OpenPart(path string) (*Part, error) {
	if err := place(path); err != nil {
		return nil, err
	}
	reportFileLimit()
	p := &Part{path: path}
	f, err := os.OpenFile(p.Name(), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("cannot write %q: %w", path, err)
	}
	p.f = f
	// A program that was just killed may hold the lock until the disk has taken
	// what it wrote.
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := lockFile(f)
		if err == nil {
			break
		}
		if time.Since(start) > time.Second {
			f.Close()
			return nil, fmt.Errorf("cannot write %q: %w: %w", p.Name(), ErrBusy, err)
		}
	}
	return p, nil
}

// Name is where the output lies until Commit.
func (p *Part) Name() string { return p.path + ".part" }

func (p *Part) stateName() string { return p.path + ".part.json" }

// maxState bounds what LoadState reads.
const maxState = 4 << 20

// LoadState reads what SaveState kept. It reports false if there is nothing or
// it is damaged: the part's bytes then mean nothing.
func (p *Part) LoadState(v any) bool {
	f, err := os.Open(p.stateName())
	if err != nil {
		return false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxState))
	return err == nil && json.Unmarshal(b, v) == nil
}

// SaveState keeps v, which says how far the part is, after making the part's
// bytes durable: what it says is true even after a power failure.
func (p *Part) SaveState(v any) error {
	if err := p.f.Sync(); err != nil {
		return p.explain(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := p.stateName() + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o666); err != nil {
		os.Remove(tmp)
		return p.explain(err)
	}
	return os.Rename(tmp, p.stateName())
}

// Size is the length of the part so far.
func (p *Part) Size() (int64, error) {
	st, err := p.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Room returns an error of kind [pack.ErrNoSpace] if the file system has less
// than n bytes left.
func (p *Part) Room(n int64) error { return room(p.path, n) }

func (p *Part) ReadAt(b []byte, off int64) (int, error) { return p.f.ReadAt(b, off) }

// WriteAt writes at an offset. An error of kind [pack.ErrNoSpace] says that
// the disk is full.
func (p *Part) WriteAt(b []byte, off int64) (int, error) {
	n, err := p.f.WriteAt(b, off)
	return n, p.explain(err)
}

// Truncate makes the part that long.
func (p *Part) Truncate(size int64) error { return p.explain(p.f.Truncate(size)) }

// Commit makes the output durable and gives it its name. If that fails the
// part stays.
func (p *Part) Commit() error {
	if err := p.explain(p.f.Sync()); err != nil {
		return err
	}
	p.done = true
	if err := p.f.Close(); err != nil { // Windows does not rename open files
		return p.explain(err)
	}
	if err := os.Rename(p.Name(), p.path); err != nil {
		return err
	}
	syncDir(filepath.Dir(p.path))
	// Last: a state without a part says nothing, a part without a state is lost.
	if err := os.Remove(p.stateName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close ends the writing and leaves the part where it is, unless it was
// committed or removed. An empty part goes.
func (p *Part) Close() error {
	if p.done {
		return nil
	}
	if n, err := p.Size(); err == nil && n == 0 {
		return p.Remove()
	}
	p.done = true
	return p.f.Close()
}

// Remove removes the part and what is known about it.
func (p *Part) Remove() error {
	if p.done {
		return nil
	}
	p.done = true
	err := p.f.Close()
	for _, name := range []string{p.stateName(), p.Name()} {
		if e := os.Remove(name); e != nil && !errors.Is(e, fs.ErrNotExist) && err == nil {
			err = e
		}
	}
	return err
}

// explain words errors that mean that the disk is full.
func (p *Part) explain(err error) error {
	if err == nil || !isFull(err) {
		return err
	}
	n, _ := p.Size()
	return &pack.Error{Kind: pack.ErrNoSpace, File: p.path, Offset: -1, Err: err, Found: fmt.Sprintf("no room after %d bytes of the output", n),
		Hint: fmt.Sprintf("free some space and run the same command again to go on, or remove %q", p.Name())}
}
