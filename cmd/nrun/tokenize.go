package main

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/runtime/tokenizer"
)

func tokenizeCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "tokenize",
		Usage:     "turn text into token ids, or back with --decode",
		UsageText: "nrun tokenize [flags] [MODEL]",
		Description: "The text is taken exactly as given, to its last byte. Control tokens (\"<|im_end|>\")\n" +
			"in it are recognised unless --literal is given; which was done is said on standard error.\n" +
			"Only the tokenizer.json beside MODEL is read.\n\n" + cli.Examples(
			`nrun tokenize -p "Once upon a time"`,
			`nrun tokenize ~/models/pack --file prompt.txt --json`,
			`nrun tokenize -p "Once upon a time" -q | nrun tokenize --decode -q`),
		Flags: slices.Concat(textFlags("to turn into ids (or ids, with --decode)"), []urfave.Flag{
			&urfave.BoolFlag{Name: "literal", Usage: "take control tokens in the text as text"},
			&urfave.BoolFlag{Name: "decode", Aliases: []string{"d"}, Usage: "turn ids separated by commas into their text, control tokens included"},
			quietFlag("say nothing on standard error"), jsonFlag(),
		}),
		Action: tokenize,
	}
}

// tokenized is the JSON form of the result. Fields are only ever added.
type tokenized struct {
	Model  string  `json:"model"`
	Mode   string  `json:"mode"` // "markers", "literal" or "decode"
	Count  int     `json:"count"`
	Text   string  `json:"text"`
	IDs    []int32 `json:"ids"`
	Pieces []piece `json:"pieces"`
}

// piece is one token.
type piece struct {
	ID      int32  `json:"id"`
	Text    string `json:"text"`            // U+FFFD stands for parts of characters
	Bytes   string `json:"bytes,omitempty"` // in hex, if they are not whole characters
	Control bool   `json:"control,omitempty"`
}

func tokenize(c *urfave.Context) error {
	if c.Bool("decode") && c.Bool("literal") {
		return cli.Usagef("leave --literal out", "--literal has no effect with --decode")
	}
	p, err := openPack(c)
	if err != nil {
		return err
	}
	text, _, err := readText(c)
	if err != nil {
		return err
	}
	tok, err := p.Tokenizer()
	if err != nil {
		return err
	}
	out := tokenized{Model: p.Name, Text: text, IDs: []int32{}}
	note := ""
	switch {
	case c.Bool("decode"):
		out.Mode = "decode"
		if out.IDs, err = parseIDs(text, tok.Len()); err != nil {
			return err
		}
		var b []byte
		for _, id := range out.IDs {
			b = tok.AppendToken(b, id)
		}
		out.Text = string(b)
	case c.Bool("literal"):
		out.Mode, note = "literal", "control tokens in the text are taken as text"
		out.IDs = tok.EncodeLiteral(out.IDs, text)
	default:
		out.Mode, note = "markers", "control tokens in the text are recognised; --literal takes them as text"
		out.IDs = tok.Encode(out.IDs, text)
	}
	out.Count = len(out.IDs)
	if c.Bool("json") {
		out.Text = strings.ToValidUTF8(out.Text, "\uFFFD")
		out.Pieces = pieces(tok, out.IDs)
		return cli.JSON(c.App.Writer, out)
	}
	if note != "" && !c.Bool("quiet") {
		fmt.Fprintf(c.App.ErrWriter, "nrun: %d tokens; %s\n", out.Count, note)
	}
	if c.Bool("decode") {
		_, err = fmt.Fprint(c.App.Writer, out.Text) // exactly: no newline is added
	} else {
		_, err = fmt.Fprintln(c.App.Writer, formatIDs(out.IDs))
	}
	return err
}

func pieces(tok *tokenizer.Tokenizer, ids []int32) []piece {
	list := make([]piece, len(ids))
	for i, id := range ids {
		text, control := tok.Token(id)
		list[i] = piece{ID: id, Text: strings.ToValidUTF8(text, "\uFFFD"), Control: control}
		if !utf8.ValidString(text) {
			list[i].Bytes = hex.EncodeToString([]byte(text))
		}
	}
	return list
}
