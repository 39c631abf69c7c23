package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"npack/pack"
)

// pin is what one source says that a file should be.
type pin struct {
	file   string // relative to the directory, with slashes
	bytes  int64  // -1 if the source does not say
	sha256 string // lower-case hex, or "" if the source does not say
	source string // MANIFEST.json, SHA256SUMS or a .sha256 file
}

// readPins reads all that lies in dir and says what its files should be:
// MANIFEST.json, SHA256SUMS, and the .sha256 file of the container.
func readPins(dir, container string) ([]pin, error) {
	var pins []pin
	m, err := pack.ReadManifest(filepath.Join(dir, pack.ManifestName))
	switch {
	case err == nil:
		for _, name := range m.Names() {
			p, _ := m.Pin(name)
			pins = append(pins, pin{name, p.Bytes, strings.ToLower(p.SHA256), pack.ManifestName})
		}
		if w := m.WeightsContainer; w != nil && w.CodedTransport != nil {
			pins = append(pins, pin{w.CodedTransport.File, w.CodedTransport.Bytes, "", pack.ManifestName})
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	for _, source := range []struct{ name, of string }{{"SHA256SUMS", ""}, {container + ".sha256", container}} {
		sums, err := readSums(dir, source.name, source.of)
		if err != nil {
			return nil, err
		}
		pins = append(pins, sums...)
	}
	return pins, nil
}

// containerPins returns what lies in dir and speaks of the container that comes
// out of the transport in: the one that MANIFEST.json names if in is its
// transport, by name or by the size of what is in it (-1: not known), and what
// has the name of the output or of in with .bin.
func containerPins(dir, in, out string, size int64) ([]pin, error) {
	in, out = filepath.Base(in), filepath.Base(out)
	names := []string{out, strings.TrimSuffix(in, filepath.Ext(in)) + ".bin"}
	m, err := pack.ReadManifest(filepath.Join(dir, pack.ManifestName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if m != nil && m.WeightsContainer != nil {
		w := m.WeightsContainer
		if w.Bytes == size || w.CodedTransport != nil && w.CodedTransport.File == in {
			names = append(names, w.File)
		}
	}
	pins, err := readPins(dir, out)
	return slices.DeleteFunc(pins, func(p pin) bool { return !slices.Contains(names, p.file) }), err
}

// maxSums bounds the memory that a list of sums can ask for.
const maxSums = 1 << 20

// readSums reads a file of lines as shasum writes them: 64 hex digits, a space,
// a space or an asterisk, a name. If the file is the companion of one file, of,
// the name is not looked at and may be left out. A file that is not there says
// nothing.
func readSums(dir, name, of string) ([]pin, error) {
	full := filepath.Join(dir, filepath.FromSlash(name))
	f, err := os.Open(full)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSums+1))
	if err != nil {
		return nil, err
	}
	bad := func(place, found, expected string) error {
		return &pack.Error{Kind: pack.ErrCorrupt, File: full, Place: place, Offset: -1, Found: found, Expected: expected,
			Hint: "fetch the list again, or remove it to go without"}
	}
	if len(b) > maxSums {
		return nil, bad("", fmt.Sprintf("longer than %d bytes", maxSums), "a list of sha256 sums")
	}
	var pins []pin
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		digest, file, _ := strings.Cut(line, " ")
		if d, err := hex.DecodeString(digest); err != nil || len(d) != 32 {
			return nil, bad(fmt.Sprintf("line %d", n), fmt.Sprintf("starts with %.80q", digest), "64 hex digits")
		}
		if file = strings.TrimLeft(file, " *"); of != "" {
			file = of
		}
		file = path.Clean(filepath.ToSlash(file))
		if file == "." || !filepath.IsLocal(filepath.FromSlash(file)) {
			return nil, bad(fmt.Sprintf("line %d", n), fmt.Sprintf("names %.80q", file), "a file in the directory")
		}
		pins = append(pins, pin{file, -1, strings.ToLower(digest), name})
	}
	return pins, nil
}
