package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"npack/internal/certificate"
	"npack/internal/cli"
	"npack/pack"
	"npack/pack/formats"
	"npack/ternary"
)

// certificateFlags are verify's for a certificate of nrun certify.
func certificateFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "certificate", Usage: "check this certificate `FILE` of nrun certify against DIR"},
		&urfave.StringFlag{Name: "allowed-signers", Usage: "the certificate must be signed by one of `FILE`, as ssh-keygen's ALLOWED SIGNERS"},
		&urfave.StringFlag{Name: "signer", Usage: "and by this `IDENTITY` in it", DefaultText: "whose key it is"},
		&urfave.StringFlag{Name: "minisign-key", Usage: "the certificate must be signed by this public `KEY` of minisign, or the one in that file"},
	}
}

// readSigner reads whose signature is wanted, nil for nobody's.
func readSigner(c *urfave.Context) (*certificate.Signer, error) {
	s := certificate.Signer{AllowedSigners: c.String("allowed-signers"), Identity: c.String("signer"), MinisignKey: c.String("minisign-key")}
	switch {
	case c.String("certificate") == "" && (s != certificate.Signer{}):
		return nil, cli.Usagef("add --certificate FILE", "a signer is named and no certificate")
	case s.AllowedSigners != "" && s.MinisignKey != "":
		return nil, cli.Usagef("leave one of them out", "both --allowed-signers and --minisign-key are given")
	case s.Identity != "" && s.AllowedSigners == "":
		return nil, cli.Usagef("add --allowed-signers FILE", "--signer has no effect without --allowed-signers")
	case s == certificate.Signer{}:
		return nil, nil
	}
	return &s, nil
}

// checkCertificate compares a directory with what a certificate says of it:
// signature, manifest, all files, and the weights of a form that has other
// bytes.
func (v *verification) checkCertificate(c *urfave.Context, signer *certificate.Signer) error {
	path := c.String("certificate")
	cert, data, err := certificate.Read(path)
	if err != nil {
		return err
	}
	if signer != nil {
		who, err := signer.Check(c.Context, path, data)
		if err != nil {
			v.note(statusFailed, "signature", "")
			return err
		}
		v.note(statusOK, "signature", "by "+who)
	} else {
		v.note(statusUnread, "signature", "no --allowed-signers or --minisign-key says whose it should be")
	}
	switch {
	case cert.Shard != nil:
		return &pack.Error{Kind: pack.ErrTruncated, File: path, Place: "shard", Offset: -1, Found: fmt.Sprintf("the certificate is of shard %d of %d", cert.Shard.Index, cert.Shard.Count),
			Expected: "one of the whole battery", Hint: "join the parts: nrun certify merge"}
	case cert.Divergences > 0 || len(cert.Formats) == 0:
		return &pack.Error{Kind: pack.ErrNotEqual, File: path, Place: "divergences", Offset: -1,
			Found: fmt.Sprintf("%d, over %d formats", cert.Divergences, len(cert.Formats)), Expected: "none, over one or more: this certifies nothing"}
	}
	// Manifest and files by their sha256; the forms of the model last, because
	// of one that differs the tensors are looked at.
	pins := maps.Clone(cert.Files)
	if pins == nil {
		pins = map[string]pack.Pin{}
	}
	pins[pack.ManifestName] = cert.Manifest
	for _, f := range cert.Formats {
		pins[f.File] = f.Pin
	}
	names := slices.SortedFunc(maps.Keys(pins), func(a, b string) int {
		isForm := func(name string) int {
			return slices.IndexFunc(cert.Formats, func(f certificate.FormatDigest) bool { return f.File == name }) + 1
		}
		if x, y := isForm(a), isForm(b); x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	m := &pack.Manifest{Files: pins}
	bar := cli.NewProgress(c.App.ErrWriter, c.Bool("quiet"))
	checks, err := m.Verify(c.Context, v.dir, names, func(file string, done, total int64) { bar.Show("sha256 "+file, done, total) })
	bar.Done()
	if err != nil {
		return err
	}
	same := 0
	for i := range checks {
		k := &checks[i]
		if k.Status == pack.StatusOK {
			same++
			continue
		}
		v.note(statusFailed, "certificate", "")
		file := filepath.Join(v.dir, filepath.FromSlash(k.Name))
		if slices.ContainsFunc(cert.Formats, func(f certificate.FormatDigest) bool { return f.File == k.Name }) {
			if err := differingTensors(c.Context, file, cert); err != nil {
				return err
			}
		}
		k.Name = file
		return certified(k.Err())
	}
	v.note(statusOK, "certificate", fmt.Sprintf("%d files and model %.16s… are as certified; %s positions compared, %d divergences, numerics version %d",
		same, cert.Model.SHA256, cli.Group(int64(cert.Positions)), cert.Divergences, cert.Numerics))
	return nil
}

// certified words an error of comparing with a manifest for a certificate.
func certified(err error) error {
	var e *pack.Error
	if errors.As(err, &e) {
		e.Expected = strings.Replace(e.Expected, "as the manifest says", "as the certificate says", 1)
		e.Hint = "fetch the file again, or the certificate if the pack is newer"
	}
	return err
}

// differingTensors names the tensors of a form whose weights are not those
// certified; nil if all are, or if the file is not there to be read.
func differingTensors(ctx context.Context, file string, cert *certificate.Certificate) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	src, err := formats.Open(ctx, file)
	if err != nil {
		return err // says what is wrong with the file, and where
	}
	defer src.Close()
	d, err := src.Model().Digests(ctx, ternary.WalkOptions{})
	if err != nil {
		return src.Place(err)
	}
	if d.Model.String() == strings.ToLower(cert.Model.SHA256) {
		return nil
	}
	want := map[string]string{}
	for _, t := range cert.Model.Tensors {
		want[t.Name] = strings.ToLower(t.SHA256)
	}
	var others []string
	for _, t := range d.Tensors {
		if want[t.Name] != t.Digest.String() {
			others = append(others, t.Name)
		}
	}
	e := &pack.Error{Kind: pack.ErrNotEqual, File: file, Offset: -1, Found: "the model has sha256 " + d.Model.String(), Expected: cert.Model.SHA256 + ", as the certificate says",
		Hint: "npack diff names row and column, beside a form that is right"}
	if len(others) > 0 {
		e.Place, e.Found = fmt.Sprintf("tensor %q", others[0]), fmt.Sprintf("%d of %d tensors have other weights", len(others), len(d.Tensors))
		e.Expected = "those certified"
	}
	return e
}
