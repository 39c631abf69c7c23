// Command nrun runs ternary language models: it generates text, chats, and
// proves that its tokens are the stored ones. "nrun help" lists its commands.
package main

import (
	"context"
	"io"
	"os"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
)

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program: args[0] is its name, the result its exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := &urfave.App{
		Name:  "nrun",
		Usage: "run ternary language models",
		Description: "MODEL is a model file or a pack directory. Without one, nrun runs a small story\n" +
			"model that is part of the program.",
		Commands: commands(),
	}
	return cli.Run(context.Background(), app, args, cli.Streams{In: stdin, Out: stdout, Err: stderr})
}

// commands is the table of commands; each has a file of its own.
func commands() []*urfave.Command {
	return []*urfave.Command{
		generateCommand(),
		chatCommand(),
		verifyCommand(),
		trajectoryCommand(),
		certifyCommand(),
		tokenizeCommand(),
		planCommand(),
		benchCommand(),
		raceCommand(),
		acceptanceCommand(),
		infoCommand(),
	}
}
