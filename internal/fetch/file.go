package fetch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"npack/internal/outfile"
	"npack/pack"
)

// Target is a file on a server and what is known about it beforehand.
type Target struct {
	URL    string
	Size   int64  // -1 if not known
	SHA256 string // hex, "" if not known
	Git    string // hex sha1 of the file as a blob of git, "" if not known

	// Look, if not nil, is given the start of the file, up to
	// [pack.SniffLen] bytes, as soon as it is there, and the size or -1. Its
	// error ends the transfer and removes the part.
	Look func(head []byte, size int64) error
	// Progress is told how many bytes of how many (-1: not known) are there.
	// Several goroutines call it.
	Progress func(done, total int64)
	// Checking is told how many bytes of how many have been hashed.
	Checking func(done, total int64)
}

// joins reports whether parts of the file from different answers can be told
// to belong together.
func (t *Target) joins(e Entity) bool {
	return e.ETag != "" || e.Modified != "" || t.SHA256 != "" || t.Git != ""
}

// accept compares the size (-1: not given) and the start of the file (empty:
// not seen) with what is known, and returns the size.
func (t *Target) accept(size int64, head []byte) (int64, error) {
	if t.Size >= 0 && size >= 0 && size != t.Size {
		e := &pack.Error{Kind: pack.ErrNotEqual, File: Public(t.URL), Offset: -1,
			Found: fmt.Sprintf("the server's file has %d bytes", size), Expected: fmt.Sprint(t.Size)}
		if kind := pack.Sniff(head, size); kind == pack.KindHTML || kind == pack.KindLFS {
			e.Found += " and is a " + kind.String()
			e.Hint = "networks that want you to sign in, and servers that want a token, send pages in place of files"
		}
		return size, e
	}
	if size < 0 {
		size = t.Size
	}
	if t.Look != nil && len(head) > 0 {
		return size, t.Look(head, size)
	}
	return size, nil
}

// Result says what File did.
type Result struct {
	Bytes    int64
	SHA256   string
	Fetched  int64 // bytes that came in this run
	Resumed  int64 // bytes that an earlier run left
	Restarts int   // times the file was begun again
	// Unsure is set if nothing tells the file's end from a broken line: no
	// size, no sha256, and a server that ends by hanging up.
	Unsure bool
}

// record is what is kept beside a part.
type record struct {
	Key    string `json:"key"` // of the address
	SHA256 string `json:"sha256,omitempty"`
	Entity
	Done spans `json:"done"`
}

// maxRestarts bounds how often a file that changes on the server, or a server
// that ignores ranges, makes a transfer begin again.
const maxRestarts = 4

// File brings t to path. It goes on with the part of an earlier run where the
// server still has the same file, checks size and sums and gives the file its
// name last. If it fails, what came stays beside path as NAME.part, unless
// that is known to be wrong.
func (c *Client) File(ctx context.Context, path string, t Target) (*Result, error) {
	part, err := outfile.OpenPart(path)
	if err != nil {
		return nil, err
	}
	defer part.Close()
	d := &download{c: c, t: t, part: part}
	d.load()
	d.res.Resumed = d.rec.Done.total()
	for {
		err := d.bring(ctx)
		if err == nil {
			err = d.check(ctx)
		}
		var again *restart
		if err == nil || !errors.As(err, &again) {
			if err == nil {
				err = part.Commit()
			}
			return &d.res, d.end(err)
		}
		if d.res.Restarts++; d.res.Restarts > maxRestarts {
			return nil, d.end(fail(t.URL, "", "begun %d times: %s", d.res.Restarts, again.why))
		}
		if err := d.reset(); err != nil {
			return nil, err
		}
	}
}

// download is one run of File.
type download struct {
	c        *Client
	t        Target
	part     *outfile.Part
	noRanges atomic.Bool // the server was asked for a part and did not send it
	res      Result

	mu  sync.Mutex
	rec record

	fetched atomic.Int64
}

// restart says that what is there is not of the file that the server has.
type restart struct{ why string }

func (r *restart) Error() string { return r.why }

// errJunk marks errors after which the part is worth nothing.
type errJunk struct{ error }

func (e errJunk) Unwrap() error { return e.error }

// end keeps the part or removes it.
func (d *download) end(err error) error {
	d.res.Fetched = d.fetched.Load()
	if junk := (errJunk{}); errors.As(err, &junk) {
		d.part.Remove()
		return junk.error
	}
	if err != nil {
		d.save()
	}
	return err
}

// load reads the record of an earlier run, if it is of this file.
func (d *download) load() {
	var r record
	n, err := d.part.Size()
	ok := err == nil && d.part.LoadState(&r) && r.Done.valid(n) && (r.Size < 0 || r.Done.valid(r.Size))
	same := r.Key == Key(d.t.URL) || r.SHA256 != "" && strings.EqualFold(r.SHA256, d.t.SHA256)
	if !ok || !same || d.t.Size >= 0 && r.Size >= 0 && d.t.Size != r.Size {
		r = d.fresh()
	}
	d.rec = r
	if len(r.missing()) > 0 && !d.t.joins(d.rec.Entity) {
		d.rec = d.fresh()
	}
}

func (r *record) missing() spans { return r.Done.missing(r.Size, math.MaxInt64) }

func (d *download) fresh() record {
	return record{Key: Key(d.t.URL), SHA256: d.t.SHA256, Entity: Entity{Size: -1}}
}

func (d *download) reset() error {
	d.rec, d.res.Resumed = d.fresh(), 0
	if err := d.part.Truncate(0); err != nil {
		return err
	}
	return d.save()
}

// save makes the part durable, then what is known about it.
func (d *download) save() error {
	d.mu.Lock()
	r := d.rec
	r.Done = append(spans(nil), r.Done...)
	d.mu.Unlock()
	if len(r.Done) == 0 && r.Size < 0 {
		return nil
	}
	return d.part.SaveState(r)
}

// note records that bytes are in the part.
func (d *download) note(from, to int64) {
	d.mu.Lock()
	d.rec.Done = d.rec.Done.add(span{from, to})
	done, total := d.rec.Done.total(), d.rec.Size
	d.mu.Unlock()
	d.fetched.Add(to - from)
	if d.t.Progress != nil {
		d.t.Progress(done, total)
	}
}
