package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/expand"
	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/coded"
)

func expandCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "expand",
		Usage:     "make a container of its coded transport",
		UsageText: "npack expand [flags] IN [OUT]",
		Description: "IN is a coded transport (.tv4z) or a packed container (.t5q), \"-\" standard input. OUT is the\n" +
			"container, \"-\" standard output; without it IN with .bin for its extension, or standard output\n" +
			"if IN is \"-\".\n\n" +
			"OUT gets its name when it is complete and its MD5, the rules of every weight and, where\n" +
			"MANIFEST.json or a .sha256 file beside IN or OUT says it, its sha256 are right, all in one\n" +
			"pass. What goes to standard output has left before that: look at the exit status.\n\n" +
			"If it is interrupted, OUT.part and OUT.part.json stay, and the same command goes on from the\n" +
			"last whole block. That takes a .tv4z and named files. A disk that becomes full leaves nothing.\n\n" +
			"Exit status: 0 done, 3 other bytes than pinned, 4 corrupt, 5 incomplete, 7 not a model,\n" +
			"8 no space, 130 interrupted.\n\n" +
			cli.Examples("npack expand model.tv4z", "npack expand model.tv4z /models/model.bin", "curl … | npack expand - model.bin"),
		Flags: []urfave.Flag{
			threadsFlag(), forceFlag(),
			&urfave.BoolFlag{Name: "no-check", Usage: "do not hold the model's rules, MD5 and sha256 alone"},
			jsonFlag(), quietFlag("no progress, no word on success"),
		},
		Action: expandAction,
	}
}

// expansion is the object that expand --json prints.
type expansion struct {
	File    string       `json:"file"`
	Out     string       `json:"out"`
	Format  string       `json:"format"` // tv4z or t5q
	Coded   int64        `json:"coded_bytes"`
	Bytes   int64        `json:"bytes"`   // of the container
	Resumed int64        `json:"resumed"` // of them from an earlier run
	Ratio   float64      `json:"ratio"`   // coded over whole
	SHA256  string       `json:"sha256"`
	Pinned  []string     `json:"pinned_by"` // what the sha256 was compared with
	Checked bool         `json:"checked"`   // the model's rules
	Sums    *sumWarnings `json:"row_sums,omitempty"`
	Time    speed        `json:"time"`

	in  *input
	opt expand.Options
}

func expandAction(c *urfave.Context) error {
	args, err := cli.Positionals(c, 1, 2)
	if err != nil {
		return err
	}
	n, err := threads(c)
	if err != nil {
		return err
	}
	in, err := openInput(c, args[0])
	if err != nil {
		return err
	}
	defer in.close()
	out := target(in, args, ".bin")
	if in.kind != pack.KindTV4Z && in.kind != pack.KindTRTC {
		return in.wrongKind("a coded transport (.tv4z) or a packed container (.t5q)", "")
	}
	if err := checkTarget(c, in, out); err != nil {
		return err
	}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	e := &expansion{File: in.name, Out: out, Pinned: []string{}, Checked: !c.Bool("no-check"), in: in}
	e.opt = expand.Options{Threads: n, Unchecked: !e.Checked, Progress: func(done, total int64) { p.Show("expanding", done, total) },
		Again: func(kept int64) {
			cli.Warn(c.App.ErrWriter, "npack", "the %d bytes in %q are damaged or of something else: starting afresh", kept, out+".part")
		}}
	e.Time.Threads = n
	start := time.Now()
	if err := e.run(c); err != nil {
		return err
	}
	p.Done()
	e.Time.Seconds = time.Since(start).Seconds()
	e.Time.Bytes = e.Bytes - e.Resumed
	e.Ratio = float64(e.Coded) / float64(e.Bytes)
	if e.Sums != nil && e.Sums.Mismatches > 0 {
		cli.Warn(c.App.ErrWriter, "npack", "%s", e.Sums)
	}
	switch {
	case c.Bool("json"):
		return cli.JSON(c.App.Writer, e)
	case out != standard && !c.Bool("quiet"):
		e.print(c.App.Writer)
	}
	return nil
}

func (e *expansion) run(c *urfave.Context) error {
	if err := e.pin(); err != nil {
		return err
	}
	res := new(expand.Result)
	var err error
	switch {
	case e.in.kind == pack.KindTRTC:
		e.Format = "t5q"
		res, err = e.unpack(c)
	case e.in.file != nil && e.Out != standard:
		e.Format = "tv4z"
		res, err = e.resumable(c.Context)
	default:
		e.Format = "tv4z"
		err = writeOutput(c, e.Out, 0, func(w io.Writer) error {
			var r = e.in.stream
			if e.in.file != nil {
				r = e.in.file
			}
			res, err = expand.Stream(c.Context, e.in.name, e.in.size, r, w, e.opt)
			return err
		})
	}
	if err != nil {
		return err
	}
	e.Coded, e.Bytes, e.Resumed, e.SHA256 = res.CodedBytes, res.Bytes, res.Resumed, res.SHA256
	if e.Checked {
		e.Sums = sumsOf(res)
	}
	return nil
}

// unpack expands a packed container.
func (e *expansion) unpack(c *urfave.Context) (res *expand.Result, err error) {
	if err := e.in.spool(c.Context); err != nil {
		return nil, err
	}
	size, err := coded.UnpackedSize(e.in.name, e.in.file, e.in.size)
	if err != nil {
		return nil, err
	}
	err = writeOutput(c, e.Out, size, func(w io.Writer) error {
		res, err = expand.Packed(c.Context, e.in.name, e.in.file, e.in.size, w, e.opt)
		return err
	})
	return res, err
}

// pin finds what the container should be.
func (e *expansion) pin() error {
	size := int64(-1)
	if e.in.file != nil && e.in.kind == pack.KindTV4Z {
		h, err := coded.ReadHeader(e.in.name, io.NewSectionReader(e.in.file, 0, e.in.size))
		if err != nil {
			return err
		}
		size = h.SourceSize
	}
	var dirs []string
	if e.in.file != nil {
		dirs = append(dirs, filepath.Dir(e.in.name))
	}
	if e.Out != standard {
		dirs = append(dirs, filepath.Dir(e.Out))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		pins, err := containerPins(dir, e.in.name, e.Out, size)
		if err != nil {
			return err
		}
		for _, p := range pins {
			switch w := e.opt.Want; {
			case p.sha256 == "":
				continue
			case w == nil:
				e.opt.Want = &pack.Pin{Bytes: p.bytes, SHA256: p.sha256}
			case w.SHA256 != p.sha256:
				return &pack.Error{Kind: pack.ErrNotEqual, File: filepath.Join(dir, p.source), Offset: -1,
					Found: "sha256 " + p.sha256 + " for " + p.file, Expected: w.SHA256 + ", from " + e.Pinned[0], Hint: "one of the two is of another version"}
			}
			e.Pinned = append(e.Pinned, p.source)
		}
	}
	return nil
}

func (e *expansion) print(w io.Writer) {
	fmt.Fprintf(w, "wrote %q: %s bytes (%s) in %s\n", e.Out, cli.Group(e.Bytes), cli.Size(e.Bytes), e.Time)
	if e.Resumed > 0 {
		fmt.Fprintf(w, "  %s of them were there from an earlier run\n", cli.Group(e.Resumed))
	}
	fmt.Fprintf(w, "  %-6s %s bytes, %.2f %% of the container\n", e.Format, cli.Group(e.Coded), 100*e.Ratio)
	if pinned := strings.Join(e.Pinned, ", "); pinned != "" {
		fmt.Fprintf(w, "  sha256 %s, as %s says\n", e.SHA256, pinned)
	} else {
		fmt.Fprintf(w, "  sha256 %s; nothing here says what it should be\n", e.SHA256)
	}
	if e.Checked {
		fmt.Fprintf(w, "  rules  structure and all weights are right, %s\n", e.Sums.words())
	}
}

// words tells of the row sums in a few.
func (s *sumWarnings) words() string {
	if s.Mismatches == 0 {
		return "row sums too"
	}
	return cli.Group(s.Mismatches) + " row sums are not"
}

func sumsOf(res *expand.Result) *sumWarnings {
	s := &sumWarnings{Mismatches: res.Survey.SumMismatches}
	if res.Mismatch != nil {
		s.First = res.Mismatch.Error()
	}
	return s
}

// resumable expands a transport in a file into a file.
func (e *expansion) resumable(ctx context.Context) (*expand.Result, error) {
	// Structure and length first: a cut download is told at once.
	x, err := coded.ReadIndex(ctx, e.in.name, e.in.file, e.in.size)
	if err != nil {
		return nil, err
	}
	key := transportKey(x)
	res, err := expand.File(ctx, e.Out, expand.Transport{
		Name: e.in.name,
		Open: func(_ context.Context, from int64, old string) (io.ReadCloser, int64, string, error) {
			if old != "" && old != key {
				return nil, 0, "", errOther
			}
			return io.NopCloser(io.NewSectionReader(e.in.file, from, e.in.size-from)), e.in.size, key, nil
		},
		Again: func(err error) bool {
			other := errors.Is(err, errOther)
			if other {
				e.opt.Again(partSize(e.Out))
			}
			return other
		},
	}, e.opt)
	if err != nil {
		if errors.Is(err, outfile.ErrBusy) {
			err = cli.WithHint(err, "wait for it, or name another output")
		} else if n := partSize(e.Out); n > 0 && cli.Hint(err) == "" {
			err = cli.WithHint(err, fmt.Sprintf("%d bytes are kept in %q: the same command goes on from there", n, e.Out+".part"))
		}
		return nil, err
	}
	return res, nil
}

// partSize is how much of an output is kept.
func partSize(out string) int64 {
	st, err := os.Stat(out + ".part")
	if err != nil {
		return 0
	}
	return st.Size()
}

var errOther = errors.New("the part is of another transport")

// transportKey tells transports apart by all that their heads say but for the
// frequencies: MD5 and size of the container, and how it is cut into blocks.
func transportKey(x *coded.Index) string {
	h := sha256.New()
	fmt.Fprintln(h, x.Size, x.Header)
	for i := range x.Blocks {
		b := &x.Blocks[i]
		fmt.Fprintln(h, b.Method, b.Size, b.Payload)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
