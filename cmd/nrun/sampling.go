package main

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/runtime/engine"
	"npack/runtime/tokenizer"
)

// samplingFlags choose the next token. Their order is the order of the steps;
// NUMERICS.md has the arithmetic.
func samplingFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.Float64Flag{Name: "temperature", Aliases: []string{"temp"}, Usage: "`T`; 0 always takes the likeliest token"},
		&urfave.Uint64Flag{Name: "seed", Usage: "`SEED` of the random numbers; the same seed gives the same text", DefaultText: "a new one each time"},
		&urfave.IntFlag{Name: "top-k", Usage: "choose among the `K` likeliest tokens; 0 is off"},
		&urfave.Float64Flag{Name: "top-p", Usage: "choose among the likeliest tokens that together reach probability `P`; 1 is off", Value: 1},
		&urfave.Float64Flag{Name: "min-p", Usage: "leave out tokens less than `P` times as likely as the likeliest; 0 is off"},
		&urfave.Float64Flag{Name: "repeat-penalty", Usage: "divide the logits of recent tokens by `R`; 1 is off", Value: 1},
		&urfave.Float64Flag{Name: "presence-penalty", Usage: "subtract `A` from the logits of recent tokens; 0 is off"},
		&urfave.Float64Flag{Name: "frequency-penalty", Usage: "subtract `A` for each time a token came up recently; 0 is off"},
		&urfave.IntFlag{Name: "repeat-last-n", Usage: "recent means the last `N` tokens; -1 means all", Value: 64},
		&urfave.Float64Flag{Name: "dry-multiplier", Usage: "subtract `M` from what lengthens a repetition, more the longer it is; 0 is off, 0.8 is usual"},
		&urfave.Float64Flag{Name: "dry-base", Usage: "`B`, by which that grows with each token", Value: 1.75},
		&urfave.IntFlag{Name: "dry-allowed-length", Usage: "repetitions of less than `N` tokens are free", Value: 2},
		&urfave.IntFlag{Name: "dry-penalty-last-n", Usage: "look for repetitions in the last `N` tokens; -1 means all", Value: -1},
		&urfave.StringSliceFlag{Name: "dry-sequence-breaker", KeepSpace: true, Usage: "no repetition reaches across a token that holds `TEXT`; may be given again", DefaultText: `newline, :, ", *`},
	}
}

// sampling reads the flags, beginning with base, which flags that are given
// override. tok may be nil if DRY is off.
func sampling(c *urfave.Context, base engine.Sampling, tok func() (*tokenizer.Tokenizer, error)) (engine.Sampling, error) {
	s := base
	for name, to := range map[string]*float64{
		"temperature": &s.Temperature, "top-p": &s.TopP, "min-p": &s.MinP,
		"repeat-penalty": &s.Repetition, "presence-penalty": &s.Presence, "frequency-penalty": &s.Frequency,
		"dry-multiplier": &s.DRY.Multiplier,
	} {
		if c.IsSet(name) {
			*to = c.Float64(name)
		}
	}
	if c.IsSet("top-k") {
		s.TopK = c.Int("top-k")
	}
	var err error
	if s.PenaltyWindow, err = lastN(c, "repeat-last-n"); err != nil {
		return s, err
	}
	if s.DRY.Multiplier != 0 {
		s.DRY.Base, s.DRY.AllowedLength = c.Float64("dry-base"), c.Int("dry-allowed-length")
		if s.DRY.Window, err = lastN(c, "dry-penalty-last-n"); err != nil {
			return s, err
		}
	}
	if err := s.Validate(); err != nil {
		return s, cli.Usagef("", "%s", err)
	}
	if err := refuseIdle(c, &s); err != nil {
		return s, err
	}
	if s.DRY.Multiplier > 0 {
		t, err := tok()
		if err != nil {
			return s, err
		}
		texts := []string{"\n", ":", "\"", "*"}
		if c.IsSet("dry-sequence-breaker") {
			texts = c.StringSlice("dry-sequence-breaker")
		}
		s.DRY.Breakers = breakers(t, texts)
	}
	if s.Seed = c.Uint64("seed"); !c.IsSet("seed") && s.Temperature > 0 {
		var b [4]byte // short enough to type again
		if _, err := rand.Read(b[:]); err != nil {
			return s, err
		}
		s.Seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	return s, nil
}

// lastN reads the length of a window: -1 on the command line means all tokens,
// as in llama.cpp, which the engine calls 0.
func lastN(c *urfave.Context, name string) (int, error) {
	n := c.Int(name)
	if n == 0 || n < -1 {
		return 0, cli.Usagef("-1 means all tokens", "--%s %d looks at no tokens", name, n)
	}
	return max(n, 0), nil
}

// refuseIdle refuses flags that would have no effect, rather than ignore them.
func refuseIdle(c *urfave.Context, s *engine.Sampling) error {
	if s.Temperature == 0 {
		for _, name := range []string{"top-k", "top-p", "min-p"} {
			if c.IsSet(name) {
				return cli.Usagef("add --temperature 0.7, or leave --"+name+" out", "--%s has no effect at temperature 0, which always takes the likeliest token", name)
			}
		}
	}
	if s.DRY.Multiplier == 0 {
		for _, name := range []string{"dry-base", "dry-allowed-length", "dry-penalty-last-n", "dry-sequence-breaker"} {
			if c.IsSet(name) {
				return cli.Usagef("add --dry-multiplier 0.8, or leave --"+name+" out", "--%s has no effect without --dry-multiplier", name)
			}
		}
	}
	return nil
}

// breakers are the ids of all tokens that hold one of the texts, and of all
// control tokens: the turns of a chat are alike and no repetition.
func breakers(t *tokenizer.Tokenizer, texts []string) []int32 {
	var ids []int32
	for id := range int32(t.Len()) {
		text, control := t.Token(id)
		for _, b := range texts {
			control = control || b != "" && strings.Contains(text, b)
		}
		if control {
			ids = append(ids, id)
		}
	}
	return ids
}

// describe says how tokens are chosen, in one line.
func describe(s *engine.Sampling) string {
	var parts []string
	add := func(on bool, format string, args ...any) {
		if on {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(s.Temperature == 0, "greedy")
	add(s.Temperature > 0, "temperature %g", s.Temperature)
	add(s.TopK > 0, "top-k %d", s.TopK)
	add(s.TopP > 0 && s.TopP < 1, "top-p %g", s.TopP)
	add(s.MinP > 0, "min-p %g", s.MinP)
	add(s.Repetition != 0 && s.Repetition != 1, "repeat penalty %g", s.Repetition)
	add(s.Presence != 0, "presence penalty %g", s.Presence)
	add(s.Frequency != 0, "frequency penalty %g", s.Frequency)
	add(s.DRY.Multiplier > 0, "DRY %g", s.DRY.Multiplier)
	add(s.Temperature > 0, "seed %d", s.Seed)
	return strings.Join(parts, ", ")
}
