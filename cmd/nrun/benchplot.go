package main

import (
	"fmt"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// benchColors are those of Okabe and Ito, told apart by all common forms of
// colour blindness.
var benchColors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.Black,
}

const (
	benchPlotWidth  = 12 * vg.Inch
	benchPlotHeight = 5 * vg.Inch
)

// writeBenchPlot draws tokens a second by depth, prefill beside decode, as PNG
// or, if path says so, as SVG. Bars are the range over the rounds.
func writeBenchPlot(path string, r *benchReport) error {
	var panels []*plot.Plot
	for _, test := range []string{testPrefill, testDecode} {
		p, err := benchPanel(r, test)
		if err != nil {
			return err
		}
		if p != nil {
			panels = append(panels, p)
		}
	}
	return writePlots(path, benchPlotWidth, benchPlotHeight, panels...)
}

// benchPanel draws a line for each length and configuration; nil if there is
// none.
func benchPanel(r *benchReport, test string) (*plot.Plot, error) {
	type series struct {
		plotter.XYs
		plotter.YErrors
	}
	lines := map[string]*series{}
	var names []string
	for _, t := range r.Results {
		if t.Test != test {
			continue
		}
		name := fmt.Sprintf("%d tokens, %s, %s", t.Tokens, t.Activations, threadsText(t.Threads))
		s := lines[name]
		if s == nil {
			s = &series{}
			lines[name], names = s, append(names, name)
		}
		s.XYs = append(s.XYs, plotter.XY{X: float64(t.Depth), Y: t.Rate.Median})
		s.YErrors = append(s.YErrors, struct{ Low, High float64 }{t.Rate.Median - t.Rate.Min, t.Rate.Max - t.Rate.Median})
	}
	if names == nil {
		return nil, nil
	}
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s: %s on %s", test, filepath.Base(r.Model), onBackend(r.Backend, r.Kernels))
	p.X.Label.Text, p.Y.Label.Text = "depth, tokens", "tokens/s"
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	p.Add(plotter.NewGrid())
	for i, name := range names {
		s := lines[name]
		line, points, err := plotter.NewLinePoints(s.XYs)
		if err != nil {
			return nil, err
		}
		bars, err := plotter.NewYErrorBars(s)
		if err != nil {
			return nil, err
		}
		line.Color = benchColors[i%len(benchColors)]
		points.Color, bars.Color, points.Shape = line.Color, line.Color, draw.CircleGlyph{}
		p.Add(line, points, bars)
		p.Legend.Add(name, line, points)
	}
	p.Y.Min, p.Y.Max = 0, 1.25*p.Y.Max // room for the legend
	if p.X.Min == p.X.Max {
		p.X.Min, p.X.Max = max(0, p.X.Min-1), p.X.Max+1
	}
	return p, nil
}
