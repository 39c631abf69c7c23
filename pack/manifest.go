package pack

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// ManifestName is the name of the manifest in a pack directory.
const ManifestName = "MANIFEST.json"

// MaxManifest bounds the memory that a manifest can ask for: some 20,000 files.
const MaxManifest = 4 << 20

// Manifest pins the bytes of the files of a pack directory. Names are relative
// to the directory, with slashes.
type Manifest struct {
	WeightsContainer *ContainerPin  `json:"weights_container,omitempty"`
	Files            map[string]Pin `json:"files"`
}

// Pin is what a file must be.
type Pin struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // 64 hex digits
}

// ContainerPin is the pin of the container, with its coded transport.
type ContainerPin struct {
	File string `json:"file"`
	Pin
	CodedTransport *CodedTransport `json:"coded_transport,omitempty"`
}

// CodedTransport names the coded form of the container.
type CodedTransport struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

// ReadManifest reads the manifest at path. If there is none, the error wraps
// [io/fs.ErrNotExist].
func ReadManifest(path string) (*Manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxManifest+1))
	if err != nil {
		return nil, err
	}
	return ParseManifest(path, b)
}

// ParseManifest checks and decodes a manifest. It refuses file names that lead
// out of the directory. Fields that it does not know are ignored. name is used
// in errors, which are [*Error].
func ParseManifest(name string, b []byte) (*Manifest, error) {
	bad := func(place, found, expected string) error {
		return &Error{Kind: ErrCorrupt, File: name, Place: place, Offset: -1, Found: found, Expected: expected,
			Hint: "fetch the manifest again, or remove it to go without"}
	}
	if len(b) > MaxManifest {
		return nil, bad("", fmt.Sprintf("the manifest is longer than %d bytes", MaxManifest), "a list of files")
	}
	m := new(Manifest)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, jsonError(name, b, err)
	}
	for file, pin := range m.Files {
		key := fmt.Sprintf("files[%q]", file)
		if !LocalName(file) {
			return nil, bad(key, "the name leads out of the directory", "a relative path with slashes and without \"..\"")
		}
		if what, want := pin.Check(); what != "" {
			return nil, bad(key, what, want)
		}
	}
	if c := m.WeightsContainer; c != nil {
		if !LocalName(c.File) {
			return nil, bad("weights_container", fmt.Sprintf("the name %q leads out of the directory", c.File), "a relative path with slashes and without \"..\"")
		}
		if what, want := c.Pin.Check(); what != "" {
			return nil, bad("weights_container", what, want)
		}
		if p, ok := m.Files[c.File]; ok && !p.equal(c.Pin) {
			return nil, bad("weights_container", fmt.Sprintf("%q has another size or sha256 than in files", c.File), "the same")
		}
		if t := c.CodedTransport; t != nil && (!LocalName(t.File) || t.Bytes < 0) {
			return nil, bad("weights_container.coded_transport", fmt.Sprintf("the name is %q, bytes is %d", t.File, t.Bytes), "a relative path and a size")
		}
	}
	return m, nil
}

// jsonError adds the place that package json knows.
func jsonError(name string, b []byte, err error) error {
	e := &Error{Kind: ErrCorrupt, File: name, Offset: -1, Found: "the manifest is not valid JSON", Err: err,
		Hint: "fetch the manifest again, or remove it to go without"}
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		e.Offset = syntax.Offset
		if syntax.Offset >= int64(len(b)) {
			e.Kind = ErrTruncated
		}
	case errors.As(err, &typ):
		e.Offset, e.Place = typ.Offset, typ.Field
		e.Found = "a " + typ.Value + " where another type belongs"
		e.Err, e.Expected = nil, typ.Type.String()
	}
	return e
}

// Check returns what is wrong with a pin and what was expected.
func (p Pin) Check() (found, expected string) {
	if p.Bytes < 0 {
		return fmt.Sprintf("bytes is %d", p.Bytes), "0 or more"
	}
	if d, err := hex.DecodeString(p.SHA256); err != nil || len(d) != 32 {
		return fmt.Sprintf("sha256 is %.80q", p.SHA256), "64 hex digits"
	}
	return "", ""
}

func (p Pin) equal(q Pin) bool {
	return p.Bytes == q.Bytes && strings.EqualFold(p.SHA256, q.SHA256)
}

// LocalName reports whether name is a path inside a directory on every system:
// no "..", no root, no drive letter or backslash, no control characters.
func LocalName(name string) bool {
	return name != "." && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsAny(name, `\:`) && !strings.ContainsFunc(name, unicode.IsControl)
}

// Encode returns the manifest as the file's bytes: indented, names sorted.
func (m *Manifest) Encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		panic(err) // strings and integers alone
	}
	return b.Bytes()
}
