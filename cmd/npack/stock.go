package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/gguf"
	"npack/internal/cli"
	"npack/internal/dense"
	"npack/internal/modelfile"
	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/formats"
	"npack/pack/fv5"
	"npack/pack/native"
	"npack/pack/stock"
	"npack/ternary"
)

// Values of --stock that are no type.
const (
	stockAuto    = "auto"
	stockCompare = "compare"
	// stockUnproven is the type that auto takes where there is nothing to judge
	// by: the smallest that kept every token of the models that come with some.
	stockUnproven = "f16"
)

func stockFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "stock", Usage: "write a file for unpatched programs, of `TYPE` " + strings.Join(stock.Names(), ", ") +
			", auto (the smallest that keeps all tokens of trajectories.json) or compare (measure all, write nothing)"},
		&urfave.BoolFlag{Name: "quick", Usage: "with --stock TYPE: do not judge the file by trajectories.json and ppl.json"},
		&urfave.BoolFlag{Name: "ollama", Usage: "write a Modelfile for Ollama beside OUT; the type is auto if --stock says none"},
	}
}

// stockDescription is the part of to-gguf's help about --stock.
const stockDescription = "With --stock the file is for llama.cpp as it is published, Ollama and LM Studio, which know neither\n" +
	"FV5 nor FV5B. A row's five values become a scale and whole numbers chosen for them, with the error\n" +
	"that is printed and stated in the file's metadata; f32 is exact. Where trajectories.json and ppl.json\n" +
	"lie beside IN the file is judged by them: once with exact arithmetic, once with activations rounded\n" +
	"as llama.cpp's CPU code does for the type. IN cannot be made of such a file again.\n\n"

// stockResult is what is known of one type.
type stockResult struct {
	Type         string  `json:"type"`
	Rounding     string  `json:"rounding"` // "levels", or "nearest" to compare with
	Bytes        int64   `json:"bytes"`
	LargestError float64 `json:"largest_error"` // relative, of the linears
	MeanError    float64 `json:"mean_error"`
	TableLargest float64 `json:"embedding_largest_error"`
	TableMean    float64 `json:"embedding_mean_error"`
	// Tokens of trajectories.json, and how many of them the weights choose with
	// exact arithmetic and with activations rounded as llama.cpp's CPU code does.
	Tokens       int      `json:"tokens"`
	Equal        int      `json:"tokens_equal"`
	EqualRounded int      `json:"tokens_equal_rounded"`
	Perplexity   *float64 `json:"perplexity"` // null without ppl.json

	tensors []stock.Tensor
}

// keeps reports whether all tokens are the stored ones.
func (r *stockResult) keeps() bool {
	return r.Tokens > 0 && r.Equal == r.Tokens && r.EqualRounded == r.Tokens
}

// stocking is the object that to-gguf --stock --json prints.
type stocking struct {
	File       string        `json:"file"`
	Out        string        `json:"out,omitempty"`
	Type       string        `json:"type,omitempty"`
	Modelfile  string        `json:"modelfile,omitempty"`
	Perplexity *float64      `json:"container_perplexity"`
	Results    []stockResult `json:"results"`

	c     *urfave.Context
	dir   string // of the files beside the model
	name  string
	m     *ternary.Model
	tok   *fv5.Tokenizer // nil if there is none
	judge judge
	bar   *cli.Progress
}

// exportStock is "to-gguf --stock want".
func exportStock(c *urfave.Context, want string) error {
	want = strings.ToLower(want)
	most := 2
	if want == stockCompare {
		most = 1
	}
	args, err := cli.Positionals(c, 1, most)
	if err != nil {
		return err
	}
	if _, ok := stock.ParseType(want); !ok && want != stockAuto && want != stockCompare {
		return unknownStock(want)
	}
	if c.Bool("ollama") && (len(args) == 2 && args[1] == standard || want == stockCompare) {
		return cli.Usagef("name an output file", "--ollama writes a Modelfile beside it")
	}
	src, err := formats.Open(c.Context, args[0])
	if err != nil {
		return err
	}
	defer src.Close()
	s := &stocking{File: src.Name(), c: c, dir: sideDir(args[0], src.Name()), m: src.Model(), bar: cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))}
	defer s.bar.Done()
	if s.name = c.String("name"); s.name == "" {
		s.name = modelName(args[0])
	}
	if len(args) == 2 {
		if s.Out = args[1]; s.Out != standard || want != stockAuto {
			if err := s.checkOut(); err != nil {
				return err
			}
		}
	}
	if _, err := stock.Plan(s.m, stock.Types[0], stock.Levels); err != nil { // runs at all
		return placed(src, err)
	}
	if s.judge, err = newJudge(s.dir, s.m, c.Bool("quick") && want != stockAuto); err != nil {
		return err
	}
	if s.tok, err = tokenizerFor(src, s.dir); err != nil {
		return err
	}
	chosen, err := s.measure(want)
	if err != nil {
		return placed(src, err)
	}
	if chosen != nil {
		if err := s.write(chosen, src); err != nil {
			return placed(src, err)
		}
	}
	s.bar.Done()
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, s)
	}
	if s.Out != standard && !c.Bool("quiet") || chosen == nil {
		s.print(c.App.Writer)
	}
	return nil
}

func unknownStock(want string) error {
	names := append(stock.Names(), stockAuto, stockCompare)
	hint := "types: " + strings.Join(names, ", ")
	if near := cli.Closest(want, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return cli.Usagef(hint, "--stock: no type %q", want)
}

// checkOut refuses outputs that must not be written.
func (s *stocking) checkOut() error {
	fd, err := os.Open(s.File)
	if err != nil {
		return err
	}
	defer fd.Close()
	if s.c.Bool("ollama") && s.modelfile() == s.Out {
		return cli.Usagef("name it .gguf", "%q is the name of both the output and its Modelfile", s.Out)
	}
	in := &input{name: s.File, file: fd}
	if err := checkTarget(s.c, in, s.Out); err != nil || !s.c.Bool("ollama") {
		return err
	}
	return checkTarget(s.c, in, s.modelfile())
}

// modelfile is the name of the Modelfile beside the output.
func (s *stocking) modelfile() string {
	return strings.TrimSuffix(s.Out, filepath.Ext(s.Out)) + ".Modelfile"
}

// measure measures the types that want asks for and returns the one to write,
// or nil.
func (s *stocking) measure(want string) (*stockResult, error) {
	if s.judge.windows != nil {
		exact, _ := stock.ParseType("f32")
		tensors, err := stock.Plan(s.m, exact, stock.Levels)
		if err != nil {
			return nil, err
		}
		p, err := s.perplexity("the container", tensors)
		if err != nil {
			return nil, err
		}
		s.Perplexity = &p
	}
	for _, ty := range stock.Types {
		if ty.Name != want && want != stockAuto && want != stockCompare {
			continue
		}
		if want == stockAuto && s.judge.trajectories == nil && ty.Name != stockUnproven {
			continue
		}
		roundings := []stock.Rounding{stock.Levels}
		if weights, _ := ty.Linear.Block(); want == stockCompare && weights > 1 { // else there is one way
			roundings = append(roundings, stock.Nearest)
		}
		for _, r := range roundings {
			if err := s.one(ty, r); err != nil {
				return nil, err
			}
		}
		if last := &s.Results[len(s.Results)-1]; want != stockCompare && (want != stockAuto || last.keeps() || s.judge.trajectories == nil) {
			if s.judge.trajectories == nil && want == stockAuto {
				cli.Warn(s.c.App.ErrWriter, "npack", "no trajectories.json beside %q to judge by: %s taken", s.File, ty.Name)
			}
			return last, nil
		}
	}
	if want == stockAuto { // f32 is the last
		return &s.Results[len(s.Results)-1], nil
	}
	return nil, nil
}

// one measures a type.
func (s *stocking) one(ty stock.Type, rounding stock.Rounding) error {
	r := stockResult{Type: ty.Name, Rounding: "levels"}
	if rounding == stock.Nearest {
		r.Rounding = "nearest"
	}
	label := ty.Name
	if rounding == stock.Nearest {
		label += " nearest"
	}
	var err error
	if r.tensors, err = stock.Plan(s.m, ty, rounding); err != nil {
		return err
	}
	if r.Bytes, err = stock.Size(s.metadata(&r, ty), r.tensors); err != nil {
		return err
	}
	e, err := stock.Measure(s.c.Context, s.m, r.tensors, stock.Options{Progress: s.show(label + ": weights")})
	if err != nil {
		return err
	}
	if math.IsInf(max(e.Linear.Largest, e.Table.Largest), 1) {
		return &pack.Error{Kind: pack.ErrUnsupported, Offset: -1, Found: fmt.Sprintf("a weight is larger than type %s holds", ty.Name), Expected: "at most 65504", Hint: "--stock f32 and bf16 hold all weights"}
	}
	r.LargestError, r.MeanError, r.TableLargest, r.TableMean = e.Linear.Largest, e.Linear.Mean, e.Table.Largest, e.Table.Mean
	if s.judge.trajectories != nil {
		w := stock.NewWeights(s.m, r.tensors)
		exact, err := dense.Greedy(s.c.Context, w, s.judge.trajectories, s.show(label+": tokens"))
		if err != nil {
			return err
		}
		w.Imitate = true
		rounded, err := dense.Greedy(s.c.Context, w, s.judge.trajectories, s.show(label+": tokens, rounded"))
		if err != nil {
			return err
		}
		r.Tokens, r.Equal, r.EqualRounded = exact.Compared, exact.Equal, rounded.Equal
	}
	switch {
	case s.judge.windows == nil:
	case ty.Linear == gguf.F32: // the container's weights
		r.Perplexity = s.Perplexity
	default:
		p, err := s.perplexity(label, r.tensors)
		if err != nil {
			return err
		}
		r.Perplexity = &p
	}
	s.Results = append(s.Results, r)
	return nil
}

func (s *stocking) perplexity(label string, tensors []stock.Tensor) (float64, error) {
	return dense.Perplexity(s.c.Context, stock.NewWeights(s.m, tensors), s.judge.windows, s.show(label+": perplexity"))
}

func (s *stocking) show(label string) func(done, total int64) {
	return func(done, total int64) { s.bar.Show(label, done, total) }
}

// metadata is what the file says; r may be known in part, with the same length
// in bytes.
func (s *stocking) metadata(r *stockResult, ty stock.Type) []gguf.KV {
	kv := fv5.Describe(&s.m.Config, fv5.Options{Name: s.name, Tokenizer: s.tok})
	add := func(key string, v gguf.Value) { kv = append(kv, gguf.KV{Key: key, Value: v}) }
	add("general.file_type", gguf.Uint32(ty.FileType))
	add("general.quantization_version", gguf.Uint32(2))
	add("npack.stock.type", gguf.String(ty.Name))
	add("npack.stock.made_by", gguf.String("npack "+cli.Version))
	add("npack.stock.linear_error_largest", gguf.Float32(float32(r.LargestError)))
	add("npack.stock.linear_error_mean", gguf.Float32(float32(r.MeanError)))
	add("npack.stock.embedding_error_largest", gguf.Float32(float32(r.TableLargest)))
	add("npack.stock.embedding_error_mean", gguf.Float32(float32(r.TableMean)))
	if s.judge.trajectories != nil {
		add("npack.stock.tokens_compared", gguf.Uint32(uint32(r.Tokens)))
		add("npack.stock.tokens_equal", gguf.Uint32(uint32(r.Equal)))
		add("npack.stock.tokens_equal_rounded", gguf.Uint32(uint32(r.EqualRounded)))
	}
	if s.judge.windows != nil {
		p := 0.0
		if r.Perplexity != nil {
			p = *r.Perplexity
		}
		add("npack.stock.perplexity", gguf.Float32(float32(p)))
		add("npack.stock.perplexity_of_container", gguf.Float32(float32(*s.Perplexity)))
	}
	return kv
}

// write writes the file, and the Modelfile if it is asked for.
func (s *stocking) write(r *stockResult, src formats.Source) error {
	s.Type = r.Type
	if s.Out == "" {
		s.Out = strings.TrimSuffix(src.Name(), filepath.Ext(src.Name())) + "-" + r.Type + ".gguf"
		if err := s.checkOut(); err != nil {
			return err
		}
	}
	ty, _ := stock.ParseType(r.Type)
	container, err := native.Digest(s.c.Context, s.m)
	if err != nil {
		return err
	}
	if s.tok == nil {
		s.bar.Done()
		warnNoTokenizer(s.c, src)
	}
	kv := append(s.metadata(r, ty), gguf.KV{Key: "npack.stock.container_sha256", Value: gguf.String(container.SHA256)})
	if r.Bytes, err = stock.Size(kv, r.tensors); err != nil {
		return err
	}
	err = writeOutput(s.c, s.Out, r.Bytes, func(w io.Writer) error {
		return stock.Write(s.c.Context, w, s.m, kv, r.tensors, stock.Options{Progress: s.show("writing")})
	})
	if err != nil || !s.c.Bool("ollama") {
		return err
	}
	return s.writeModelfile()
}

func (s *stocking) writeModelfile() error {
	config, err := pack.ReadOptional(filepath.Join(s.dir, "generation_config.json"), maxSide)
	if err != nil {
		return err
	}
	text, err := modelfile.Make(filepath.Base(s.Out), s.tok, config, s.m.MaxPosition)
	if err != nil {
		return &pack.Error{Kind: pack.ErrCorrupt, File: s.dir, Offset: -1, Found: err.Error()}
	}
	s.Modelfile = s.modelfile()
	f, err := outfile.Create(s.Modelfile, 0)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := io.WriteString(f, text); err != nil {
		return err
	}
	return f.Commit()
}
