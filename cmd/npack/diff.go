package main

import (
	"fmt"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/modeldiff"
	"npack/pack"
	"npack/pack/formats"
)

func diffCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "diff",
		Usage:     "compare the weights of two models of any formats",
		UsageText: "npack diff [flags] A B",
		Description: "Says \"same weights\", or names the first difference in the container's order: tensor, row, column\n" +
			"and both values. Geometry, weights, scales, norms and biases count; how a format stores them does\n" +
			"not: padding, row sums, tokenizers.\n\n" +
			"Exit status: 0 same weights, 3 different.\n\n" +
			cli.Examples("npack diff model.bin model.gguf", "npack diff --json pack/ other-pack/"),
		Flags:  []urfave.Flag{jsonFlag(), quietFlag("print nothing unless they differ")},
		Action: diff,
	}
}

// comparison is the object that diff --json prints.
type comparison struct {
	A          string                `json:"a"`
	B          string                `json:"b"`
	FormatA    string                `json:"format_a"`
	FormatB    string                `json:"format_b"`
	Same       bool                  `json:"same"`
	Weights    int64                 `json:"weights"` // compared
	Difference *modeldiff.Difference `json:"difference,omitempty"`
}

func diff(c *urfave.Context) error {
	args, err := cli.Positionals(c, 2, 2)
	if err != nil {
		return err
	}
	var src [2]formats.Source
	for i, arg := range args {
		if src[i], err = formats.Open(c.Context, arg); err != nil {
			return err
		}
		defer src[i].Close()
	}
	x := &comparison{A: src[0].Name(), B: src[1].Name(), FormatA: formatOf(src[0]), FormatB: formatOf(src[1])}
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	x.Difference, err = modeldiff.First(c.Context, src[0], src[1], func(done, total int64) { p.Show("comparing", done, total) })
	if err != nil {
		return err
	}
	p.Done()
	x.Weights, x.Same = countWeights(src[0].Model()).Total, x.Difference == nil
	if c.Bool("json") {
		if err := cli.JSON(c.App.Writer, x); err != nil {
			return err
		}
	} else if x.Same && !c.Bool("quiet") {
		fmt.Fprintf(c.App.Writer, "same weights: %s in %q (%s) and %q (%s)\n", cli.Group(x.Weights), x.A, x.FormatA, x.B, x.FormatB)
	}
	if !x.Same {
		return &pack.Error{Kind: pack.ErrNotEqual, Offset: -1, Found: fmt.Sprintf("%q and %q have different weights: %s", x.A, x.B, x.Difference)}
	}
	return nil
}
