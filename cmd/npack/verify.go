package main

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
	"sync"
	"sync/atomic"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack"
	"npack/pack/formats"
	"npack/pack/native"
	"npack/ternary"
)

func verifyCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "verify",
		Usage:     "prove that a model is whole",
		UsageText: "npack verify [flags] FILE|DIR",
		Description: "Reads all of a model: structure, the rules of every weight, row sums; of a coded transport\n" +
			"(.tv4z) every block too, without writing the container. Compares it with what\n" +
			"MANIFEST.json, SHA256SUMS and FILE.sha256 beside it say; of a DIR all files that they name.\n" +
			"Files that are named and not here do not fail, the container aside.\n\n" +
			"With --certificate, DIR must also be what nrun certify proved: manifest, files, weights and, if a\n" +
			"signer is named, the signature beside the certificate (FILE.sig or FILE.minisig).\n\n" +
			"Exit status: 0 whole, 3 other bytes than pinned, 4 corrupt, 5 incomplete, 7 not a model.\n\n" +
			cli.Examples("npack verify model.bin", "npack verify pack/", "npack verify -q pack/ && echo whole",
				"npack verify --certificate pack/certificate.json --allowed-signers signers.txt pack/"),
		Flags: append(certificateFlags(), []urfave.Flag{
			&urfave.IntFlag{Name: "threads", Aliases: []string{"t"}, Usage: "threads for reading all weights", DefaultText: "one a core"},
			jsonFlag(),
			quietFlag("print nothing unless it fails"),
		}...),
		Action: verify,
	}
}

// verification is what verify proves: the object that --json prints.
type verification struct {
	File   string       `json:"file"`
	Format string       `json:"format"`
	Bytes  int64        `json:"bytes"`
	OK     bool         `json:"ok"`
	Error  string       `json:"error,omitempty"`
	Checks []check      `json:"checks"`
	Files  []fileResult `json:"files"` // the model first
	Sums   *sumWarnings `json:"row_sums,omitempty"`
	// Container is what a coded transport holds.
	Container *fileResult `json:"container,omitempty"`

	dir string
}

// check is one thing that was looked at.
type check struct {
	Status string `json:"status"`
	Name   string `json:"name"`
	Detail string `json:"detail"`
}

// fileResult is a file compared with all that is said about it.
type fileResult struct {
	Name    string   `json:"name"`
	Status  string   `json:"status"`
	Bytes   int64    `json:"bytes"` // as found
	SHA256  string   `json:"sha256,omitempty"`
	Sources []string `json:"sources"`

	pins []pin
}

const (
	statusOK       = "ok"
	statusFailed   = "failed"
	statusWarning  = "warning"
	statusNotHere  = "not here"
	statusUnpinned = "unpinned" // nothing says what it should be
	statusUnread   = "not read" // something else failed before
)

func verify(c *urfave.Context) error {
	args, err := cli.Positionals(c, 1, 1)
	if err != nil {
		return err
	}
	signer, err := readSigner(c)
	if err != nil {
		return err
	}
	container, err := formats.Container(args[0])
	if err != nil {
		return err
	}
	v := &verification{File: container, Checks: []check{}, Files: []fileResult{}, dir: filepath.Dir(container)}
	if container != args[0] {
		v.dir = args[0] // the container may be in a directory below
	}
	if c.String("certificate") != "" {
		if container == args[0] {
			return cli.Usagef("name the pack directory", "a certificate is of a directory, %q is a file", args[0])
		}
		err = v.checkCertificate(c, signer)
	}
	if err == nil {
		err = v.run(c, container != args[0])
	}
	v.OK = err == nil
	if err != nil {
		v.Error = err.Error()
	}
	switch {
	case errors.Is(err, context.Canceled):
	case c.Bool("json"):
		return firstOf(err, cli.JSON(c.App.Writer, v))
	case !c.Bool("quiet") && len(v.Files) > 0:
		v.print(c.App.Writer)
	}
	return err
}

// run does the cheap checks first: kind of file, sizes, structure, then what
// reads all bytes. all asks for all files that are pinned.
func (v *verification) run(c *urfave.Context, all bool) error {
	format, err := formats.Detect(v.File)
	if err != nil {
		return err
	}
	v.Format = format.Name
	name, err := filepath.Rel(v.dir, v.File)
	if err != nil {
		return err
	}
	pins, err := readPins(v.dir, filepath.ToSlash(name))
	if err != nil {
		return err
	}
	v.addFiles(filepath.ToSlash(name), pins, all)
	if err := v.checkSizes(); err != nil {
		return err
	}
	v.Bytes = v.Files[0].Bytes
	if format.Kind == pack.KindTV4Z {
		return v.transport(c)
	}
	src, err := formats.Open(c.Context, v.File)
	if err != nil {
		v.note(statusFailed, "structure", "")
		return err
	}
	defer src.Close()
	v.note(statusOK, "structure", "all records have the header's shapes and fill the file to its end")
	err = v.readAll(c, "weights", src.Size(), func(ctx context.Context, progress func(done int64)) (*found, error) {
		s, err := src.Model().Survey(ctx, ternary.WalkOptions{Threads: c.Int("threads"), Progress: func(done, _ int64) { progress(done) }})
		if err != nil {
			return nil, src.Place(err)
		}
		f := &found{survey: s}
		if s.FirstMismatch != nil {
			f.mismatch = src.Place(s.FirstMismatch)
		}
		return f, nil
	})
	if d, ok := src.(formats.Derived); ok && err == nil {
		err = v.derived(c, d)
	}
	return err
}

// derived checks what a file of another format says of its own data and of the
// container that it was made of.
func (v *verification) derived(c *urfave.Context, d formats.Derived) error {
	sum, n, ok := d.Container()
	if !ok {
		v.note(statusWarning, "container", "the file does not say which one it was made of")
		return nil
	}
	if err := d.CheckTensors(c.Context); err != nil {
		v.note(statusFailed, "digests", "")
		return err
	}
	v.note(statusOK, "digests", "all that the file has of its own data")
	h := newAhead(c.Context, io.Discard, true, func(int64) {})
	err := ternary.Guard(func() error { return native.Write(h, d.Model()) })
	if doneErr := h.finish(); err == nil {
		err = doneErr
	}
	if err != nil {
		return d.Place(err)
	}
	if h.end != n || !strings.EqualFold(h.sha256, sum) {
		v.note(statusFailed, "container", "")
		return otherContainer(v.File, h.pin(), pack.Pin{Bytes: n, SHA256: sum})
	}
	v.note(statusOK, "container", "the one that the file was made of comes back, sha256 "+sum)
	return nil
}

// found is what reading all weights finds.
type found struct {
	survey   *ternary.Survey
	mismatch error // the first row sum that is not the row's
}

func (v *verification) note(status, name, detail string) {
	v.Checks = append(v.Checks, check{status, name, detail})
}

// addFiles groups the pins by file, the container first.
func (v *verification) addFiles(container string, pins []pin, all bool) {
	v.Files = []fileResult{{Name: container, Status: statusUnread, Sources: []string{}}}
	for _, p := range pins {
		if !all && p.file != container {
			continue
		}
		i := slices.IndexFunc(v.Files, func(f fileResult) bool { return f.Name == p.file })
		if i < 0 {
			i = len(v.Files)
			v.Files = append(v.Files, fileResult{Name: p.file, Status: statusUnread})
		}
		f := &v.Files[i]
		f.pins = append(f.pins, p)
		if !slices.Contains(f.Sources, p.source) {
			f.Sources = append(f.Sources, p.source)
		}
	}
}

func (v *verification) path(f *fileResult) string {
	return filepath.Join(v.dir, filepath.FromSlash(f.Name))
}

// checkSizes compares the sizes of all files and returns the first error.
func (v *verification) checkSizes() error {
	var first error
	for i := range v.Files {
		f := &v.Files[i]
		st, err := os.Stat(v.path(f))
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			f.Status = statusNotHere
			continue
		}
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() {
			f.Status = statusFailed
			return &pack.Error{Kind: pack.ErrNotEqual, File: v.path(f), Offset: -1, Found: "not a regular file", Expected: "one, from " + f.Sources[0]}
		}
		f.Bytes = st.Size()
		for _, p := range f.pins {
			if p.bytes < 0 || p.bytes == f.Bytes {
				continue
			}
			f.Status = statusFailed
			e := &pack.Error{Kind: pack.ErrNotEqual, File: v.path(f), Offset: -1, Found: fmt.Sprintf("the file has %d bytes", f.Bytes),
				Expected: fmt.Sprintf("%d, from %s", p.bytes, p.source), Hint: "fetch the file again"}
			if f.Bytes < p.bytes {
				e.Kind, e.Hint = pack.ErrTruncated, "the download may be incomplete: fetch the rest"
			}
			first = firstOf(first, e)
			break
		}
	}
	return first
}

// firstOf keeps the first error.
func firstOf(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

// readAll walks over what is in the model, size bytes, while the file is hashed,
// so that one that does not fit into memory comes from the disk once; then it
// hashes the other files.
func (v *verification) readAll(c *urfave.Context, what string, size int64, walk func(ctx context.Context, progress func(done int64)) (*found, error)) error {
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	total := size // walked
	for i := range v.Files {
		if v.Files[i].Status == statusUnread {
			total += v.Files[i].Bytes
		}
	}
	var walked, hashed atomic.Int64
	show := func() { p.Show("verifying", min(walked.Load()+hashed.Load(), total), total) }

	var got *found
	var walkErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		got, walkErr = walk(ctx, func(done int64) { walked.Store(done); show() })
		if walkErr != nil {
			cancel() // the hash of a broken file tells nothing more
		}
	})
	hashErr := v.hashFiles(ctx, func(n int64) { hashed.Add(n); show() })
	if hashErr != nil && !errors.Is(hashErr, pack.ErrNotEqual) {
		cancel() // reading failed, or Ctrl-C
	}
	wg.Wait()

	if walkErr != nil && !errors.Is(walkErr, context.Canceled) {
		v.note(statusFailed, what, "")
		return walkErr
	}
	if walkErr != nil {
		return firstOf(hashErr, walkErr)
	}
	v.note(statusOK, "weights", fmt.Sprintf("%s ternary: bp, bn, br keep their rules, padding is 0; scales, norms, biases are finite",
		cli.Group(got.survey.Total.Weights)))
	v.Sums = &sumWarnings{Mismatches: got.survey.SumMismatches}
	if v.Sums.Mismatches == 0 {
		v.note(statusOK, "row sums", "all as the rows add up")
	} else {
		v.Sums.First = got.mismatch.Error()
		v.note(statusWarning, "row sums", v.Sums.String())
	}
	return hashErr
}

// hashFiles hashes every file that is here and compares it with its pins.
func (v *verification) hashFiles(ctx context.Context, add func(n int64)) error {
	var first error
	for i := range v.Files {
		f := &v.Files[i]
		if f.Status != statusUnread {
			continue
		}
		last := int64(0)
		got, err := pack.HashFile(ctx, v.path(f), func(done int64) { add(done - last); last = done })
		if err != nil {
			return err
		}
		f.SHA256, f.Status = got.SHA256, statusUnpinned
		for _, p := range f.pins {
			switch p.sha256 {
			case "": // its size is right
			case got.SHA256:
				f.Status = statusOK
				continue
			default:
				f.Status = statusFailed
				first = firstOf(first, &pack.Error{Kind: pack.ErrNotEqual, File: v.path(f), Offset: -1, Found: "sha256 " + got.SHA256,
					Expected: p.sha256 + ", from " + p.source, Hint: "fetch the file again, or the list if the file is newer"})
			}
			if f.Status == statusFailed {
				break
			}
			f.Status = statusOK
		}
	}
	return first
}

func (v *verification) print(w io.Writer) {
	fmt.Fprintf(w, "%q: %s, %s bytes\n", v.File, v.Format, cli.Group(v.Files[0].Bytes))
	for _, c := range v.Checks {
		line := fmt.Sprintf("  %-8s  %-9s  %s", c.Status, c.Name, cli.OneLine(c.Detail))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	count := map[string]int{}
	files := v.Files
	if v.Container != nil {
		files = append([]fileResult{*v.Container}, files...)
	}
	for i := range files {
		f := &files[i]
		count[f.Status]++
		about := "nothing here says what it should be"
		if len(f.Sources) > 0 {
			about = strings.Join(f.Sources, ", ")
		}
		switch {
		case f.SHA256 != "":
			fmt.Fprintf(w, "  %-8s  sha256     %s  %s (%s)\n", f.Status, f.SHA256, cli.OneLine(f.Name), about)
		case f.Status != statusUnread:
			fmt.Fprintf(w, "  %-8s  %s (%s)\n", f.Status, cli.OneLine(f.Name), about)
		}
	}
	switch {
	case !v.OK:
	case count[statusOK] == 0:
		fmt.Fprintf(w, "whole: the format's rules hold; no MANIFEST.json or .sha256 to compare with\n")
	default:
		fmt.Fprintf(w, "whole: the format's rules hold, %d files are as pinned, %d not here\n", count[statusOK], count[statusNotHere])
	}
}
