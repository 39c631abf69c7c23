package main

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"npack/internal/cli"
	"npack/ternary"
)

// lineColors are those of Okabe and Ito, told apart by all common forms of
// colour blindness.
var lineColors = [ternary.NumProjections]color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.Black,
}

// writeTransportPlot draws, by layer and projection, the bits that a weight
// takes in the transport and how far that is above the order-0 entropy, or if
// that was not counted, beside the planes.
func writeTransportPlot(path string, r *transportReport) error {
	bits, err := transportPanel(r, "bits a weight, heads included", func(s *codedSize) float64 { return s.Bits })
	if err != nil {
		return err
	}
	label, value := "% of the planes' bytes", func(s *codedSize) float64 { return 100 * s.Ratio }
	if r.Exact {
		label, value = "% above the order-0 entropy", func(s *codedSize) float64 { return 100 * s.Above }
	}
	second, err := transportPanel(r, label, value)
	if err != nil {
		return err
	}
	second.Legend = plot.NewLegend() // one serves both
	if r.Exact {
		second.Y.Min = 0
	}

	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Points(18), PadTop: vg.Points(46), PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: vg.Points(14)}
	img := vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(plotDPI), vgimg.UseBackgroundColor(color.White))
	canvas := draw.New(img)
	plots := [][]*plot.Plot{{bits, second}}
	for j, c := range plot.Align(plots, tiles, canvas)[0] {
		plots[0][j].Draw(c)
	}
	title := text.Style{Color: color.Black, Font: sans(vg.Points(15)), XAlign: text.XLeft, YAlign: text.YCenter, Handler: plot.DefaultTextHandler}
	canvas.FillText(title, vg.Point{X: vg.Points(12), Y: canvas.Max.Y - vg.Points(24)},
		fmt.Sprintf("%s: %s bytes, %.2f %% of the container", filepath.Base(r.File), cli.Group(r.Bytes), 100*r.Ratio))

	return writePNG(path, img)
}

// transportPanel draws one line a projection.
func transportPanel(r *transportReport, label string, value func(*codedSize) float64) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "layer", label
	p.X.Tick.Marker = layerTicks(len(r.Layers))
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans(vg.Points(11)), sans(vg.Points(10))
	}
	p.Legend.TextStyle.Font, p.Legend.Top, p.Legend.Padding = sans(vg.Points(10)), true, vg.Points(2)
	p.Add(plotter.NewGrid())
	for j, name := range ternary.Projections {
		var xy plotter.XYs
		for i := range r.Layers {
			xy = append(xy, plotter.XY{X: float64(i), Y: value(&r.layer(i)[j])})
		}
		line, points, err := plotter.NewLinePoints(xy)
		if err != nil {
			return nil, err
		}
		line.Color, points.Color = lineColors[j], lineColors[j]
		line.Width, points.Radius, points.Shape = vg.Points(1.2), vg.Points(2), draw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	// A model whose layers are all alike is a flat line, not noise that fills
	// the panel; room on top is for the legend.
	if span := p.Y.Max - p.Y.Min; span < 0.02 {
		mid := (p.Y.Max + p.Y.Min) / 2
		p.Y.Min, p.Y.Max = mid-0.01, mid+0.01
	}
	p.Y.Max += 0.35 * math.Abs(p.Y.Max-p.Y.Min)
	return p, nil
}
