package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/certificate"
	"npack/internal/cli"
	"npack/internal/modeldiff"
	"npack/pack"
	"npack/pack/formats"
	"npack/pack/native"
	"npack/pack/rows"
	"npack/runtime/backend"
	"npack/ternary"
)

// gate proves one pack directory. What is wrong is collected, so that one run
// names every place.
type gate struct {
	*urfave.Context
	dir   string
	shard *certificate.Shard
	specs []choice

	manifest *pack.Manifest
	forms    []form // the container first
	digests  *ternary.Digests
	cert     certificate.Certificate
	failures []error
}

// form is the model in one file.
type form struct {
	name   string // relative to the directory, with slashes
	format string
}

func (g *gate) fail(err error) { g.failures = append(g.failures, err) }

func (g *gate) omit(what, why string) {
	g.cert.NotCompared = append(g.cert.NotCompared, certificate.Omission{What: what, Why: why})
}

func (g *gate) path(name string) string { return filepath.Join(g.dir, filepath.FromSlash(name)) }

// run goes from cheap to dear. An error ends it; what is wrong with the pack is
// a failure, after which the rest is still looked at.
func (g *gate) run() error {
	g.cert = certificate.Certificate{Format: certificate.Format, Version: certificate.Version, MadeBy: "nrun " + cli.Build(),
		MadeAt: time.Now().UTC().Format(time.RFC3339), Pack: filepath.Base(filepath.Clean(g.dir)), Numerics: backend.NumericsVersion,
		Activations: backend.Exact.String(), KV: g.String("kv"), NotCompared: []certificate.Omission{}, Shard: g.shard}
	for _, s := range g.specs {
		if err := selfTest(s); err != nil {
			return err
		}
	}
	for _, step := range []func() error{g.checkManifest, g.findForms, g.checkWeights, g.checkTokenizers} {
		if err := step(); err != nil {
			return err
		}
	}
	if len(g.failures) > 0 { // tokens would tell less than weights
		return nil
	}
	if err := g.checkTokens(); err != nil {
		return err
	}
	g.cert.Sum()
	return nil
}

// verdict prints what failed and returns the first of it.
func (g *gate) verdict() error {
	if len(g.failures) == 0 {
		return nil
	}
	if g.Bool("json") {
		list := []string{}
		for _, f := range g.failures {
			list = append(list, f.Error())
		}
		if err := cli.JSON(g.App.Writer, map[string]any{"ok": false, "failures": list}); err != nil {
			return err
		}
	} else {
		for _, f := range g.failures {
			fmt.Fprintf(g.App.Writer, "FAILED    %s\n", cli.OneLine(f.Error()))
		}
	}
	hint := cli.Hint(g.failures[0])
	return cli.WithHint(fmt.Errorf("%q is not certified, %d places are wrong: %w", g.dir, len(g.failures), g.failures[0]), hint)
}

// checkManifest compares all files with their pins. That no file is without one
// is findForms's to say.
func (g *gate) checkManifest() error {
	path := filepath.Join(g.dir, pack.ManifestName)
	m, err := pack.ReadManifest(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		g.fail(&pack.Error{Kind: pack.ErrTruncated, File: path, Offset: -1, Found: "the manifest is not there", Expected: "one that pins all files", Hint: "make it: npack manifest DIR"})
		g.manifest = &pack.Manifest{}
		return nil
	case errors.Is(err, pack.ErrCorrupt) || errors.Is(err, pack.ErrTruncated):
		g.fail(err)
		g.manifest = &pack.Manifest{}
		return nil
	case err != nil:
		return err
	}
	g.manifest = m
	if g.cert.Manifest, err = pack.HashFile(g.Context.Context, path, nil); err != nil {
		return err
	}
	bar := cli.NewProgress(g.App.ErrWriter, g.Bool("quiet"))
	checks, err := m.Verify(g.Context.Context, g.dir, nil, func(file string, done, total int64) { bar.Show("sha256 "+file, done, total) })
	bar.Done()
	if err != nil {
		return err
	}
	g.cert.Files = map[string]pack.Pin{}
	for i := range checks {
		k := &checks[i]
		switch {
		case k.Status == pack.StatusOK:
			g.cert.Files[k.Name] = k.Got
		case k.Status == pack.StatusMissing && (m.WeightsContainer == nil || !strings.EqualFold(k.Want.SHA256, m.WeightsContainer.SHA256)):
			g.omit(k.Name, "pinned by "+pack.ManifestName+" and not here")
		default: // the container, under whatever name, has to be here
			k.Name = g.path(k.Name)
			g.fail(k.Err())
		}
	}
	if w := m.WeightsContainer; w == nil {
		g.fail(&pack.Error{Kind: pack.ErrNotEqual, File: path, Place: "weights_container", Offset: -1, Found: "it is not there", Expected: "the container's name, size and sha256", Hint: "make the manifest again: npack manifest --force DIR"})
	} else if t := w.CodedTransport; t == nil {
		coded := strings.TrimSuffix(w.File, filepath.Ext(w.File)) + ".tv4z"
		if _, pinned := m.Pin(coded); pinned {
			g.fail(&pack.Error{Kind: pack.ErrNotEqual, File: path, Place: "weights_container.coded_transport", Offset: -1, Found: "it is not there", Expected: fmt.Sprintf("%q and its size", coded), Hint: "make the manifest again: npack manifest --force DIR"})
		}
	} else if pin, pinned := m.Pin(t.File); !pinned || pin.Bytes != t.Bytes {
		g.fail(&pack.Error{Kind: pack.ErrNotEqual, File: path, Place: "weights_container.coded_transport", Offset: -1,
			Found: fmt.Sprintf("%d bytes of %q", t.Bytes, t.File), Expected: fmt.Sprintf("%d, as in files", pin.Bytes)})
	}
	return nil
}

// unpinnable reports whether a file in a pack directory need not be pinned: the
// manifest itself, and what is made of it.
func unpinnable(name string) bool {
	return name == pack.ManifestName || name == "SHA256SUMS" || strings.HasSuffix(name, ".sha256") ||
		strings.HasPrefix(name, strings.TrimSuffix(certificate.Name, ".json"))
}

// findForms lists the model files, the container first.
func (g *gate) findForms() error {
	var names []string
	err := filepath.WalkDir(g.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != g.dir && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(g.dir, path)
		if err == nil && !d.IsDir() {
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		return err
	}
	sets := map[string]bool{}
	for _, name := range names {
		format := byExtension(name)
		if _, pinned := g.manifest.Pin(name); !pinned && !unpinnable(name) {
			g.fail(&pack.Error{Kind: pack.ErrNotEqual, File: g.path(name), Offset: -1, Found: "the file is here and not in " + pack.ManifestName, Expected: "a pin for it",
				Hint: "make the manifest again: npack manifest --force DIR"})
		}
		if format == nil {
			continue
		}
		if name == rows.Name || strings.HasSuffix(name, "/"+rows.Name) {
			continue // belongs to the form beside it
		}
		if set := formats.ShardSet(name); set != "" {
			if sets[set] {
				continue
			}
			sets[set] = true
		}
		f, err := formats.Detect(g.path(name))
		switch {
		case errors.Is(err, pack.ErrNotModel):
			g.omit(name, err.Error())
		case err != nil:
			g.fail(err)
		case f.Open == nil:
			g.omit(name, "this version does not read "+f.About)
		default:
			g.forms = append(g.forms, form{name, f.Name})
		}
	}
	if w := g.manifest.WeightsContainer; w != nil {
		slices.SortStableFunc(g.forms, func(a, b form) int {
			rank := map[bool]int{true: 0, false: 1}
			return rank[a.name == w.File] - rank[b.name == w.File]
		})
	}
	for _, f := range formats.All {
		if !slices.ContainsFunc(g.forms, func(x form) bool { return x.format == f.Name }) {
			g.omit(f.Name, "no file of this format is here")
		}
	}
	if len(g.forms) == 0 && len(g.failures) == 0 {
		g.fail(&pack.Error{Kind: pack.ErrNotModel, File: g.dir, Offset: -1, Found: "no model file in the directory", Expected: "a container"})
	}
	return nil
}

// byExtension is the format whose extension a name has, nil if none.
func byExtension(name string) *formats.Format {
	for i := range formats.All {
		if slices.Contains(formats.All[i].Extensions, strings.ToLower(filepath.Ext(name))) {
			return &formats.All[i]
		}
	}
	return nil
}

// checkWeights reads all weights of every form: the rules of the format, the
// digests, and the container that the form gives back.
func (g *gate) checkWeights() error {
	var kept []form
	for _, f := range g.forms {
		ok, err := g.checkForm(f)
		if err != nil {
			return err
		}
		if ok {
			kept = append(kept, f)
		}
	}
	g.forms = kept
	return nil
}

// checkForm reports whether a form can be run.
func (g *gate) checkForm(f form) (bool, error) {
	path := g.path(f.name)
	src, err := formats.Open(g.Context.Context, path)
	switch {
	case errors.Is(err, pack.ErrUnsupported) && (f.format == "gguf" || f.format == "mlx"):
		// One for unpatched programs has other weights by design.
		g.omit(f.name, err.Error())
		return false, nil
	case err != nil:
		return false, g.orFail(err)
	}
	defer src.Close()
	bar := cli.NewProgress(g.App.ErrWriter, g.Bool("quiet"))
	defer bar.Done()
	walk := func(label string) ternary.WalkOptions {
		return ternary.WalkOptions{Threads: g.Int("threads"), Progress: func(done, total int64) { bar.Show(label+f.name, done, total) }}
	}
	m := src.Model()
	survey, err := m.Survey(g.Context.Context, walk("checking "))
	if err != nil {
		return false, g.orFail(src.Place(err))
	}
	d, err := m.Digests(g.Context.Context, walk("sha256 of the weights of "))
	if err != nil {
		return false, g.orFail(src.Place(err))
	}
	entry := certificate.FormatDigest{Format: f.format, File: f.name}
	if entry.Pin, err = g.pin(f.name); err != nil {
		return false, err
	}
	if g.digests == nil {
		g.digests = d
		g.cert.Model = certificate.Model{SHA256: d.Model.String(), Arch: m.Arch.String()}
		for _, t := range d.Tensors {
			g.cert.Model.Tensors = append(g.cert.Model.Tensors, certificate.Tensor{Name: t.Name, SHA256: t.Digest.String()})
		}
		if survey.FirstMismatch != nil && len(g.failures) > 0 { // a sum that a changed row breaks names the place
			g.fail(&pack.Error{Kind: pack.ErrNotEqual, Offset: -1, Found: src.Place(survey.FirstMismatch).Error()})
		}
	} else if d.Model != g.digests.Model {
		return false, g.failDifference(src)
	}
	if entry.Container, err = g.container(src, f); err != nil {
		return false, g.orFail(src.Place(err))
	}
	g.cert.Formats = append(g.cert.Formats, entry)
	return true, nil
}

// orFail takes an error about a file as a failure, and returns what ends the
// run: an interrupt, a disk.
func (g *gate) orFail(err error) error {
	for _, kind := range []error{pack.ErrCorrupt, pack.ErrTruncated, pack.ErrNotEqual, pack.ErrUnsupported, pack.ErrNotModel} {
		if errors.Is(err, kind) {
			g.fail(err)
			return nil
		}
	}
	return err
}

// pin is what the file of that name is.
func (g *gate) pin(name string) (pack.Pin, error) {
	if p, ok := g.cert.Files[name]; ok {
		return p, nil
	}
	return pack.HashFile(g.Context.Context, g.path(name), nil)
}

// failDifference names the first place at which a form has other weights than
// the first one.
func (g *gate) failDifference(src formats.Source) error {
	first, err := formats.Open(g.Context.Context, g.path(g.forms[0].name))
	if err != nil {
		return g.orFail(err)
	}
	defer first.Close()
	d, err := modeldiff.First(g.Context.Context, first, src, func(_, _ int64) {})
	if err != nil {
		return g.orFail(err)
	}
	g.fail(&pack.Error{Kind: pack.ErrNotEqual, Offset: -1, Found: fmt.Sprintf("%q and %q have different weights: %s", first.Name(), src.Name(), d),
		Hint: "make one of them again: npack convert, npack compress or npack to-gguf"})
	return nil
}

// container writes the container that a form gives back and compares it with
// the one in the directory. A file of another program, which has no row sums of
// its own, gives none.
func (g *gate) container(src formats.Source, f form) (string, error) {
	if f.format == "native" {
		return "", nil
	}
	if d, ok := src.(formats.Derived); ok {
		if _, _, ok := d.Container(); !ok {
			return "", nil
		}
	}
	got, err := native.Digest(g.Context.Context, src.Model())
	if err != nil {
		return "", err
	}
	if g.forms[0].format != "native" {
		return got.SHA256, nil
	}
	want, err := g.pin(g.forms[0].name)
	if err == nil && !strings.EqualFold(want.SHA256, got.SHA256) {
		g.fail(&pack.Error{Kind: pack.ErrNotEqual, File: src.Name(), Offset: -1, Found: "the container in it has sha256 " + got.SHA256,
			Expected: fmt.Sprintf("%s, that of %q", want.SHA256, g.forms[0].name), Hint: "make it again of the container"})
	}
	return got.SHA256, err
}
