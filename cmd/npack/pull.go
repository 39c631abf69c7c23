package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/cli"
	"npack/internal/fetch"
	"npack/internal/hub"
	"npack/pack"
)

func pullCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "pull",
		Usage:     "download a model, expanding it on the way",
		UsageText: "npack pull [flags] URL|OWNER/NAME[@REVISION] [OUT]",
		Description: "Brings a file (URL) or a model with its tokenizer (a repository of the hub, or its address).\n" +
			"A coded transport (.tv4z) is expanded while it arrives: only the container is stored.\n" +
			"OUT is a file for a URL and a directory for a repository; without it the name comes from the\n" +
			"address, in the current directory.\n\n" +
			"A download that ends early leaves OUT.part and OUT.part.json: the same command goes on from\n" +
			"there, if the server still has the same file. OUT appears when it is complete and agrees with\n" +
			"all that is known: --sha256, the hub's list, MANIFEST.json, SHA256SUMS and OUT.sha256 beside it.\n" +
			"Files that the hub's own programs have in their cache are taken from there; nothing is written\n" +
			"to it.\n\n" +
			"HF_ENDPOINT names another hub. HF_TOKEN, or the token that the hub's programs stored, is sent to\n" +
			"the hub alone. HTTPS_PROXY, HTTP_PROXY and NO_PROXY are honoured.\n\n" +
			"Exit status: 3 other bytes than pinned, 4 corrupt, 7 a web page or an LFS pointer, 8 no space,\n" +
			"9 server or line.\n\n" +
			cli.Examples(
				"npack pull owner/model                        # into ./model",
				"npack pull owner/model@v1.0 packs/model",
				"npack pull --file '*.json' owner/model        # some of its files",
				"npack pull https://host/model.tv4z model.bin  # expanded",
				"npack pull --no-expand https://host/model.tv4z"),
		Flags: []urfave.Flag{
			&urfave.StringSliceFlag{Name: "file", Usage: "of a repository, only files whose name or path matches `PATTERN`; may be repeated"},
			&urfave.BoolFlag{Name: "no-expand", Usage: "keep a coded transport as it is"},
			&urfave.StringFlag{Name: "sha256", Usage: "the sha256, in `HEX`, that the file at the address must have"},
			&urfave.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace a file that is another one or cannot be compared"},
			&urfave.IntFlag{Name: "connections", Usage: "connections for one file, `N` at most", Value: 4},
			&urfave.DurationFlag{Name: "stall", Usage: "give up a connection after this `TIME` of silence", Value: 30 * time.Second},
			&urfave.IntFlag{Name: "retries", Usage: "give up after `N` failures in a row", Value: 8},
			threadsFlag(), jsonFlag(),
			quietFlag("no progress, no word on success"),
		},
		Action: pull,
	}
}

// pulling is one run of pull, and the object that --json prints.
type pulling struct {
	Source string   `json:"source"`
	Repo   string   `json:"repo,omitempty"`
	Commit string   `json:"commit,omitempty"`
	OK     bool     `json:"ok"`
	Error  string   `json:"error,omitempty"`
	Files  []pulled `json:"files"`

	c      *urfave.Context
	hub    hub.Hub
	client *fetch.Client
}

func pull(c *urfave.Context) error {
	args, err := cli.Positionals(c, 1, 2)
	if err != nil {
		return err
	}
	out := ""
	if len(args) == 2 {
		out = args[1]
	}
	if err := checkPullFlags(c, out); err != nil {
		return err
	}
	home, _ := os.UserHomeDir() // without one there is no cache and no stored token
	h, err := hub.FromEnv(os.Getenv, home)
	if err != nil {
		return cli.Usagef("", "%s", err)
	}
	p := &pulling{Source: fetch.Public(args[0]), Files: []pulled{}, c: c, hub: h, client: fetch.New(fetch.Options{
		UserAgent: "npack/" + strings.Trim(cli.Version, "()"), Token: h.Token, Origin: h.Origin(),
		Stall: c.Duration("stall"), Retries: c.Int("retries"), Connections: c.Int("connections"),
	})}
	ref, onHub, err := hub.Parse(args[0], h.Endpoint)
	if err != nil {
		return cli.Usagef("usage: "+c.Command.UsageText, "%s", err)
	}
	if onHub {
		p.Source = args[0]
		err = p.repository(ref, out)
	} else {
		err = p.address(args[0], out)
	}
	p.OK = err == nil
	if err != nil {
		p.Error = err.Error()
	}
	if errors.Is(err, context.Canceled) {
		return cli.WithHint(err, "what came is kept: run the same command again to go on")
	}
	if c.Bool("json") {
		return firstOf(err, cli.JSON(c.App.Writer, p))
	}
	return err
}

func checkPullFlags(c *urfave.Context, out string) error {
	hint := "see: npack pull --help"
	if s := c.String("sha256"); s != "" && !isSHA256(s) {
		return cli.Usagef(hint, "--sha256 %q is not 64 hex digits", s)
	}
	for _, name := range []string{"connections", "retries"} {
		if n := c.Int(name); n < 1 || n > 64 {
			return cli.Usagef(hint, "--%s %d is not between 1 and 64", name, n)
		}
	}
	if c.Duration("stall") <= 0 {
		return cli.Usagef(hint, "--stall %s is no time", c.Duration("stall"))
	}
	if out == "-" {
		return cli.Usagef("name a file", "pull goes on with what is on the disk, so it does not write to standard output")
	}
	return nil
}

func isSHA256(s string) bool {
	return len(s) == 64 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}

// address pulls one file from any server.
func (p *pulling) address(address, out string) error {
	u, err := url.Parse(address)
	if err != nil {
		return cli.Usagef("", "%q is not an address", address)
	}
	if len(p.c.StringSlice("file")) > 0 {
		return cli.Usagef("give the address of the file", "--file chooses from a repository")
	}
	name := path.Base(u.Path)
	usable := hub.SafeName(name) && name != "/" && !strings.HasPrefix(name, ".")
	w := wanted{url: address, name: name, size: -1, sha256: strings.ToLower(p.c.String("sha256"))}
	if w.sha256 != "" {
		w.sources = append(w.sources, "--sha256")
	}
	w.expand = hub.IsTransport(name) && !p.c.Bool("no-expand") && !hub.IsTransport(out)
	if st, err := os.Stat(out); out == "" || err == nil && st.IsDir() {
		if !usable {
			return cli.Usagef("name it: npack pull URL OUT", "the address does not end in a name for the file")
		}
		w.out = filepath.Join(out, name)
		if w.expand {
			w.out = filepath.Join(out, hub.Container(name))
		}
	} else {
		w.out = out
	}
	pins, err := readPins(filepath.Dir(w.out), filepath.Base(w.out))
	if err != nil {
		return err
	}
	for _, pin := range pins {
		switch {
		case pin.file == filepath.Base(w.out) && w.expand:
			err = w.pinContainer(pin.bytes, pin.sha256, pin.source)
		case pin.file == filepath.Base(w.out) || w.expand && pin.file == name:
			err = w.pin(pin.bytes, pin.sha256, pin.source)
		}
		if err != nil {
			return err
		}
	}
	return p.bring(&w)
}

// repository pulls a model, or some files, from a hub.
func (p *pulling) repository(ref hub.Ref, out string) error {
	ctx := p.c.Context
	list, err := hub.List(ctx, p.client, ref)
	if err != nil {
		return err
	}
	p.Repo, p.Commit = ref.Repo, list.Commit
	var m *pack.Manifest
	if f, ok := list.Find(pack.ManifestName); ok {
		address := ref.FileURL(list.Commit, f.Name)
		b, err := p.client.Bytes(ctx, address, pack.MaxManifest)
		if err != nil {
			return err
		}
		if m, err = pack.ParseManifest(fetch.Public(address), b); err != nil {
			return err
		}
	}
	var files []hub.File
	if ref.File != "" {
		f, ok := list.Find(ref.File)
		if !ok {
			err = &hub.NoFileError{Found: fmt.Sprintf("it has no %q", ref.File), List: list}
		}
		files = []hub.File{f}
	} else {
		files, err = list.Choose(hub.Choice{Patterns: p.c.StringSlice("file"), Coded: true}, m)
	}
	if missing := (*hub.NoFileError)(nil); errors.As(err, &missing) {
		return cli.WithHint(fmt.Errorf("%s: %w", ref, err), "--file PATTERN chooses from what is there: "+missing.Names())
	}
	if err != nil {
		return cli.Usagef("", "%s", err)
	}
	if p.c.String("sha256") != "" && len(files) != 1 {
		return cli.Usagef("the hub's list has the sha256 of every large file", "--sha256 is of one file, and %d are to be fetched", len(files))
	}
	var all []*wanted
	for _, f := range files {
		w, err := p.wantFromHub(ref, list, m, f)
		if err != nil {
			return err
		}
		w.place(ref, out)
		all = append(all, w)
	}
	for _, w := range all {
		if err := os.MkdirAll(filepath.Dir(w.out), 0o777); err != nil {
			return err
		}
		if err := p.bring(w); err != nil {
			return err
		}
	}
	return nil
}

// wantFromHub says what f must be, by the hub's list and by the manifest.
func (p *pulling) wantFromHub(ref hub.Ref, list *hub.Listing, m *pack.Manifest, f hub.File) (*wanted, error) {
	w := &wanted{url: ref.FileURL(list.Commit, f.Name), name: f.Name, size: -1, git: f.Git, cached: p.hub.Cached(ref, list.Commit, f)}
	if s := p.c.String("sha256"); s != "" {
		if err := w.pin(-1, strings.ToLower(s), "--sha256"); err != nil {
			return nil, err
		}
	}
	if err := w.pin(f.Size, f.SHA256, "the hub's list"); err != nil {
		return nil, err
	}
	w.expand = hub.IsTransport(f.Name) && !p.c.Bool("no-expand")
	w.container = hub.Container(f.Name)
	if m == nil || f.Name == pack.ManifestName {
		return w, nil
	}
	if pin, ok := m.Pin(f.Name); ok {
		if err := w.pin(pin.Bytes, strings.ToLower(pin.SHA256), pack.ManifestName); err != nil {
			return nil, err
		}
	}
	if c := m.WeightsContainer; c != nil && w.expand && c.CodedTransport != nil && c.CodedTransport.File == f.Name {
		w.container = c.File
		if err := w.pin(c.CodedTransport.Bytes, "", pack.ManifestName); err != nil {
			return nil, err
		}
		return w, w.pinContainer(c.Bytes, strings.ToLower(c.SHA256), pack.ManifestName)
	}
	return w, nil
}

// place decides where a file of a repository goes.
func (w *wanted) place(ref hub.Ref, out string) {
	name := w.name
	if w.expand {
		name = w.container
	}
	switch {
	case ref.File == "" && out == "":
		w.out = filepath.Join(path.Base(ref.Repo), filepath.FromSlash(name))
	case ref.File == "":
		w.out = filepath.Join(out, filepath.FromSlash(name))
	default: // the address of one file: as for other servers
		if st, err := os.Stat(out); out == "" || err == nil && st.IsDir() {
			w.out = filepath.Join(out, path.Base(name))
		} else {
			w.out, w.expand = out, w.expand && !hub.IsTransport(out)
		}
	}
}

// say prints what became of one file.
func (p *pulling) say(w io.Writer, f *pulled) {
	if p.c.Bool("json") || p.c.Bool("quiet") {
		return
	}
	by := strings.Join(f.Sources, ", ")
	if by == "" {
		by = "nothing says what it should be"
	}
	fmt.Fprintf(w, "%-9s  %q  %s bytes  sha256 %s  (%s)\n", f.Status, f.File, cli.Group(f.Bytes), f.SHA256, by)
}
