package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/expand"
	"npack/pack"
	"npack/pack/coded"
)

// transport proves that a coded transport is whole, without writing the
// container: the heads first, then all blocks, the container's MD5 and rules,
// and what is said here about its sha256.
func (v *verification) transport(c *urfave.Context) error {
	f, err := os.Open(v.File)
	if err != nil {
		return err
	}
	defer f.Close()
	size := v.Files[0].Bytes
	x, err := coded.ReadIndex(c.Context, v.File, f, size)
	if err != nil {
		v.note(statusFailed, "heads", "")
		return err
	}
	v.note(statusOK, "heads", fmt.Sprintf("%s blocks give the container's %s bytes and fill the file to its end",
		cli.Group(int64(len(x.Blocks))), cli.Group(x.Header.SourceSize)))
	pins, err := containerPins(v.dir, v.File, "", x.Header.SourceSize)
	if err != nil {
		return err
	}
	r := &fileResult{Name: "the container", Status: statusUnread, Bytes: x.Header.SourceSize, Sources: []string{}, pins: pins}
	v.Container = r
	for _, p := range pins {
		r.Name = p.file
		r.Sources = append(r.Sources, p.source)
	}

	var res *expand.Result
	err = v.readAll(c, "content", x.Header.SourceSize, func(ctx context.Context, progress func(done int64)) (*found, error) {
		var err error
		res, err = expand.Stream(ctx, v.File, size, io.NewSectionReader(f, 0, size), nil,
			expand.Options{Threads: c.Int("threads"), Progress: func(done, _ int64) { progress(done) }})
		if err != nil {
			return nil, err
		}
		v.note(statusOK, "blocks", "every one ends as it should; the container's md5 is the header's")
		return &found{res.Survey, res.Mismatch}, nil
	})
	if res == nil || err != nil && res.SHA256 == "" {
		return err
	}
	return firstOf(r.compare(v.File, res.SHA256), err)
}

// compare holds the container's sha256 against its pins.
func (r *fileResult) compare(file, sum string) error {
	r.SHA256, r.Status = sum, statusUnpinned
	for _, p := range r.pins {
		switch {
		case p.bytes >= 0 && p.bytes != r.Bytes:
			r.Status = statusFailed
			return &pack.Error{Kind: pack.ErrNotEqual, File: file, Place: "header", Offset: 8, Found: fmt.Sprintf("the container has %d bytes", r.Bytes),
				Expected: fmt.Sprintf("%d, from %s", p.bytes, p.source), Hint: hintOtherModel}
		case p.sha256 != "" && !strings.EqualFold(p.sha256, sum):
			r.Status = statusFailed
			return &pack.Error{Kind: pack.ErrNotEqual, File: file, Place: "decoded container", Offset: -1, Found: "sha256 " + sum,
				Expected: p.sha256 + ", from " + p.source, Hint: hintOtherModel}
		}
		r.Status = statusOK
	}
	return nil
}

const hintOtherModel = "this is the transport of another model, or of another version of it"
