package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"text/tabwriter"

	"npack/internal/cli"
	"npack/internal/dense"
	"npack/pack"
	"npack/ternary"
)

// judge is what a stock file is judged by: files beside the model.
type judge struct {
	trajectories []dense.Trajectory
	windows      dense.Windows
}

// maxSide bounds the files that are read beside a model, in bytes.
const maxSide = 4 << 20

// newJudge reads what there is, or nothing if quick.
func newJudge(dir string, m *ternary.Model, quick bool) (j judge, err error) {
	if quick {
		return j, nil
	}
	const paths, text = "trajectories.json", "ppl.json"
	bad := func(name string, err error) error {
		return &pack.Error{Kind: pack.ErrCorrupt, File: filepath.Join(dir, name), Offset: -1, Found: err.Error(),
			Hint: "is this file of the same model? --quick goes without it"}
	}
	data, err := pack.ReadOptional(filepath.Join(dir, paths), maxSide)
	if err != nil {
		return j, err
	}
	if data != nil {
		if j.trajectories, err = dense.ParseTrajectories(data, &m.Config); err != nil {
			return j, bad(paths, err)
		}
	}
	if data, err = pack.ReadOptional(filepath.Join(dir, text), maxSide); err != nil || data == nil {
		return j, err
	}
	if j.windows, err = dense.ParseWindows(data, &m.Config); err != nil {
		return j, bad(text, err)
	}
	return j, nil
}

// print prints the table of what was measured and what was written.
func (s *stocking) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "type\trounding\tbytes\tlargest error\tmean error\tof embeddings\ttokens equal\trounded as llama.cpp\tperplexity\t")
	for i := range s.Results {
		r := &s.Results[i]
		equal, rounded, ppl := "-", "-", "-"
		if r.Tokens > 0 {
			equal, rounded = fmt.Sprintf("%d/%d", r.Equal, r.Tokens), fmt.Sprintf("%d/%d", r.EqualRounded, r.Tokens)
		}
		if r.Perplexity != nil {
			ppl = fmt.Sprintf("%+.4f %%", 100*(*r.Perplexity / *s.Perplexity - 1))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Type, r.Rounding, cli.Group(r.Bytes), share(r.LargestError), share(r.MeanError), share(r.TableMean), equal, rounded, ppl)
	}
	t.Flush()
	if s.Perplexity != nil {
		fmt.Fprintf(w, "perplexity of the container: %.4f\n", *s.Perplexity)
	}
	if s.Out != "" {
		fmt.Fprintf(w, "wrote %q: type %s\n", s.Out, s.Type)
	}
	if s.Modelfile != "" {
		fmt.Fprintf(w, "wrote %q: ollama create NAME -f %s\n", s.Modelfile, s.Modelfile)
	}
}

// share prints a relative error.
func share(e float64) string {
	if e == 0 {
		return "0"
	}
	return strconv.FormatFloat(100*e, 'g', 3, 64) + " %"
}
