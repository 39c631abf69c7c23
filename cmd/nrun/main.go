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
		Commands: withDeviceErrors(commands()),
	}
	return cli.Run(context.Background(), app, args, cli.Streams{In: stdin, Out: stdout, Err: stderr})
}

// withDeviceErrors lets the commands' errors say what [deviceError] knows.
func withDeviceErrors(list []*urfave.Command) []*urfave.Command {
	for _, cmd := range list {
		action := cmd.Action
		cmd.Action = func(c *urfave.Context) error { return deviceError(action(c)) }
	}
	return list
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
