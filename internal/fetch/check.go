package fetch

import (
	"context"
	"crypto/sha1"
	"fmt"
	"io"
	"os"
	"strings"

	"npack/pack"
)

// check compares what is there with all that is known about it.
func (d *download) check(ctx context.Context) error {
	if m := d.rec.missing(); len(m) > 0 {
		return fmt.Errorf("fetch: bytes %d to %d were left out", m[0].From, m[0].To) // a fault of ours
	}
	d.res.Bytes = d.rec.Size
	if err := d.part.Truncate(d.rec.Size); err != nil {
		return err
	}
	if d.t.Look != nil {
		head := make([]byte, min(d.rec.Size, pack.SniffLen))
		if _, err := d.part.ReadAt(head, 0); err != nil && err != io.EOF {
			return err
		}
		if err := d.t.Look(head, d.rec.Size); err != nil {
			return errJunk{err}
		}
	}
	pin, err := pack.HashFile(ctx, d.part.Name(), func(n int64) {
		if d.t.Checking != nil {
			d.t.Checking(n, d.rec.Size)
		}
	})
	if err != nil {
		return err
	}
	d.res.SHA256 = pin.SHA256
	found, want := "sha256 "+pin.SHA256, strings.ToLower(d.t.SHA256)
	ok := want == "" || want == pin.SHA256
	if d.t.Git != "" && ok {
		sum, err := GitBlob(d.part.Name())
		if err != nil {
			return err
		}
		found, want = "git blob "+sum, strings.ToLower(d.t.Git)
		ok = sum == want
	}
	switch {
	case ok:
		return nil
	case d.res.Resumed > 0:
		// What an earlier run left may be at fault: once more, all of it.
		return &restart{"the file is not what it should be: " + found}
	}
	return errJunk{&pack.Error{Kind: pack.ErrNotEqual, File: Public(d.t.URL), Offset: -1, Found: found, Expected: want,
		Hint: "the file was damaged on its way or is another one; nothing was kept"}}
}

// GitBlob returns the name that git gives to a file's content, the sha1 of its
// length and bytes.
func GitBlob(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", st.Size())
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
