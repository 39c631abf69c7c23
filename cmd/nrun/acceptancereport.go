package main

import (
	"fmt"
	"image/color"
	"io"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// printAcceptance prints a table for each length: a line a class, and all.
func printAcceptance(w io.Writer, r *acceptanceReport) error {
	fmt.Fprintf(w, "%s drafted by %s on %s, %s; battery %s, answers of %d tokens, equal to those without a draft\n",
		r.Model, r.Draft, onBackend(r.Backend, r.Kernels), threadsText(r.Threads), r.Battery, r.Tokens)
	for i := range r.Lengths {
		l := &r.Lengths[i]
		fmt.Fprintf(w, "draft length %s\n", l.Length)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(tw, "class\tprompts\ttokens\tpasses\tper 512\ttokens/pass\tdrafted\tkept\tof drafted\tdraft's time\ttimes plain\tpasses by kept (plain:0,1,…)\t\n")
		for k := range l.Classes {
			acceptanceRow(tw, &l.Classes[k])
		}
		if len(l.Classes) != 1 {
			acceptanceRow(tw, &l.Total)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func acceptanceRow(w io.Writer, a *acceptanceClass) {
	var kept []string
	last := 0
	for i, n := range a.Kept {
		if n > 0 {
			last = i
		}
	}
	for _, n := range a.Kept[:last+1] {
		kept = append(kept, fmt.Sprint(n))
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.0f\t%.2f\t%d\t%d\t%.0f %%\t%.0f %%\t%.2f\t%d:%s\t\n", orUnknown(a.Class), a.Prompts, a.Tokens, a.Passes, a.PassesPer512, a.TokensPerPass,
		a.Drafted, a.Accepted, 100*a.Acceptance, 100*a.DraftShare, a.TimesPlain, a.Plain, strings.Join(kept, ","))
}

// keptColor is that of passes that kept so many drafted tokens, dark being many;
// passes without a draft, -1, are grey.
func keptColor(kept int) color.Color {
	if kept < 0 {
		return color.Gray{0xcc}
	}
	// From a pale orange to a dark blue: also in grey a row from light to dark.
	mix := func(a, b float64) uint8 { return uint8(a + (b-a)*float64(kept)/7) }
	return color.RGBA{mix(0xfd, 0x08), mix(0xd0, 0x30), mix(0xa2, 0x6b), 0xff}
}

// writeAcceptancePlot draws for each length the tokens that passes of each class
// kept, as stacked shares, and for all lengths the passes for 512 tokens.
func writeAcceptancePlot(path string, r *acceptanceReport) error {
	var plots []*plot.Plot
	for i := range r.Lengths {
		p, err := keptPanel(&r.Lengths[i])
		if err != nil {
			return err
		}
		plots = append(plots, p)
	}
	p, err := passesPanel(r)
	if err != nil {
		return err
	}
	plots = append(plots, p)
	classes := vg.Length(len(r.Lengths[0].Classes))
	return writePlots(path, vg.Length(len(plots))*(2.2+0.55*classes)*vg.Inch, 5*vg.Inch, plots...)
}

// keptPanel stacks the shares of a class's passes by how many drafted tokens
// they kept; behind the class's name stand its tokens a pass.
func keptPanel(l *acceptanceLength) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("passes by drafted tokens kept, draft length %s", l.Length)
	p.Y.Label.Text = "% of passes"
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	var names []string
	for i := range l.Classes {
		names = append(names, fmt.Sprintf("%s (%.1f a pass)", orUnknown(l.Classes[i].Class), l.Classes[i].TokensPerPass))
	}
	var below *plotter.BarChart
	for kept := -1; kept < len(l.Total.Kept); kept++ {
		var values plotter.Values
		for i := range l.Classes {
			values = append(values, 100*float64(l.Classes[i].passesKeeping(kept))/float64(max(1, l.Classes[i].Passes)))
		}
		if l.Total.passesKeeping(kept) == 0 {
			continue
		}
		bars, err := plotter.NewBarChart(values, vg.Points(24))
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = keptColor(kept), 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		name := fmt.Sprint(kept)
		if kept < 0 {
			name = "no draft"
		}
		p.Legend.Add(name, bars)
	}
	classAxis(p, names)
	p.X.Max++ // room for the legend
	p.Y.Min, p.Y.Max = 0, 100
	return p, nil
}

// passesKeeping is the number of passes that kept so many drafted tokens; -1 are
// those without a draft.
func (a *acceptanceClass) passesKeeping(kept int) int {
	if kept < 0 {
		return a.Plain
	}
	return a.Kept[kept]
}

func classAxis(p *plot.Plot, names []string) {
	p.NominalX(names...)
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign = 0.5, draw.XRight
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
}

// passesPanel draws passes for 512 tokens, a group of bars a class.
func passesPanel(r *acceptanceReport) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "passes for 512 tokens"
	p.Y.Label.Text = "passes"
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	p.Add(plotter.NewGrid())
	var names []string
	for i := range r.Lengths[0].Classes {
		names = append(names, orUnknown(r.Lengths[0].Classes[i].Class))
	}
	width := vg.Points(26 / float64(len(r.Lengths)))
	for i := range r.Lengths {
		var values plotter.Values
		for k := range r.Lengths[i].Classes {
			values = append(values, r.Lengths[i].Classes[k].PassesPer512)
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = benchColors[i%len(benchColors)], 0
		bars.Offset = width * vg.Length(float64(i)-float64(len(r.Lengths)-1)/2)
		p.Add(bars)
		p.Legend.Add("length "+r.Lengths[i].Length, bars)
	}
	classAxis(p, names)
	p.Y.Min, p.Y.Max = 0, 640 // 512 is no draft at all; above it is room for the legend
	return p, nil
}
