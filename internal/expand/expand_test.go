package expand

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"npack/pack"
	"npack/pack/coded"
	"npack/testdata/story"
	"npack/testdata/tv4z"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := tv4z.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func names(t *testing.T, dir string) (n []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		n = append(n, e.Name())
	}
	return n
}

// memory is a transport in memory that remembers where it was opened.
type memory struct {
	data   []byte
	key    string
	opened []int64
	fail   int // the reader fails after that many bytes, 0 for never
}

var errLine = &pack.Error{Kind: pack.ErrNetwork, Found: "the line broke", Offset: -1}
var errStale = errors.New("another file")

func (m *memory) transport() Transport {
	return Transport{Name: "m.tv4z", Again: func(err error) bool { return errors.Is(err, errStale) },
		Open: func(_ context.Context, from int64, key string) (io.ReadCloser, int64, string, error) {
			m.opened = append(m.opened, from)
			if key != "" && key != m.key {
				return nil, 0, "", errStale
			}
			var r io.Reader = bytes.NewReader(m.data[from:])
			if m.fail > 0 {
				r = io.MultiReader(io.LimitReader(r, int64(m.fail)-from), broken{})
			}
			return io.NopCloser(r), int64(len(m.data)), m.key, nil
		}}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errLine }

func TestGenuine(t *testing.T) {
	entries, err := tv4z.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".tv4z")
		if !ok {
			continue
		}
		n++
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "m.bin")
			want := read(t, name+".bin")
			m := &memory{data: read(t, name+".tv4z"), key: "k"}
			res, err := File(t.Context(), path, m.transport(), Options{})
			if _, bad := tv4z.Bad[name+".bin"]; bad {
				if !errors.Is(err, pack.ErrCorrupt) || !strings.Contains(err.Error(), "decoded container: ") || len(names(t, dir)) != 0 {
					t.Errorf("a container that breaks a rule: %v; left %q", err, names(t, dir))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _ := os.ReadFile(path)
			if !bytes.Equal(got, want) || res.Bytes != int64(len(want)) || res.Survey == nil || res.CodedBytes != int64(len(m.data)) {
				t.Errorf("%d bytes, result %+v", len(got), res)
			}
			if n := names(t, dir); !slices.Equal(n, []string{"m.bin"}) {
				t.Errorf("left behind: %q", n)
			}
		})
	}
	if n < 10 {
		t.Fatalf("%d transports", n)
	}
}

// storyTransport is a transport of the story model.
func storyTransport(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := coded.Encode(t.Context(), bytes.NewReader(story.Container), int64(len(story.Container)), &out, coded.EncodeOptions{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What one run leaves the next goes on with; a damaged or stale part is begun
// again; either way the file is the right one.
func TestResume(t *testing.T) {
	data := storyTransport(t)
	half := len(data) / 2
	for _, tc := range []struct {
		name   string
		change func(m *memory, part string)
		resume bool
	}{
		{"as it was", func(*memory, string) {}, true},
		{"another key", func(m *memory, _ string) { m.key = "other" }, false},
		{"part damaged", func(_ *memory, part string) { poke(t, part, 100) }, false},
		{"part damaged late", func(_ *memory, part string) { poke(t, part, 2_000_000) }, true},
		{"part cut", func(_ *memory, part string) {
			if err := os.Truncate(part, 2_000_000); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"journal gone", func(_ *memory, part string) {
			if err := os.Remove(part + ".json"); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "m.bin")
			m := &memory{data: data, key: "k", fail: half}
			if _, err := File(t.Context(), path, m.transport(), Options{}); !errors.Is(err, pack.ErrNetwork) {
				t.Fatalf("broken line: %v", err)
			}
			if n := names(t, dir); !slices.Equal(n, []string{"m.bin.part", "m.bin.part.json"}) {
				t.Fatalf("kept: %q", n)
			}
			m.fail = 0
			tc.change(m, path+".part")
			res, err := File(t.Context(), path, m.transport(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if (res.Resumed > 0) != tc.resume {
				t.Errorf("resumed at %d; opened at %d", res.Resumed, m.opened)
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, story.Container) {
				t.Error("another file")
			}
			if n := names(t, dir); !slices.Equal(n, []string{"m.bin"}) {
				t.Errorf("left behind: %q", n)
			}
		})
	}
}

func poke(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

// A transport that is not what it should be leaves nothing.
func TestRefuse(t *testing.T) {
	data := read(t, "a3-tied.tv4z")
	flipped := bytes.Clone(data)
	flipped[20] ^= 1 // of the MD5
	for _, tc := range []struct {
		name string
		data []byte
		want *pack.Pin
		kind error
		text string
	}{
		{"md5", flipped, nil, pack.ErrCorrupt, "md5"},
		{"cut", data[:len(data)-1], nil, pack.ErrTruncated, "truncated"},
		{"size", data, &pack.Pin{Bytes: 5}, pack.ErrNotEqual, "has 97304 bytes, expected 5"},
		{"sha256", data, &pack.Pin{Bytes: 97304, SHA256: strings.Repeat("0", 64)}, pack.ErrNotEqual, "sha256 9eb3fb02"},
		{"other file", []byte("<html>..."), nil, pack.ErrNotModel, "TV4Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			m := &memory{data: tc.data} // no key: nothing to go on from
			_, err := File(t.Context(), filepath.Join(dir, "m.bin"), m.transport(), Options{Want: tc.want})
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want %q", err, tc.text)
			}
			if n := names(t, dir); len(n) != 0 {
				t.Errorf("left behind: %q", n)
			}
		})
	}
}
