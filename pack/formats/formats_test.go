package formats_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/pack"
	"npack/pack/formats"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/cases"
	"npack/testdata/tv4z"
)

func put(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

func worked(t *testing.T) []byte {
	b, err := tv4z.Files.ReadFile("worked.bin")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every format that is written is read back as the same model, and each writer
// gives the same bytes from each reader's model.
func TestFormats(t *testing.T) {
	m := ternarytest.Model(ternarytest.Spec{Seed: 31, Config: ternary.Config{Arch: ternary.Qwen3, Layers: 1, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64,
		RotaryDims: 64, Intermediate: 256, Vocab: 40, MaxPosition: 64, RMSEps: 1e-6, RopeTheta: 1e4}}) // whole blocks, for GGUF
	want, err := m.Digests(t.Context(), ternary.WalkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var both []*formats.Format
	for i := range formats.All {
		f := &formats.All[i]
		if got, err := formats.ByName(f.Name); err != nil || got != f {
			t.Errorf("ByName(%q): %v", f.Name, err)
		}
		if f.Open != nil && f.Write != nil {
			both = append(both, f)
		}
	}
	if len(both) < 3 {
		t.Fatalf("%d formats are read and written", len(both))
	}
	written := map[string][]byte{}
	for _, f := range both {
		var b bytes.Buffer
		if err := f.Write(&b, m); err != nil {
			t.Fatal(err)
		}
		if f.Size != nil && int64(b.Len()) != f.Size(m) {
			t.Errorf("%s: %d bytes, Size says %d", f.Name, b.Len(), f.Size(m))
		}
		written[f.Name] = b.Bytes()
	}
	dir := t.TempDir()
	for _, f := range both {
		path := filepath.Join(dir, "model") // no name helps to tell the format
		put(t, path, written[f.Name])
		got, err := formats.Detect(path)
		if err != nil || got.Name != f.Name {
			t.Errorf("Detect: %v, %v; want %s", got, err, f.Name)
		}
		in, err := formats.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Model().Validate(); err != nil {
			t.Error(in.Place(err))
		}
		if d, err := in.Model().Digests(t.Context(), ternary.WalkOptions{}); err != nil || !cmp.Equal(d, want) {
			t.Errorf("%s: %v, other digests", f.Name, err)
		}
		for _, g := range both {
			var b bytes.Buffer
			if err := g.Write(&b, in.Model()); err != nil || !bytes.Equal(b.Bytes(), written[g.Name]) {
				t.Errorf("%s to %s: %v, other bytes", f.Name, g.Name, err)
			}
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := formats.ByName("gguv"); err == nil || !strings.Contains(err.Error(), "native") {
		t.Errorf("unknown name: %v", err)
	}
}

func TestNotRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a01_type142.gguf", "a12_page.gguf", "a12_lfs_pointer.gguf", "a07_empty.gguf", "a07_magic_only.gguf", "a23_not_ternary.safetensors"} {
		b, err := cases.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		put(t, path, b)
		_, err = formats.Open(t.Context(), path)
		var e *pack.Error
		if !errors.As(err, &e) || e.File != path || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a01_type142.gguf" || strings.HasPrefix(name, "a23") {
			if !errors.Is(err, pack.ErrUnsupported) {
				t.Errorf("%s: %v, want ErrUnsupported", name, err)
			}
		}
	}
}

func TestContainer(t *testing.T) {
	pin := `{"bytes":3846,"sha256":"0bb04b7ae30791e3b9fbb3ad9acf99d8d5931cc4b09f877ca03a5ef5ad4401ed"}`
	manifest := func(file string) []byte {
		return []byte(`{"weights_container":{"file":"` + file + `",` + pin[1:] + `}`)
	}
	tests := []struct {
		name  string
		files map[string][]byte
		want  string // file, or "" for an error
		kind  error
		text  string
	}{
		{"only one", map[string][]byte{"m.bin": worked(t), "m.tv4z": nil, "config.json": nil, ".hidden.bin": nil}, "m.bin", nil, ""},
		{"manifest chooses", map[string][]byte{"a.bin": nil, "w/b.bin": worked(t), pack.ManifestName: manifest("w/b.bin")}, "w/b.bin", nil, ""},
		{"manifest without a container", map[string][]byte{"a.bin": worked(t), pack.ManifestName: []byte(`{"files":{}}`)}, "a.bin", nil, ""},
		{"none", map[string][]byte{"config.json": nil}, "", pack.ErrNotModel, "no *.bin"},
		{"GGUF alone", map[string][]byte{"m.GGUF": worked(t), "config.json": nil, ".x.gguf": nil}, "m.GGUF", nil, ""},
		{"transport alone", map[string][]byte{"m.tv4z": worked(t)}, "m.tv4z", nil, ""},
		{"container first", map[string][]byte{"z.bin": worked(t), "a.gguf": nil, "m.tv4z": nil}, "z.bin", nil, ""},
		{"shards", map[string][]byte{"m-00001-of-00002.gguf": worked(t), "m-00002-of-00002.gguf": nil}, "m-00001-of-00002.gguf", nil, ""},
		{"two sets", map[string][]byte{"m-00001-of-00002.gguf": nil, "n-00001-of-00002.gguf": nil}, "", pack.ErrNotModel, "2 model files: m-00001-of-00002.gguf, n-00001-of-00002.gguf"},
		{"two formats", map[string][]byte{"m.gguf": nil, "m.tv4z": nil, "m.safetensors": nil}, "", pack.ErrNotModel, "2 model files: m.gguf, m.tv4z"},
		{"several", map[string][]byte{"a.bin": nil, "b.bin": nil}, "", pack.ErrNotModel, "a.bin, b.bin"},
		{"manifest names a missing file", map[string][]byte{"a.bin": nil, pack.ManifestName: manifest("b.bin")}, "", pack.ErrTruncated, "3846"},
		{"manifest leads out", map[string][]byte{"a.bin": nil, pack.ManifestName: manifest("../b.bin")}, "", pack.ErrCorrupt, "leads out"},
		{"broken manifest", map[string][]byte{"a.bin": nil, pack.ManifestName: []byte("{")}, "", pack.ErrTruncated, "JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, b := range tt.files {
				put(t, filepath.Join(dir, filepath.FromSlash(name)), b)
			}
			got, err := formats.Container(dir)
			if tt.want == "" {
				if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%v, want %v that mentions %q", err, tt.kind, tt.text)
				}
				return
			}
			if want := filepath.Join(dir, filepath.FromSlash(tt.want)); err != nil || got != want {
				t.Fatalf("%s, %v; want %s", got, err, want)
			}
			f, err := formats.Open(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if f.Name() != got || f.Size() != 3846 {
				t.Errorf("%s of %d bytes", f.Name(), f.Size())
			}
			f.Close()
		})
	}
	if _, err := formats.Open(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such path: %v", err)
	}
}

// Hub clients make packs of links into a store of files.
func TestLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIP: making symbolic links needs a privilege on windows")
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "blobs", "0bb04b7a"), worked(t))
	if err := os.MkdirAll(filepath.Join(dir, "snapshot"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../blobs/0bb04b7a", filepath.Join(dir, "snapshot", "m.bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("snapshot", filepath.Join(dir, "latest")); err != nil {
		t.Fatal(err)
	}
	f, err := formats.Open(t.Context(), filepath.Join(dir, "latest"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
