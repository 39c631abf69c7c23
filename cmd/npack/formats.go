package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/pack/formats"
)

func formatsCommand() *urfave.Command {
	return &urfave.Command{
		Name:        "formats",
		Usage:       "list the model file formats",
		UsageText:   "npack formats [flags]",
		Description: "Lists what \"npack convert\" reads and writes. A file's format is told by its contents.\n\n" + cli.Examples("npack formats", "npack formats --json"),
		Flags:       []urfave.Flag{jsonFlag()},
		Action:      listFormats,
	}
}

func listFormats(c *urfave.Context) error {
	if _, err := cli.Positionals(c, 0, 0); err != nil {
		return err
	}
	type line struct {
		Name       string   `json:"name"`
		Extensions []string `json:"extensions"`
		Reads      bool     `json:"reads"`
		Writes     bool     `json:"writes"`
		About      string   `json:"about"`
	}
	list := []line{}
	for i := range formats.All {
		f := &formats.All[i]
		list = append(list, line{f.Name, f.Extensions, f.Open != nil, f.Write != nil || f.Directory, f.About})
	}
	if c.Bool("json") {
		return cli.JSON(c.App.Writer, map[string]any{"formats": list})
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "format\textension\treads\twrites\t\n")
	yes := map[bool]string{true: "yes", false: "no"}
	for _, l := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Name, strings.Join(l.Extensions, " "), yes[l.Reads], yes[l.Writes], l.About)
	}
	return w.Flush()
}
