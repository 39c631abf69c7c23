package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/formats"
	"npack/pack/mlx"
	"npack/ternary"
)

// defaultShard is what a file of weights has at most, as Hugging Face's and
// mlx-lm's own tools write them.
const defaultShard = 5_000_000_000

func toMLXCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "to-mlx",
		Usage:     "make a directory that mlx-lm, for Apple's MLX, loads by itself",
		UsageText: "npack to-mlx [flags] IN [OUTDIR]",
		Description: "IN is a model of any format or a pack directory, OUTDIR the directory to make; without it IN's\n" +
			"name with -mlx. The tokenizer's files are copied from beside IN.\n\n" +
			"Profiles:\n" +
			"  affine   exact where MLX's evenly spaced values can express every row; loads as it is\n" +
			"  planes   always exact; mlx-lm 0.30 or later runs the layers in the directory's trit_qwen3.py\n" +
			"  nearest  rounded to 8 or 6 bits, for programs that run no code of a model; the error is printed\n" +
			"  dense    exact in float32, 32 bits a weight\n" +
			"Without --profile it is affine if that is exact, else planes. Of both \"npack from-mlx\" makes the\n" +
			"container again, byte for byte, and nrun runs them as they are.\n\n" +
			cli.Examples("npack to-mlx pack/", "npack to-mlx model.bin model-mlx", "npack to-mlx --profile nearest --bits 6 pack/ small-mlx"),
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "profile", Usage: "store matrices as `PROFILE` says", DefaultText: "affine or planes, whichever is exact"},
			&urfave.IntFlag{Name: "bits", Usage: "of profile nearest: 8 or `6`", DefaultText: "8"},
			shardFlag(), forceDirFlag(), jsonFlag(), quietFlag("no progress, no word on success"),
		},
		Action: func(c *urfave.Context) error {
			args, err := cli.Positionals(c, 1, 2)
			if err != nil {
				return err
			}
			out := ""
			if len(args) == 2 {
				out = args[1]
			}
			return writeMLX(c, args[0], out)
		},
	}
}

func fromMLXCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "from-mlx",
		Usage:     "make the native container of a directory that npack to-mlx made",
		UsageText: "npack from-mlx [flags] DIR [OUT]",
		Description: "OUT is the container, without it DIR's name with .bin. OUT gets its name only when its sha256 is\n" +
			"that of the container which DIR was made of; exit status 3 if not. Profiles affine and planes\n" +
			"have all of the container; dense ones \"npack import\" reads; nearest ones are rounded.\n\n" +
			cli.Examples("npack from-mlx model-mlx", "npack from-mlx model-mlx model.bin"),
		Flags: []urfave.Flag{forceFlag(), jsonFlag(), quietFlag("no progress, no word on success")},
		Action: func(c *urfave.Context) error {
			args, err := cli.Positionals(c, 1, 2)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return convert(c, args[0], args[1], "native")
			}
			dir := args[0]
			if st, err := os.Stat(dir); err == nil && !st.IsDir() {
				dir = filepath.Dir(dir)
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			return convert(c, args[0], dir+".bin", "native")
		},
	}
}

func shardFlag() urfave.Flag {
	return &urfave.Int64Flag{Name: "shard", Usage: "split weights into files of at most `BYTES`", Value: defaultShard}
}

func forceDirFlag() urfave.Flag {
	return &urfave.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace a directory of this kind that is there, with all that is in it"}
}

// mlxResult is the object that to-mlx --json prints.
type mlxResult struct {
	File        string  `json:"file"`
	Out         string  `json:"out"`
	Profile     string  `json:"profile"`
	Exact       bool    `json:"exact"` // all of the container is in it
	LinearError float64 `json:"max_rel_weight_error"`
	TableError  float64 `json:"max_table_error_steps"`
	Bytes       int64   `json:"bytes"` // of files of weights
	Files       int     `json:"files"`
	SHA256      string  `json:"container_sha256"`
	Tokenizer   bool    `json:"tokenizer"`
	Command     string  `json:"command"` // to run it
	Seconds     float64 `json:"seconds"`
}

func writeMLX(c *urfave.Context, in, out string) error {
	o := mlx.Options{Profile: mlx.Profile(c.String("profile")), Bits: c.Int("bits"), MaxShard: shardSize(c), Version: cli.Version}
	if err := checkProfile(c, o.Profile); err != nil {
		return err
	}
	src, err := formats.Open(c.Context, in)
	if err != nil {
		return err
	}
	defer src.Close()
	if out == "" {
		out = strings.TrimSuffix(src.Name(), filepath.Ext(src.Name())) + "-mlx"
	}
	if err := checkDirTarget(c, src, out, mlx.PackName); err != nil {
		return err
	}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	o.Side, o.Source = sideDir(in, src.Name()), filepath.Base(src.Name())
	o.Progress = func(done, total int64) { p.Show("writing", done, total) }
	start := time.Now()
	r := &mlxResult{File: src.Name(), Out: out}
	plan, err := mlx.NewPlan(c.Context, src.Model(), o)
	if err != nil {
		return placed(src, err)
	}
	d, err := outfile.CreateDir(out, plan.Bytes)
	if err != nil {
		return err
	}
	defer d.Abort()
	var w *mlx.Result
	if err := ternary.Guard(func() (err error) { w, err = plan.Write(c.Context, d); return err }); err != nil {
		return placed(src, err)
	}
	if err := d.Commit(); err != nil {
		return err
	}
	p.Done()
	r.Profile, r.Exact, r.LinearError, r.TableError, r.Bytes = string(plan.Profile), plan.Exact, plan.LinearError, plan.TableError, plan.Bytes
	r.Files, r.SHA256, r.Tokenizer, r.Seconds = w.Files, w.SHA256, w.Tokenizer, time.Since(start).Seconds()
	r.Command = "mlx_lm.generate --model " + out
	if plan.Profile == mlx.Planes {
		r.Command += " --trust-remote-code"
	}
	r.Command += ` --temp 0 --prompt "…"`
	warnTokenizer(c, r.Tokenizer, src, "mlx-lm")
	switch {
	case c.Bool("json"):
		return cli.JSON(c.App.Writer, r)
	case !c.Bool("quiet"):
		r.print(c.App.Writer)
	}
	return nil
}

// placed adds the file to an error about the model that src is.
func placed(src formats.Source, err error) error {
	var e *pack.Error
	if err = src.Place(err); errors.As(err, &e) && e.File == "" {
		e.File = src.Name()
	}
	return err
}

func warnTokenizer(c *urfave.Context, there bool, src formats.Source, program string) {
	if !there {
		cli.Warn(c.App.ErrWriter, "npack", "no tokenizer.json beside %q: the directory gets no tokenizer, and %s will not turn text into tokens", src.Name(), program)
	}
}

func checkProfile(c *urfave.Context, p mlx.Profile) error {
	var names []string
	for _, known := range mlx.Profiles {
		if p == known {
			if c.IsSet("bits") && p != mlx.Nearest {
				return cli.Usagef("leave it out", "--bits has no effect with profile %s", p)
			}
			return nil
		}
		names = append(names, string(known))
	}
	if p == "" {
		if c.IsSet("bits") {
			return cli.Usagef("add --profile nearest", "--bits belongs to profile nearest")
		}
		return nil
	}
	hint := "profiles: " + strings.Join(names, ", ")
	if near := cli.Closest(string(p), names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return cli.Usagef(hint, "--profile: no profile %q", string(p))
}

// shardSize is the value of --shard, which "convert" does not have.
func shardSize(c *urfave.Context) int64 {
	if n := c.Int64("shard"); n > 0 {
		return n
	}
	return defaultShard
}

// checkDirTarget refuses a directory to write that is there already, unless
// --force is given and it holds one of the files by which npack knows its own.
func checkDirTarget(c *urfave.Context, src formats.Source, out string, markers ...string) error {
	if out == standard {
		return cli.Usagef("name a directory", "the output is a directory, which standard output cannot be")
	}
	st, err := os.Stat(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if below(src.Name(), st) {
		return cli.Usagef("name another output", "%q holds the input", out)
	}
	if !st.IsDir() {
		return cli.Usagef("name a directory", "%q is there and is no directory", out)
	}
	if !c.Bool("force") {
		return cli.WithHint(fmt.Errorf("%q is there already", out), "--force replaces it, with all that is in it")
	}
	return checkOwn(out, markers...)
}

// checkOwn refuses to replace a directory that has anything in it and none of the
// files by which npack knows its own.
func checkOwn(dir string, markers ...string) error {
	for _, m := range markers {
		if _, err := os.Stat(filepath.Join(dir, m)); err == nil {
			return nil
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	return cli.Usagef("remove it, or name another", "%q is there and was not made by this command: it has no %s", dir, strings.Join(markers, " or "))
}

// below reports whether the file at path, or what it or a link beside it leads to,
// lies below dir, at any depth.
func below(path string, dir os.FileInfo) bool {
	paths := []string{path}
	folder := path
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		folder = filepath.Dir(path)
	}
	entries, _ := os.ReadDir(folder) // one that cannot be read gives no input
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		target, err := filepath.EvalSymlinks(path)
		return inside(path, dir) || err == nil && inside(target, dir)
	})
}

// inside reports whether dir is one of the directories that path goes through.
func inside(path string, dir os.FileInfo) bool {
	path, err := filepath.Abs(path)
	for err == nil && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		if st, err := os.Stat(path); err == nil && os.SameFile(st, dir) {
			return true
		}
	}
	return false
}

func (r *mlxResult) print(w io.Writer) {
	fmt.Fprintf(w, "wrote %q: MLX pack, profile %s, %s bytes (%s)\n", r.Out, r.Profile, cli.Group(r.Bytes), cli.Size(r.Bytes))
	if r.LinearError == 0 {
		fmt.Fprintf(w, "  matrices   exact\n")
	} else {
		fmt.Fprintf(w, "  matrices   rounded: the largest error of a weight is %.2g of it\n", r.LinearError)
	}
	if r.TableError > 0 {
		fmt.Fprintf(w, "  embedding  stored exactly; MLX's products are within %.2g of a row's step\n", r.TableError)
	}
	fmt.Fprintf(w, "  run        %s\n", r.Command)
}
