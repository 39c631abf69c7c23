package cli

import (
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// arrange rewrites a command line so that flags work before and after
// positional arguments: urfave/cli (like Go's flag package) would take all that
// follows the first positional as positional too. The result is
//
//	program command flags… -- positionals…
//
// A lone "--" ends the flags and "-" is a positional. Only the program's name
// comes back if nothing was asked for.
func arrange(app *urfave.App, args []string) ([]string, error) {
	prog, rest := app.Name, args[min(1, len(args)):]

	var early []string // flags written before the command's name
	for len(rest) > 0 && isFlag(rest[0]) {
		switch rest[0] {
		case "-h", "-help", "--help":
			return []string{prog, "--help"}, nil
		case "-v", "-version", "--version":
			return []string{prog, "--version"}, nil
		}
		early, rest = append(early, rest[0]), rest[1:]
	}
	if len(rest) == 0 {
		if len(early) > 0 {
			return nil, Usagef("see: "+prog+" --help", "no command given, only the flag %q", early[0])
		}
		return []string{prog}, nil
	}
	name, rest := rest[0], rest[1:]
	if name == "version" && findCommand(app, name) == nil {
		return []string{prog, "--version"}, nil
	}
	if name == "help" {
		if len(rest) == 0 {
			return []string{prog, "--help"}, nil
		}
		name, rest = rest[0], []string{"--help"}
	}
	cmd := findCommand(app, name)
	if cmd == nil {
		return nil, unknownCommand(app, name, early)
	}
	flags, positionals, err := split(prog, cmd, append(early, rest...))
	if err != nil {
		return nil, err
	}
	out := append([]string{prog, cmd.Name}, flags...)
	return append(append(out, "--"), positionals...), nil
}

// split tells the flags of cmd, with their values, from positional arguments.
func split(prog string, cmd *urfave.Command, args []string) (flags, positionals []string, err error) {
	known := map[string]urfave.Flag{}
	for _, f := range append([]urfave.Flag{urfave.HelpFlag}, cmd.Flags...) {
		for _, n := range f.Names() {
			known[n] = f
		}
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			return flags, append(positionals, args[i+1:]...), nil
		}
		if !isFlag(a) {
			positionals = append(positionals, a)
			continue
		}
		name, _, hasValue := strings.Cut(flagName(a), "=")
		f, ok := known[name]
		if !ok {
			return nil, nil, unknownFlag(prog, cmd, a, name, known)
		}
		if f == urfave.HelpFlag { // with a positional, urfave/cli would look for a help topic
			return []string{"--help"}, nil, nil
		}
		flags = append(flags, a)
		if hasValue || !takesValue(f) {
			continue
		}
		i++
		if i == len(args) {
			return nil, nil, Usagef(seeHelp(prog, cmd), "flag %q needs a value", a)
		}
		// "--plot --json FILE" is a forgotten value, not a file named "--json".
		if isFlag(args[i]) && known[flagName(args[i])] != nil {
			return nil, nil, Usagef(fmt.Sprintf("if that is meant, write %s=%s", a, args[i]),
				"flag %q needs a value, found the flag %q", a, args[i])
		}
		flags = append(flags, args[i])
	}
	return flags, positionals, nil
}

func isFlag(a string) bool { return len(a) > 1 && a[0] == '-' }

// flagName drops the one or two dashes in front, as Go's flag package does.
func flagName(a string) string { return strings.TrimPrefix(a[1:], "-") }

func takesValue(f urfave.Flag) bool {
	d, ok := f.(urfave.DocGenerationFlag)
	return ok && d.TakesValue()
}

func seeHelp(prog string, cmd *urfave.Command) string {
	return "see: " + prog + " " + cmd.Name + " --help"
}

func findCommand(app *urfave.App, name string) *urfave.Command {
	for _, c := range app.Commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// unknownCommand is the error about name, which came behind the flags early.
func unknownCommand(app *urfave.App, name string, early []string) error {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Name)
	}
	hint := "commands: " + strings.Join(names, ", ")
	if s := Closest(name, names); s != "" {
		hint = fmt.Sprintf("did you mean %q?", s)
	} else if len(early) > 0 { // name may be the value of the last
		hint = fmt.Sprintf("a flag with a value stands behind the command's name: %s COMMAND %s …", app.Name, early[len(early)-1])
	}
	return Usagef(hint, "unknown command %q", name)
}

func unknownFlag(prog string, cmd *urfave.Command, arg, name string, known map[string]urfave.Flag) error {
	var names []string
	for n := range known {
		if len(n) > 1 { // one letter is like everything and nothing
			names = append(names, n)
		}
	}
	hint := seeHelp(prog, cmd)
	if s := Closest(name, names); s != "" {
		hint = fmt.Sprintf("did you mean %q?", "--"+s)
	}
	return Usagef(hint, "%s: unknown flag %q", cmd.Name, arg)
}

// Closest returns the name most like s, or "" if none is near.
func Closest(s string, names []string) string {
	best, at := 0.75, "" // Jaro-Winkler: one slip in a short word stays above
	for _, n := range names {
		d := smetrics.JaroWinkler(strings.ToLower(s), n, 0.7, 4)
		if d > best || d == best && n < at {
			best, at = d, n
		}
	}
	return at
}
