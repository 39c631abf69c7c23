package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/formats"
)

func manifestCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "manifest",
		Usage:     "write the MANIFEST.json that pins a model's files",
		UsageText: "npack manifest [flags] DIR|FILE",
		Description: "Pins the size and sha256 of all files below DIR, hidden ones aside; of a FILE the container\n" +
			"alone, with its coded transport (the .tv4z of the same name). \"npack verify\" compares.\n\n" +
			cli.Examples(
				"npack manifest pack/",
				"npack manifest -o - model.bin | jq .weights_container.sha256"),
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to this `FILE`, - is standard output", DefaultText: "MANIFEST.json beside the container"},
			&urfave.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace a manifest that says something else"},
			quietFlag("no progress, no word on success"),
		},
		Action: manifest,
	}
}

func manifest(c *urfave.Context) error {
	args, err := cli.Positionals(c, 1, 1)
	if err != nil {
		return err
	}
	container, err := formats.Container(args[0])
	if err != nil {
		return err
	}
	// What does not open as a model is not worth pinning.
	src, err := formats.Open(c.Context, container)
	if err != nil {
		return err
	}
	src.Close()

	m, err := buildManifest(c, args[0], container)
	if err != nil {
		return err
	}
	out := c.String("output")
	if out == "" {
		out = filepath.Join(filepath.Dir(container), pack.ManifestName)
	}
	if out == "-" {
		_, err := c.App.Writer.Write(m.Encode())
		return err
	}
	word, err := replace(out, m.Encode(), c.Bool("force"))
	if err == nil && !c.Bool("quiet") {
		fmt.Fprintf(c.App.Writer, "%s %q: %d files, container %q of %s bytes\n", word, out, len(m.Files), m.WeightsContainer.File, cli.Group(m.WeightsContainer.Bytes))
	}
	return err
}

func buildManifest(c *urfave.Context, arg, container string) (*pack.Manifest, error) {
	p := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	defer p.Done()
	progress := func(file string, done, total int64) { p.Show("sha256 "+file, done, total) }
	if arg != container { // a directory
		name, err := filepath.Rel(arg, container)
		if err != nil {
			return nil, err
		}
		return pack.BuildManifest(c.Context, arg, filepath.ToSlash(name), progress)
	}

	dir, name := filepath.Split(container)
	coded := strings.TrimSuffix(name, filepath.Ext(name)) + ".tv4z"
	m := &pack.Manifest{Files: map[string]pack.Pin{}}
	for _, file := range []string{name, coded} {
		st, err := os.Stat(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) && file == coded {
			continue
		}
		if err != nil {
			return nil, err
		}
		m.Files[file], err = pack.HashFile(c.Context, filepath.Join(dir, file), func(done int64) { progress(file, done, st.Size()) })
		if err != nil {
			return nil, err
		}
	}
	m.WeightsContainer = &pack.ContainerPin{File: name, Pin: m.Files[name]}
	if pin, ok := m.Files[coded]; ok && coded != name {
		m.WeightsContainer.CodedTransport = &pack.CodedTransport{File: coded, Bytes: pin.Bytes}
	}
	return m, nil
}

// replace writes b to path unless something else is there, and says what it did.
func replace(path string, b []byte, force bool) (string, error) {
	word := "wrote"
	switch old, err := os.ReadFile(path); {
	case err == nil && bytes.Equal(old, b):
		return "unchanged", nil
	case err == nil && !force:
		return "", cli.WithHint(fmt.Errorf("%q is there and says something else", path), "--force replaces it, -o writes another file, \"npack verify\" shows what differs")
	case err == nil:
		word = "replaced"
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	f, err := outfile.Create(path, int64(len(b)))
	if err != nil {
		return "", err
	}
	defer f.Abort()
	if _, err := f.Write(b); err != nil {
		return "", err
	}
	return word, f.Commit()
}
