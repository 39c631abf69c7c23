package main

import (
	"image/color"
	"io"
	"path/filepath"

	urfave "github.com/urfave/cli/v2"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/internal/race"
)

// plotName checks --plot before anything is measured.
func plotName(c *urfave.Context) error {
	plot := c.String("plot")
	if !c.IsSet("plot") {
		return nil
	}
	if ext := filepath.Ext(plot); ext != ".png" && ext != ".svg" {
		return cli.Usagef("", "--plot %q: the name must end in .png or .svg", plot)
	}
	return outfile.Check(plot)
}

// writePlots draws plots side by side, as PNG or, if path says so, as SVG. The
// file appears when it is complete.
func writePlots(path string, w, h vg.Length, plots ...*plot.Plot) error {
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if filepath.Ext(path) == ".svg" {
		canvas = vgsvg.New(w, h)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(110), vgimg.UseBackgroundColor(color.White))}
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Points(18), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(12)}
	for i, c := range plot.Align([][]*plot.Plot{plots}, tiles, draw.New(canvas))[0] {
		plots[i].Draw(c)
	}
	f, err := outfile.Create(path, 0)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := canvas.WriteTo(f); err != nil {
		return err
	}
	return f.Commit()
}

// writeRacePlot draws every round's rate as a dot, above the contestant's name,
// and medians as bars: decode and prefill and, with classes, decode by class.
func writeRacePlot(path string, r *race.Report) error {
	width := vg.Length(2*max(3, len(r.Contestants))) * vg.Inch
	decode, err := racePanel(r, "decode", (*race.Work).DecodeRate)
	if err != nil {
		return err
	}
	prefill, err := racePanel(r, "prefill", (*race.Work).PrefillRate)
	if err != nil {
		return err
	}
	plots := []*plot.Plot{decode, prefill}
	if len(r.Summaries[0].Classes) > 1 {
		classes, err := classPanel(r)
		if err != nil {
			return err
		}
		plots = append(plots, classes)
		width += vg.Length(len(r.Summaries[0].Classes)) * vg.Inch
	}
	return writePlots(path, width, 5*vg.Inch, plots...)
}

func racePanel(r *race.Report, test string, rate func(*race.Work) float64) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = test + ", " + roundsText(len(r.Rounds))
	p.Y.Label.Text = "tokens/s"
	p.Add(plotter.NewGrid())
	var names []string
	for i, d := range r.Contestants {
		names = append(names, d.Name)
		var dots plotter.XYs
		for n := range r.Rounds {
			// Side by side, in the order of the rounds: a drift shows.
			x := float64(i) + 0.5*(float64(n)+0.5)/float64(len(r.Rounds)) - 0.25
			dots = append(dots, plotter.XY{X: x, Y: rate(&r.Rounds[n].Samples[i].Total)})
		}
		points, err := plotter.NewScatter(dots)
		if err != nil {
			return nil, err
		}
		points.Color, points.Shape = benchColors[i%len(benchColors)], draw.CircleGlyph{}
		s := r.Summaries[i].Decode
		if test == "prefill" {
			s = r.Summaries[i].Prefill
		}
		median, err := plotter.NewLine(plotter.XYs{{X: float64(i) - 0.35, Y: s.Median}, {X: float64(i) + 0.35, Y: s.Median}})
		if err != nil {
			return nil, err
		}
		median.Color, median.Width = benchColors[i%len(benchColors)], vg.Points(2)
		p.Add(points, median)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	p.Y.Min, p.Y.Max = 0, 1.08*p.Y.Max
	return p, nil
}

// classPanel draws a group of bars for each class, a bar for each contestant
// that has classes.
func classPanel(r *race.Report) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "decode by class of prompt, medians"
	p.Y.Label.Text = "tokens/s"
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	p.Add(plotter.NewGrid())
	var names []string
	for _, c := range r.Summaries[0].Classes {
		names = append(names, c.Class)
	}
	width := vg.Points(40 / float64(len(r.Summaries)))
	for i, s := range r.Summaries {
		if len(s.Classes) != len(names) {
			continue // a bench has none
		}
		var values plotter.Values
		for _, c := range s.Classes {
			values = append(values, c.Decode.Median)
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = benchColors[i%len(benchColors)], 0
		bars.Offset = width * vg.Length(float64(i)-float64(len(r.Summaries)-1)/2)
		p.Add(bars)
		p.Legend.Add(s.Contestant, bars)
	}
	p.NominalX(names...)
	p.X.Tick.Label.Rotation = 0.4
	p.X.Tick.Label.XAlign = draw.XRight
	p.Y.Min, p.Y.Max = 0, 1.3*p.Y.Max // room for the legend
	return p, nil
}
