// Command npack looks into the files of two-magnitude ternary models: what is
// in them, whether they are whole, and what a directory of them should be. It
// makes containers of their coded transports and back.
package main

import (
	"context"
	"io"
	"os"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
)

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// run is what main and the tests call.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := &urfave.App{
		Name:  "npack",
		Usage: "inspect, verify, compress and expand two-magnitude ternary models",
		Commands: []*urfave.Command{inspectCommand(), verifyCommand(), manifestCommand(), expandCommand(), compressCommand(), pullCommand(),
			convertCommand(), toGGUFCommand(), fromGGUFCommand(), toMLXCommand(), fromMLXCommand(), exportCommand(), importCommand(), diffCommand(), formatsCommand()},
	}
	return cli.Run(context.Background(), app, args, cli.Streams{In: stdin, Out: stdout, Err: stderr})
}

// Flags that several commands have.
func jsonFlag() urfave.Flag {
	return &urfave.BoolFlag{Name: "json", Usage: "print one JSON object"}
}

func quietFlag(usage string) urfave.Flag {
	return &urfave.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: usage}
}
