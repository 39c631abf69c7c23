// Package certificate is the file that says what was proven of a pack
// directory: which bytes it has, that all its formats hold the same weights,
// and that all of them make the same tokens. docs/identity.md describes the
// fields.
package certificate

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"npack/pack"
)

const (
	Format  = "npack-certificate"
	Version = 1
	// Name is what a certificate is called in a pack directory.
	Name = "certificate.json"
)

// MaxFile is the largest certificate in bytes.
const MaxFile = 8 << 20

// maxObjects bounds the memory that a certificate can ask for.
const maxObjects = 100_000

// Certificate is the whole file. Fields are only ever added.
type Certificate struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	MadeBy  string `json:"made_by"` // program and version
	MadeAt  string `json:"made_at"` // RFC 3339
	Pack    string `json:"pack"`    // as its maker called the directory

	Model       Model  `json:"model"`
	Numerics    int    `json:"numerics_version"`
	Activations string `json:"activations"`
	KV          string `json:"kv"`

	Formats     []FormatDigest      `json:"formats"` // the container first
	NotCompared []Omission          `json:"not_compared"`
	Manifest    pack.Pin            `json:"manifest"` // of MANIFEST.json itself
	Files       map[string]pack.Pin `json:"files"`    // all that the manifest pins and the directory has

	Battery Battery  `json:"battery"`
	Shard   *Shard   `json:"shard,omitempty"` // of a part; a merged certificate has none
	Runs    []Run    `json:"runs"`
	Prompts []Prompt `json:"prompts"`
	Stored  *Stored  `json:"stored,omitempty"` // the pack's own trajectories

	Positions   int      `json:"positions"` // tokens compared, over all runs and the stored trajectories
	Divergences int      `json:"divergences"`
	Classes     []Class  `json:"classes"`
	MinMargin   *float64 `json:"min_margin"`
}

// Model is the digest of the weights, whatever file they are in.
type Model struct {
	SHA256  string   `json:"sha256"`
	Arch    string   `json:"arch"`
	Tensors []Tensor `json:"tensors"`
}

// Tensor is the digest of one tensor.
type Tensor struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// FormatDigest is a form of the model in the directory.
type FormatDigest struct {
	Format string `json:"format"`
	File   string `json:"file"` // of shards the first
	pack.Pin
	// Container is the sha256 of the container that this file gives back, "" if
	// it is not to be had from it.
	Container string `json:"container_sha256,omitempty"`
}

// Omission is a form that was not compared, and why.
type Omission struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Battery says which prompts were run.
type Battery struct {
	Name    string `json:"name"`
	SHA256  string `json:"sha256"`
	Prompts int    `json:"prompts"` // of the whole battery
	Steps   int    `json:"steps"`
}

// Shard says which part of a battery was run: every Count-th prompt from Index
// on.
type Shard struct {
	Index int `json:"index"` // from 0
	Count int `json:"count"`
}

// Run is one form on one backend over the battery. The first one of a shard
// records what the others are compared with, and compares nothing itself.
type Run struct {
	Shard      int    `json:"shard"`
	File       string `json:"file"`
	Backend    string `json:"backend"`
	Kernels    string `json:"kernels,omitempty"`
	Device     string `json:"device"`   // processor or GPU, as it names itself
	Platform   string `json:"platform"` // "linux/amd64"
	Threads    int    `json:"threads"`
	Positions  int    `json:"positions"` // compared: tokens, and all bits of their logits
	Differ     int    `json:"divergences"`
	BitsDiffer int    `json:"bits_differ"`
}

// Prompt is what all runs made of one prompt of the battery.
type Prompt struct {
	Index     int     `json:"index"` // in the battery
	Class     string  `json:"class,omitempty"`
	Steps     int     `json:"steps"`
	MinMargin float64 `json:"min_margin"`
	At        int     `json:"min_margin_step"`
	// SHA256 is over the prompt's ids, the tokens made and the sums of their
	// logits.
	SHA256 string `json:"sha256"`
}

// Stored is the outcome of the trajectories that the pack came with.
type Stored struct {
	File        string  `json:"file"`
	Positions   int     `json:"positions"`
	Divergences int     `json:"divergences"`
	MinMargin   float64 `json:"min_margin"`
}

// Class sums up the prompts of a class.
type Class struct {
	Class     string  `json:"class"`
	Prompts   int     `json:"prompts"`
	Positions int     `json:"positions"` // tokens made
	MinMargin float64 `json:"min_margin"`
}

// Sum fills in what follows from runs, prompts and stored trajectories.
func (c *Certificate) Sum() {
	c.Positions, c.Divergences, c.MinMargin, c.Classes = 0, 0, nil, []Class{}
	for _, r := range c.Runs {
		c.Positions += r.Positions
		c.Divergences += r.Differ
	}
	least := math.Inf(1)
	if c.Stored != nil {
		c.Positions += c.Stored.Positions
		c.Divergences += c.Stored.Divergences
		least = c.Stored.MinMargin
	}
	for _, p := range c.Prompts {
		i := slices.IndexFunc(c.Classes, func(k Class) bool { return k.Class == p.Class })
		if i < 0 {
			i = len(c.Classes)
			c.Classes = append(c.Classes, Class{Class: p.Class, MinMargin: p.MinMargin})
		}
		k := &c.Classes[i]
		k.Prompts++
		k.Positions += p.Steps
		k.MinMargin = min(k.MinMargin, p.MinMargin)
		least = min(least, p.MinMargin)
	}
	if !math.IsInf(least, 1) {
		c.MinMargin = &least
	}
}

// Encode returns the file's bytes.
func (c *Certificate) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(c); err != nil {
		return nil, err
	}
	if b.Len() > MaxFile {
		return nil, fmt.Errorf("the certificate would have %d bytes, expected at most %d: split the battery", b.Len(), MaxFile)
	}
	return b.Bytes(), nil
}

// Read reads and checks the certificate at path, and returns its bytes too,
// which a signature is over.
func Read(path string) (*Certificate, []byte, error) {
	data, err := pack.ReadFile(path, MaxFile)
	if err != nil {
		return nil, nil, err
	}
	c, err := Parse(path, data)
	return c, data, err
}

// Parse checks and decodes a certificate. Fields that it does not know are
// ignored. name is used in errors, which are [*pack.Error].
func Parse(name string, data []byte) (*Certificate, error) {
	bad := func(kind error, place, found, expected string) error {
		return &pack.Error{Kind: kind, File: name, Place: place, Offset: -1, Found: found, Expected: expected, Hint: "is this a file of nrun certify?"}
	}
	if n := bytes.Count(data, []byte{'{'}); n > maxObjects {
		return nil, bad(pack.ErrCorrupt, "", fmt.Sprintf("%d objects", n), fmt.Sprintf("at most %d", maxObjects))
	}
	c := new(Certificate)
	if err := json.Unmarshal(data, c); err != nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax) && syntax.Offset >= int64(len(data)):
			return nil, bad(pack.ErrTruncated, "", "the certificate ends too early", "JSON")
		case errors.As(err, &kind):
			return nil, bad(pack.ErrCorrupt, kind.Field, "a "+kind.Value, kind.Type.String())
		}
		return nil, bad(pack.ErrCorrupt, "", "not JSON: "+err.Error(), "a certificate")
	}
	switch {
	case c.Format != Format:
		return nil, bad(pack.ErrCorrupt, "format", fmt.Sprintf("%.40q", c.Format), fmt.Sprintf("%q", Format))
	case c.Version < 1 || c.Version > Version:
		return nil, bad(pack.ErrUnsupported, "version", fmt.Sprintf("version %d", c.Version), fmt.Sprintf("1 to %d", Version))
	}
	if place, found, expected := c.check(); place != "" {
		return nil, bad(pack.ErrCorrupt, place, found, expected)
	}
	return c, nil
}

// check returns the first place that breaks a rule, "" if none does.
func (c *Certificate) check() (place, found, expected string) {
	for i, f := range c.Formats {
		place = fmt.Sprintf("formats[%d]", i)
		if !pack.LocalName(f.File) {
			return place, fmt.Sprintf("the name is %.80q", f.File), "a relative path with slashes and without \"..\""
		}
		if found, expected := f.Pin.Check(); found != "" {
			return place, found, expected
		}
	}
	if found, expected := c.Manifest.Check(); found != "" {
		return "manifest", found, expected
	}
	for name, pin := range c.Files {
		place = fmt.Sprintf("files[%.80q]", name)
		if !pack.LocalName(name) {
			return place, "the name leads out of the directory", "a relative path with slashes and without \"..\""
		}
		if found, expected := pin.Check(); found != "" {
			return place, found, expected
		}
	}
	const digits = "64 hex digits"
	if !isDigest(c.Model.SHA256) {
		return "model", fmt.Sprintf("sha256 is %.80q", c.Model.SHA256), digits
	}
	for i, t := range c.Model.Tensors {
		if !isDigest(t.SHA256) {
			return fmt.Sprintf("model.tensors[%d]", i), fmt.Sprintf("sha256 is %.80q", t.SHA256), digits
		}
	}
	if s := c.Shard; s != nil && (s.Count < 1 || s.Index < 0 || s.Index >= s.Count) {
		return "shard", fmt.Sprintf("shard %d of %d", s.Index, s.Count), "an index from 0 to below the count"
	}
	last := -1
	for i, p := range c.Prompts {
		place = fmt.Sprintf("prompts[%d]", i)
		switch {
		case p.Index <= last || p.Index >= c.Battery.Prompts:
			return place, fmt.Sprintf("index %d", p.Index), fmt.Sprintf("rising, below %d", c.Battery.Prompts)
		case !isDigest(p.SHA256):
			return place, fmt.Sprintf("sha256 is %.80q", p.SHA256), digits
		}
		last = p.Index
	}
	for i, r := range c.Runs {
		if r.Positions < 0 || r.Differ < 0 || r.BitsDiffer < 0 {
			return fmt.Sprintf("runs[%d]", i), "a negative number", "0 or more"
		}
	}
	return "", "", ""
}

func isDigest(s string) bool {
	d, err := hex.DecodeString(s)
	return err == nil && len(d) == 32
}
