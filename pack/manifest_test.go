package pack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/pack"
)

// sum of "abc", from FIPS 180-2.
const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

func TestParseManifest(t *testing.T) {
	m, err := pack.ParseManifest("M", []byte(`{"weights_container":{"file":"a.bin","bytes":3,"sha256":"`+abc+`","coded_transport":{"file":"a.tv4z","bytes":2},"new":1},
		"files":{"a.bin":{"bytes":3,"sha256":"`+strings.ToUpper(abc)+`"},"hf/config.json":{"bytes":0,"sha256":"`+abc+`"}},"other":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	pin := pack.Pin{Bytes: 3, SHA256: abc}
	want := &pack.Manifest{
		WeightsContainer: &pack.ContainerPin{File: "a.bin", Pin: pin, CodedTransport: &pack.CodedTransport{File: "a.tv4z", Bytes: 2}},
		Files:            map[string]pack.Pin{"a.bin": {Bytes: 3, SHA256: strings.ToUpper(abc)}, "hf/config.json": {SHA256: abc}},
	}
	if d := cmp.Diff(want, m); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	again, err := pack.ParseManifest("M", m.Encode())
	if d := cmp.Diff(m, again); err != nil || d != "" {
		t.Errorf("encoded and parsed: %v\n%s", err, d)
	}
	if got := m.Names(); !cmp.Equal(got, []string{"a.bin", "hf/config.json"}) {
		t.Errorf("names %q", got)
	}
}

func TestParseManifestRefuses(t *testing.T) {
	file := func(name string) string { return fmt.Sprintf(`{"files":{%q:{"bytes":3,"sha256":"%s"}}}`, name, abc) }
	for name, tt := range map[string]struct {
		text, mention string
		kind          error
	}{
		"empty":        {"", "JSON", pack.ErrTruncated},
		"cut":          {file("a")[:20], "JSON", pack.ErrTruncated},
		"no json":      {"<html>", "byte 1", pack.ErrCorrupt},
		"list":         {`[]`, "array", pack.ErrCorrupt},
		"wrong type":   {`{"files":{"a":{"bytes":"3"}}}`, "int64", pack.ErrCorrupt},
		"parent":       {file("../a"), `"../a"`, pack.ErrCorrupt},
		"inner parent": {file("a/../../b"), "leads out", pack.ErrCorrupt},
		"absolute":     {file("/etc/passwd"), "leads out", pack.ErrCorrupt},
		"backslash":    {file(`..\a`), "leads out", pack.ErrCorrupt},
		"drive":        {file("c:a"), "leads out", pack.ErrCorrupt},
		"nameless":     {file(""), "leads out", pack.ErrCorrupt},
		"directory":    {file("."), "leads out", pack.ErrCorrupt},
		"control":      {strings.Replace(file("a"), `"a"`, `"a\u001b[2J"`, 1), "leads out", pack.ErrCorrupt},
		"bytes":        {strings.Replace(file("a"), ":3", ":-3", 1), "bytes is -3", pack.ErrCorrupt},
		"big bytes":    {strings.Replace(file("a"), ":3", ":1e30", 1), "int64", pack.ErrCorrupt},
		"sha256":       {strings.Replace(file("a"), abc, abc[1:], 1), "sha256", pack.ErrCorrupt},
		"long sha256":  {strings.Replace(file("a"), abc, strings.Repeat("0", 1<<20), 1), "64 hex digits", pack.ErrCorrupt},
		"container":    {`{"weights_container":{"file":"../x","bytes":1,"sha256":"` + abc + `"}}`, "leads out", pack.ErrCorrupt},
		"disagreement": {`{"weights_container":{"file":"a","bytes":1,"sha256":"` + abc + `"},"files":{"a":{"bytes":2,"sha256":"` + abc + `"}}}`, "another size", pack.ErrCorrupt},
		"transport":    {`{"weights_container":{"file":"a","bytes":1,"sha256":"` + abc + `","coded_transport":{"file":"/b","bytes":1}}}`, "coded_transport", pack.ErrCorrupt},
		"long":         {strings.Repeat(" ", 5<<20), "longer than", pack.ErrCorrupt},
		"deep":         {strings.Repeat("[", 1<<20), "JSON", pack.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pack.ParseManifest("M", []byte(tt.text))
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.mention) {
				t.Errorf("%v, want %v that mentions %q", err, tt.kind, tt.mention)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"weights_container":{"file":"a","bytes":1,"sha256":"` + abc + `"},"files":{"b/c":{"bytes":2,"sha256":"` + abc + `"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := pack.ParseManifest("M", b)
		if err != nil {
			return
		}
		for _, name := range m.Names() {
			if !filepath.IsLocal(filepath.FromSlash(name)) {
				t.Fatalf("%q leads out", name)
			}
		}
		if again, err := pack.ParseManifest("M", m.Encode()); err != nil || !cmp.Equal(m.Names(), again.Names()) {
			t.Fatalf("encoded and parsed: %v", err)
		}
	})
}

// packDir makes a directory with a container, a nested file, a link and things
// that are not part of a pack.
func packDir(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range map[string]string{"m.bin": "abc", "m.tv4z": "ab", "hf/config.json": "{}", ".cache/x": "x", ".m.bin.tmp1": "y", pack.ManifestName: "old"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBuildAndVerify(t *testing.T) {
	dir := packDir(t)
	want := []string{"m.bin", "hf/config.json", "m.tv4z"}
	if runtime.GOOS != "windows" { // hub clients put links there
		if err := os.Symlink(filepath.Join(dir, ".cache", "x"), filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		want = []string{"m.bin", "hf/config.json", "link", "m.tv4z"}
	}
	var last, total int64
	progress := func(file string, done, all int64) {
		if done < last || file == "" {
			t.Errorf("progress of %q goes from %d to %d", file, last, done)
		}
		last, total = done, all
	}
	m, err := pack.BuildManifest(t.Context(), dir, "m.bin", progress)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, m.Names()); d != "" {
		t.Errorf("names: -want +got\n%s", d)
	}
	if c := m.WeightsContainer; c.SHA256 != abc || c.Bytes != 3 || c.CodedTransport == nil || *c.CodedTransport != (pack.CodedTransport{File: "m.tv4z", Bytes: 2}) {
		t.Errorf("container %+v", c)
	}
	if last != total || total == 0 {
		t.Errorf("progress ends at %d of %d", last, total)
	}
	path := filepath.Join(dir, pack.ManifestName)
	if err := os.WriteFile(path, m.Encode(), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err = pack.ReadManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	last = 0
	checks, err := m.Verify(t.Context(), dir, nil, progress)
	if err != nil || len(checks) != len(want) {
		t.Fatal(checks, err)
	}
	for _, c := range checks {
		if c.Err() != nil || c.Status != pack.StatusOK {
			t.Errorf("%s: %v", c.Name, c.Err())
		}
	}
	if last != total {
		t.Errorf("progress ends at %d of %d", last, total)
	}

	for name, text := range map[string]string{"m.bin": "abd", "m.tv4z": "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "hf", "config.json")); err != nil {
		t.Fatal(err)
	}
	checks, err = m.Verify(t.Context(), dir, []string{"m.bin", "m.tv4z", "hf/config.json"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		status pack.Status
		kind   error
	}{{pack.StatusSHA256, pack.ErrNotEqual}, {pack.StatusSize, pack.ErrTruncated}, {pack.StatusMissing, pack.ErrTruncated}} {
		if c := checks[i]; c.Status != want.status || !errors.Is(c.Err(), want.kind) {
			t.Errorf("%s: %s, %v; want %s, %v", c.Name, c.Status, c.Err(), want.status, want.kind)
		}
	}
	if _, err := m.Verify(t.Context(), dir, []string{"nobody.bin"}, nil); err == nil {
		t.Error("a file without a pin was verified")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Verify(ctx, dir, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestReadManifest(t *testing.T) {
	dir := t.TempDir()
	if _, err := pack.ReadManifest(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	path := filepath.Join(dir, pack.ManifestName)
	if err := os.WriteFile(path, bytes.Repeat([]byte(" "), 100<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := pack.ReadManifest(path)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, pack.ErrCorrupt) || after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("100 MiB of blanks: %v after allocating %d bytes", err, after.TotalAlloc-before.TotalAlloc)
	}
}

func TestHashFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("abc"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got, err := pack.HashFile(t.Context(), path, nil); err != nil || got != (pack.Pin{Bytes: 3, SHA256: abc}) {
		t.Errorf("%+v, %v", got, err)
	}
}
