package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"npack/internal/machine"
	"npack/internal/race"
)

// racePrinter prints a race while it is held. Numbers stand in columns of fixed
// width, as nobody knows what is to come.
type racePrinter struct {
	w             io.Writer
	r             *race.Report
	silent, quiet bool // nothing at all; the summary alone
	token         func(int32) string
	width         int // of names
}

// head says what the race is about, and prints the rounds that it begins with.
func (p *racePrinter) head(why string) {
	for _, d := range p.r.Contestants {
		p.width = max(p.width, len(d.Name))
	}
	if p.silent || p.quiet {
		return
	}
	r := p.r
	fmt.Fprintf(p.w, "race: %d prompts (%s), answers of %d tokens, %s\n", len(r.Prompts), r.Battery, r.Tokens, roundsText(r.Wanted))
	for i := range r.Contestants {
		fmt.Fprintf(p.w, "  %s\n", r.Contestants[i].Text())
	}
	fmt.Fprintf(p.w, "%s, %d cores, %s to use\n", orUnknown(r.Machine.CPU.Model), max(r.Machine.CPU.Physical, 1), threadsText(r.Machine.Threads))
	if why != "" {
		fmt.Fprintln(p.w, why)
	}
}

// compared prints how the tokens compare, with each first difference.
func (p *racePrinter) compared(id *race.Identity) {
	if p.silent {
		return
	}
	if !p.quiet {
		if id.Reference != "" {
			fmt.Fprintf(p.w, "warm-up: tokens compared with the %d of %s\n", id.Tokens, id.Reference)
		}
		for i := range id.Results {
			fmt.Fprintf(p.w, "  %-*s  %s\n", p.width, id.Results[i].Contestant, p.verdict(&id.Results[i]))
			p.differences(&id.Results[i])
		}
		fmt.Fprintf(p.w, "%5s  %-*s  %16s  %15s  %8s  %5s  %5s  %4s\n", "round", p.width, "contestant", "prefill tokens/s", "decode tokens/s", "seconds", "load", "MHz", "°C")
		for n := range p.r.Rounds {
			for i := range p.r.Rounds[n].Samples {
				p.sampled(n+1, &p.r.Rounds[n].Before, &p.r.Rounds[n].Samples[i])
			}
		}
	}
}

func (p *racePrinter) verdict(c *race.Compared) string {
	s := c.Status
	switch c.Status {
	case race.Equal:
		s = fmt.Sprintf("equal, %d tokens", c.Tokens)
	case race.Differs:
		s = fmt.Sprintf("DIFFERS at %d of %d prompts", len(c.Differences), len(p.r.Prompts))
	}
	if c.Short > 0 {
		s += fmt.Sprintf("; %d answers end early", c.Short)
	}
	if c.SpeedOnly && c.Status != race.Reference {
		s += " (speed only)"
	}
	return s
}

// shownDifferences is how many forks are printed; JSON has all.
const shownDifferences = 5

func (p *racePrinter) differences(c *race.Compared) {
	for i, d := range c.Differences {
		if i == shownDifferences {
			fmt.Fprintf(p.w, "    and %d more\n", len(c.Differences)-i)
			return
		}
		fmt.Fprintf(p.w, "    prompt %d", d.Prompt)
		if d.Class != "" {
			fmt.Fprintf(p.w, " (%s)", d.Class)
		}
		got := "the end"
		if d.Got >= 0 {
			got = p.token(d.Got)
		}
		fmt.Fprintf(p.w, ", token %d: %s instead of %s", d.Position, got, p.token(d.Want))
		if d.Margin != nil && d.Behind != nil {
			fmt.Fprintf(p.w, "; margin %.3g, behind by %.3g", *d.Margin, *d.Behind)
		}
		fmt.Fprintln(p.w)
	}
}

// sampled prints a turn.
func (p *racePrinter) sampled(round int, clock *machine.Clock, s *race.Sample) {
	if p.silent || p.quiet {
		return
	}
	fmt.Fprintf(p.w, "%5d  %-*s  %16.1f  %15.1f  %8.2f  %5.1f  %5s  %4s\n", round, p.width, s.Contestant, s.Total.PrefillRate(), s.Total.DecodeRate(), s.Seconds, s.Load,
		known("%.0f", clock.MHz), known("%.0f", clock.Celsius))
}

// known formats a figure that the system may not tell.
func known(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

// summary prints what the rounds come to.
func (p *racePrinter) summary() error {
	if p.silent {
		return nil
	}
	r := p.r
	fmt.Fprintf(p.w, "medians and ranges of %s, tokens/s\n", roundsText(len(r.Rounds)))
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contestant\tprefill\trange\tdecode\trange\t\n")
	for i, s := range r.Summaries {
		note := ""
		if c := &r.Identity.Results[i]; c.SpeedOnly && c.Status != race.Equal && c.Status != race.Reference {
			note = "  tokens: " + c.Status
		}
		fmt.Fprintf(tw, "%s\t%.1f\t%.1f-%.1f\t%.1f\t%.1f-%.1f\t%s\n", s.Contestant, s.Prefill.Median, s.Prefill.Min, s.Prefill.Max, s.Decode.Median, s.Decode.Min, s.Decode.Max, note)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if c.Class == "" && (c.A == r.Contestants[0].Name || len(r.Contestants) <= shownPairs) {
			p.comparison(c)
		}
	}
	if err := p.classes(); err != nil {
		return err
	}
	if note := heatNote(r.Rounds); note != "" {
		fmt.Fprintln(p.w, note)
	}
	_, err := fmt.Fprintf(p.w, "load %.1f before and %.1f after\n", r.LoadBefore, r.LoadAfter)
	return err
}

// shownPairs is up to how many contestants all pairs are printed; of more, those
// with the first. JSON has all.
const shownPairs = 3

func (p *racePrinter) comparison(c *race.Comparison) {
	a, b, ratio, faster := c.A, c.B, c.Ratio, c.Faster
	if ratio.Median < 1 { // the faster one first
		a, b, faster = c.B, c.A, len(p.r.Rounds)-faster
		ratio = race.Range{Median: 1 / ratio.Median, Min: 1 / ratio.Max, Max: 1 / ratio.Min}
	}
	verdict := "the rates do not overlap"
	if c.Overlap {
		verdict = "the rates overlap"
	}
	fmt.Fprintf(p.w, "%s: %s is %.2f times as fast as %s (%.2f-%.2f by round), faster in %d of %d; %s\n", c.Test, a, ratio.Median, b, ratio.Min, ratio.Max, faster, len(p.r.Rounds), verdict)
}

// classes prints decode by class, everyone beside the first contestant.
func (p *racePrinter) classes() error {
	var byClass []race.Comparison
	for _, c := range p.r.Comparisons {
		if c.Class != "" && c.A == p.r.Contestants[0].Name {
			byClass = append(byClass, c)
		}
	}
	if len(byClass) == 0 || len(p.r.Summaries[0].Classes) < 2 {
		return nil
	}
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "decode by class\t%s\tcontestant\ttokens/s\ttimes\trange\t\n", p.r.Contestants[0].Name)
	for i := range p.r.Summaries[0].Classes {
		class := &p.r.Summaries[0].Classes[i]
		for _, c := range byClass {
			if c.Class != class.Class {
				continue
			}
			overlap := ""
			if c.Overlap {
				overlap = "overlap"
			}
			// The ratio is of the first to the other: here it is the other way round.
			fmt.Fprintf(tw, "%s\t%.1f\t%s\t%.1f\t%.2f\t%.2f-%.2f\t%s\n", orUnknown(class.Class), class.Decode.Median, c.B, p.decode(c.B, c.Class),
				1/c.Ratio.Median, 1/c.Ratio.Max, 1/c.Ratio.Min, overlap)
		}
	}
	return tw.Flush()
}

// decode is a contestant's median rate in a class.
func (p *racePrinter) decode(name, class string) float64 {
	for _, s := range p.r.Summaries {
		for _, c := range s.Classes {
			if s.Contestant == name && c.Class == class {
				return c.Decode.Median
			}
		}
	}
	return 0
}

func roundsText(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// heatNote says what the system tells of clocks and heat over the rounds.
func heatNote(rounds []race.Round) string {
	if len(rounds) == 0 {
		return ""
	}
	var notes []string
	first, last := rounds[0].Before, rounds[len(rounds)-1].After
	low, high, hot := first.MHz, first.MHz, first.Celsius
	for i := range rounds {
		for _, c := range []machine.Clock{rounds[i].Before, rounds[i].After} {
			low, high, hot = min(low, c.MHz), max(high, c.MHz), max(hot, c.Celsius)
		}
	}
	if high > 0 {
		note := fmt.Sprintf("clock %.0f-%.0f MHz", low, high)
		if first.MaxMHz > 0 {
			note += fmt.Sprintf(" of at most %.0f", first.MaxMHz)
		}
		notes = append(notes, note)
	}
	if first.Governor != "" {
		notes = append(notes, "governor "+first.Governor)
	}
	if hot > 0 {
		notes = append(notes, fmt.Sprintf("at most %.0f °C", hot))
	}
	if n := last.Throttled - first.Throttled; n > 0 {
		notes = append(notes, fmt.Sprintf("SLOWED DOWN BY HEAT %d times", n))
	}
	return strings.Join(notes, ", ")
}
