package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/certificate"
	"npack/internal/cli"
	"npack/internal/outfile"
	"npack/pack"
)

func certifyCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "certify",
		Usage:     "prove a whole pack directory before it is released, and write a certificate",
		UsageText: "nrun certify [flags] PACKDIR  |  nrun certify merge [flags] CERTIFICATE…",
		Description: "Checks that MANIFEST.json is true; that container, coded transport, GGUF and every other form in\n" +
			"the directory hold the same weights and the same tokenizer; and that all of them make the same\n" +
			"tokens, with the same bits, on every prompt of the battery and on each backend named. Forms that\n" +
			"are not there are said, not failed. Anything else writes no certificate and exits with 3, or with\n" +
			"the code of what is wrong with a file; every place is named.\n\n" +
			"--shard I/N runs part I, from 0, of the battery; merge joins the parts of all machines.\n" +
			"npack verify --certificate checks a certificate.\n\n" + cli.Examples(
			"nrun certify pack/",
			"nrun certify pack/ -o certificate.json --backend cpu,reference --sign ~/.ssh/id_ed25519",
			"nrun certify pack/ --shard 3/8 -o part-3.json",
			"nrun certify merge part-*.json -o certificate.json"),
		Flags: slices.Concat([]urfave.Flag{
			&urfave.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to this `FILE`, - is standard output", DefaultText: "certificate.json in PACKDIR, or here when merging"},
			&urfave.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace a certificate that is there"},
			&urfave.StringFlag{Name: "sign", Usage: "sign with this SSH or minisign `KEY`: writes FILE.sig or FILE.minisig"},
			&urfave.StringFlag{Name: "shard", Usage: "run part `I/N` of the battery, I from 0"},
			batteryFlag(), stepsFlag(),
		}, backendFlags(), []urfave.Flag{
			&urfave.IntFlag{Name: "threads", Aliases: []string{"t"}, Usage: "use `N` threads; never changes the text", DefaultText: "what this process may use"},
			quietFlag("print nothing unless it fails"), jsonFlag(),
		}),
		Action: certify,
	}
}

func certify(c *urfave.Context) error {
	args, err := cli.Positionals(c, 1, maxModels)
	if err != nil {
		return err
	}
	if args[0] == "merge" {
		return mergeCertificates(c, args[1:])
	}
	if len(args) > 1 {
		return cli.Usagef("usage: "+c.Command.UsageText, "certify: unexpected argument %q", args[1])
	}
	st, err := os.Stat(args[0])
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return cli.Usagef("name the directory that holds the model's files", "%q is no directory", args[0])
	}
	shard, err := parseShard(c.String("shard"))
	if err != nil {
		return err
	}
	w, err := newCertificateWriter(c, filepath.Join(args[0], certificate.Name))
	if err != nil {
		return err
	}
	defer w.abort()
	specs, err := choices(c)
	if err != nil {
		return err
	}
	g := &gate{Context: c, dir: args[0], shard: shard, specs: specs}
	if err := g.run(); err != nil {
		return err
	}
	if err := g.verdict(); err != nil {
		return err
	}
	return w.write(&g.cert)
}

// parseShard reads I/N; nil for "".
func parseShard(s string) (*certificate.Shard, error) {
	if s == "" {
		return nil, nil
	}
	i, n, ok := strings.Cut(s, "/")
	index, err1 := strconv.Atoi(i)
	count, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil || count < 1 || index < 0 || index >= count {
		return nil, cli.Usagef("the first of eight is --shard 0/8, the last --shard 7/8", "--shard %q", s)
	}
	return &certificate.Shard{Index: index, Count: count}, nil
}

func mergeCertificates(c *urfave.Context, files []string) error {
	if len(files) == 0 {
		return cli.Usagef("usage: "+c.Command.UsageText, "certify merge: an argument is missing")
	}
	for _, name := range []string{"shard", "battery", "steps", "backend", "device", "cpu-kernel", "zero-copy", "kv", "threads", "memory-limit"} {
		if c.IsSet(name) {
			return cli.Usagef("leave it out", "--%s has no effect when merging", name)
		}
	}
	var parts []certificate.Part
	for _, f := range files {
		cert, _, err := certificate.Read(f)
		if err != nil {
			return err
		}
		parts = append(parts, certificate.Part{File: f, Certificate: cert})
	}
	merged, err := certificate.Merge(parts)
	if err != nil {
		return err
	}
	if merged.Divergences > 0 { // nrun certify writes no such part
		return fmt.Errorf("%d divergences: %w", merged.Divergences, pack.ErrNotEqual)
	}
	w, err := newCertificateWriter(c, certificate.Name)
	if err != nil {
		return err
	}
	defer w.abort()
	return w.write(merged)
}

// certificateWriter writes a certificate and its signature, or neither.
type certificateWriter struct {
	*urfave.Context
	path string
	file *outfile.File // nil for standard output
}

// newCertificateWriter finds out before a long run whether its outcome can be
// written.
func newCertificateWriter(c *urfave.Context, path string) (*certificateWriter, error) {
	if c.IsSet("output") {
		path = c.String("output")
	}
	w := &certificateWriter{Context: c, path: path}
	key := c.String("sign")
	if key != "" {
		if path == "-" {
			return nil, cli.Usagef("name a file: -o FILE", "--sign has no place for the signature of standard output")
		}
		if _, err := os.Stat(key); err != nil {
			return nil, err
		}
	}
	if path == "-" {
		return w, nil
	}
	if _, err := os.Stat(path); err == nil && !c.Bool("force") {
		return nil, cli.Usagef("--force replaces it", "%q is there", path)
	}
	var err error
	w.file, err = outfile.Create(path, 0)
	return w, err
}

func (w *certificateWriter) abort() {
	if w.file != nil {
		w.file.Abort()
	}
}

func (w *certificateWriter) write(cert *certificate.Certificate) error {
	data, err := cert.Encode()
	if err != nil {
		return err
	}
	if w.file == nil {
		_, err := w.App.Writer.Write(data)
		return err
	}
	signed := ""
	if key := w.String("sign"); key != "" {
		sig, ext, err := certificate.Sign(w.Context.Context, data, key, w.App.Reader, w.App.ErrWriter)
		if err != nil {
			return err
		}
		signed = w.path + ext
		if err := writeResult(w.Context, signed, sig); err != nil {
			return err
		}
	} else if err := removeStale(w.path); err != nil {
		return err
	}
	if _, err := w.file.Write(data); err != nil {
		return err
	}
	if err := w.file.Commit(); err != nil {
		return err
	}
	switch {
	case w.Bool("json"):
		_, err = w.App.Writer.Write(data)
	case !w.Bool("quiet"):
		printCertificate(w.App.Writer, cert)
		fmt.Fprintf(w.App.Writer, "wrote %q", w.path)
		if signed != "" {
			fmt.Fprintf(w.App.Writer, ", signed in %q", signed)
		}
		fmt.Fprintln(w.App.Writer)
	}
	return err
}

// removeStale removes the signatures of a certificate that is being replaced:
// they are of other bytes.
func removeStale(path string) error {
	for _, ext := range []string{certificate.ExtSSH, certificate.ExtMinisign} {
		if err := os.Remove(path + ext); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
