package main

import (
	"fmt"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"npack/internal/cli"
	"npack/internal/outfile"
)

// levels are what is stacked in each panel, from the bottom up. The colours
// are told apart by all common forms of colour blindness and in grey.
var levels = []struct {
	name  string
	color color.Color
	count func(counts) int64
}{
	{"+hi", color.RGBA{0xb3, 0x58, 0x06, 0xff}, func(c counts) int64 { return c.PlusHi }},
	{"-hi", color.RGBA{0xf1, 0xa3, 0x40, 0xff}, func(c counts) int64 { return c.MinusHi }},
	{"+lo", color.RGBA{0x40, 0x4e, 0x9c, 0xff}, func(c counts) int64 { return c.PlusLo }},
	{"-lo", color.RGBA{0x99, 0x8e, 0xc3, 0xff}, func(c counts) int64 { return c.MinusLo }},
	{"0", color.RGBA{0xec, 0xec, 0xec, 0xff}, func(c counts) int64 { return c.Zeros }},
}

const (
	plotWidth  = 14 * vg.Inch
	plotHeight = 7 * vg.Inch
	plotDPI    = 110
)

// writePlot draws the occupancy of every projection, and of all together, by
// layer: eight panels of stacked shares. The file appears when it is complete.
func writePlot(path string, r *report) error {
	panels := make([][]counts, 0, 8)
	for j := range r.Occupancy.Projections {
		series := make([]counts, len(r.Occupancy.Layers))
		for i := range series {
			series[i] = r.Occupancy.Layers[i][j]
		}
		panels = append(panels, series)
	}
	panels = append(panels, allProjections(r.Occupancy))

	tiles := draw.Tiles{Rows: 2, Cols: 4, PadX: vg.Points(14), PadY: vg.Points(14),
		PadTop: vg.Points(46), PadBottom: vg.Points(6), PadLeft: vg.Points(8), PadRight: vg.Points(14)}
	plots := make([][]*plot.Plot, tiles.Rows)
	for i, series := range panels {
		p, err := panel(series)
		if err != nil {
			return err
		}
		p.Title.Text = "all seven"
		if i < len(r.Occupancy.Projections) {
			p.Title.Text = r.Occupancy.Projections[i].Name
		}
		if i >= tiles.Cols {
			p.X.Label.Text = "layer"
		}
		if i%tiles.Cols == 0 {
			p.Y.Label.Text = "% of weights"
		}
		plots[i/tiles.Cols] = append(plots[i/tiles.Cols], p)
	}

	img := vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(plotDPI), vgimg.UseBackgroundColor(color.White))
	canvas := draw.New(img)
	for i, row := range plot.Align(plots, tiles, canvas) {
		for j, c := range row {
			plots[i][j].Draw(c)
		}
	}
	drawHeading(canvas, r)

	return writePNG(path, img)
}

func writePNG(path string, img *vgimg.Canvas) error {
	f, err := outfile.Create(path, 0)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(f); err != nil {
		return err
	}
	return f.Commit()
}

// allProjections adds up the linears of each layer.
func allProjections(o *occupancy) []counts {
	all := make([]counts, len(o.Layers))
	for i := range o.Layers {
		for _, c := range o.Layers[i] {
			all[i].Weights += c.Weights
			all[i].Zeros += c.Zeros
			all[i].PlusLo += c.PlusLo
			all[i].MinusLo += c.MinusLo
			all[i].PlusHi += c.PlusHi
			all[i].MinusHi += c.MinusHi
		}
	}
	return all
}

// panel stacks the shares of each layer, one step a layer.
func panel(series []counts) (*plot.Plot, error) {
	p := plot.New()
	p.X.Min, p.X.Max = -0.5, float64(len(series))-0.5
	p.Y.Min, p.Y.Max = 0, 100
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 25}, {Value: 50, Label: "50"}, {Value: 75}, {Value: 100, Label: "100"}}
	p.X.Tick.Marker = layerTicks(len(series))
	p.X.Padding, p.Y.Padding = 0, 0
	p.Title.TextStyle.Font = sans(vg.Points(12))
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans(vg.Points(11)), sans(vg.Points(10))
	}

	base := make([]float64, len(series))
	for _, level := range levels {
		var lower, upper plotter.XYs
		for i, c := range series {
			left, right := float64(i)-0.5, float64(i)+0.5
			lower = append(lower, plotter.XY{X: left, Y: base[i]}, plotter.XY{X: right, Y: base[i]})
			base[i] += c.percent(level.count(c))
			upper = append(upper, plotter.XY{X: left, Y: base[i]}, plotter.XY{X: right, Y: base[i]})
		}
		outline := lower
		for i := len(upper) - 1; i >= 0; i-- {
			outline = append(outline, upper[i])
		}
		area, err := plotter.NewPolygon(outline)
		if err != nil {
			return nil, err
		}
		area.Color, area.LineStyle.Width = level.color, 0
		p.Add(area)
	}
	return p, nil
}

func sans(size vg.Length) font.Font {
	f := font.From(plot.DefaultFont, size)
	f.Variant = "Sans"
	return f
}

// layerTicks labels up to about eight layers.
func layerTicks(n int) plot.ConstantTicks {
	step := max(1, (n+7)/8)
	var t plot.ConstantTicks
	for i := 0; i < n; i += step {
		t = append(t, plot.Tick{Value: float64(i), Label: fmt.Sprint(i)})
	}
	return t
}

// drawHeading draws the title and one legend for all panels above them.
func drawHeading(c draw.Canvas, r *report) {
	style := func(size vg.Length, x text.XAlignment) text.Style {
		return text.Style{Color: color.Black, Font: sans(size), XAlign: x, YAlign: text.YCenter, Handler: plot.DefaultTextHandler}
	}
	y := c.Max.Y - vg.Points(24)
	o := r.Occupancy.Total
	c.FillText(style(vg.Points(15), text.XLeft), vg.Point{X: vg.Points(12), Y: y},
		fmt.Sprintf("%s: %.1f %% zero, %.1f %% lo, %.1f %% hi of %s ternary weights", filepath.Base(r.File),
			o.percent(o.Zeros), o.percent(o.PlusLo+o.MinusLo), o.percent(o.PlusHi+o.MinusHi), cli.Group(o.Weights)))
	x := c.Max.X - vg.Points(14)
	for _, level := range levels {
		label := style(vg.Points(12), text.XRight)
		c.FillText(label, vg.Point{X: x, Y: y}, level.name)
		x -= label.Width(level.name) + vg.Points(5)
		box := vg.Points(6)
		c.FillPolygon(level.color, []vg.Point{{X: x - 2*box, Y: y - box}, {X: x, Y: y - box}, {X: x, Y: y + box}, {X: x - 2*box, Y: y + box}})
		x -= 2*box + vg.Points(16)
	}
}
