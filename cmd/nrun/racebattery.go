package main

import (
	"errors"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/race"
	"npack/pack"
	"npack/runtime/identity"
)

// promptFlags say which prompts are answered.
func promptFlags() []urfave.Flag {
	return []urfave.Flag{
		batteryFlag(), stepsFlag(),
		&urfave.StringFlag{Name: "class", Usage: "of the battery, the prompts of `CLASS,…` alone"},
		&urfave.StringSliceFlag{Name: "prompt", Aliases: []string{"p"}, KeepSpace: true, Usage: "answer `TEXT` instead of a battery; may be given again"},
	}
}

// promptsSet reports whether a command line says something about prompts.
func promptsSet(c *urfave.Context) bool {
	return slices.ContainsFunc([]string{"battery", "prompt", "class", "steps"}, c.IsSet)
}

// questions are what is answered, and how long answers are.
type questions struct {
	name   string
	list   []race.Prompt
	tokens int
}

// typedTokens is the length of answers to prompts of the command line.
const typedTokens = 64

// questions makes the prompts that a command line chooses, in tokens of p. An
// end of text does not end an answer.
func (p *packOf) questions(c *urfave.Context) (*questions, error) {
	b, name, err := p.typed(c)
	if b == nil && err == nil {
		b, name, err = p.battery(c)
	}
	if err != nil {
		return nil, err
	}
	q := &questions{name: name}
	if q.tokens, err = batterySteps(c, b); err != nil {
		return nil, err
	}
	chosen, err := choosePrompts(c, b)
	if err != nil {
		return nil, err
	}
	prompts, err := p.encodeBattery(b, name, chosen, q.tokens)
	if errors.Is(err, pack.ErrCorrupt) && (c.IsSet("prompt") || c.IsSet("steps")) {
		// The command line asks for what does not fit, not the file.
		return nil, cli.Usagef("a smaller -n, or other prompts: --class", "%s", err)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range prompts {
		ids, err := nonEmpty(t.Prompt, nil)
		if err != nil {
			return nil, err
		}
		q.list = append(q.list, race.Prompt{Class: t.Class, IDs: ids})
	}
	return q, nil
}

// typed makes a battery of the prompts of a command line; nil if there are none.
func (p *packOf) typed(c *urfave.Context) (*identity.Battery, string, error) {
	if !c.IsSet("prompt") {
		return nil, "", nil
	}
	for _, name := range []string{"battery", "class"} {
		if c.IsSet(name) {
			return nil, "", cli.Usagef("leave one of them out", "both -p and --%s are given", name)
		}
	}
	b := &identity.Battery{Steps: typedTokens}
	for _, text := range c.StringSlice("prompt") {
		if text == "" {
			return nil, "", cli.Usagef("the model needs something to continue", "-p with an empty text")
		}
		b.Prompts = append(b.Prompts, identity.BatteryPrompt{Text: text})
	}
	return b, "command line", nil
}

// choosePrompts returns the indices of the prompts of --class, or all.
func choosePrompts(c *urfave.Context, b *identity.Battery) ([]int, error) {
	if !c.IsSet("class") {
		return b.Shard(0, 1), nil
	}
	classes := list(c, "class")
	var chosen []int
	found := map[string]bool{}
	for i := range b.Prompts {
		if class := b.Prompts[i].Class; slices.Contains(classes, class) {
			chosen, found[class] = append(chosen, i), true
		}
	}
	for _, class := range classes {
		if !found[class] {
			return nil, cli.Usagef("classes: "+strings.Join(identity.Classes, ", "), "--class: the battery has no prompts of class %q", class)
		}
	}
	return chosen, nil
}
