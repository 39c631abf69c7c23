package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"npack/testdata/story"
)

// bigJSON is the story model's tokenizer.json, made long enough to be cached.
func bigJSON() []byte {
	return append(bytes.Repeat([]byte(" "), smallJSON), story.TokenizerJSON...)
}

func TestLoad(t *testing.T) {
	data, dir := bigJSON(), filepath.Join(t.TempDir(), "new", "dir")
	want := storyTokenizer(t).Encode(nil, benchTexts[0].text)
	load := func() {
		t.Helper()
		tok, err := Load(data, dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Encode(nil, benchTexts[0].text); !slices.Equal(got, want) {
			t.Fatal("other ids")
		}
		if len(tok.Added()) != 3 || tok.Len() != 4096 {
			t.Fatalf("%d added tokens of %d", len(tok.Added()), tok.Len())
		}
	}
	load()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, error %v, expected one file", files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if _, err := decodeCache(good, sum); err != nil {
		t.Fatalf("the file that Load wrote: %v", err)
	}
	load() // from the file

	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	older := bytes.Clone(good)
	older[7]--
	foreign := bytes.Clone(good)
	foreign[8] ^= 1
	for name, bad := range map[string][]byte{
		"empty": {}, "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0), "flipped": flipped,
		"older": older, "foreign": foreign, "huge": make([]byte, 8<<20),
	} {
		if err := os.WriteFile(files[0], bad, 0o600); err != nil {
			t.Fatal(err)
		}
		load()
		if now, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(now, good) {
			t.Errorf("%s: file not written anew, error %v", name, err)
		}
	}

	// What stands in the way of writing is no error.
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(files[0], 0o700); err != nil {
		t.Fatal(err)
	}
	load()
	if left, _ := filepath.Glob(filepath.Join(dir, ".tokens-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	dir = files[0] + "/file"
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	load()
}

func TestLoadSmall(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(story.TokenizerJSON, dir); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
		t.Errorf("a cache for 264 KB: %v", files)
	}
	if _, err := Load([]byte("{}"), dir); err == nil {
		t.Error("{} accepted")
	}
}

// TestLoadQwen3: the real vocabulary is the same from the cache.
func TestLoadQwen3(t *testing.T) {
	data, dir := qwen3JSON(t), t.TempDir()
	if _, err := Load(data, dir); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*.tokens")); len(files) != 1 {
		t.Fatalf("files %v, expected one", files)
	}
	tok, err := Load(data, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := qwen3(t)
	if tok.Len() != want.Len() || tok.text != want.text || !slices.Equal(tok.merges, want.merges) || !slices.Equal(tok.flags, want.flags) || tok.byteID != want.byteID {
		t.Error("another tokenizer")
	}
	var g goldenFile
	readGolden(t, "qwen3.json", &g)
	checkGolden(t, tok, &g)
}

// seal gives a body a right checksum, so that what lies behind it is reached.
func seal(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

func tinyBody(tb testing.TB) []byte {
	raw := tiny(tb).encodeCache([32]byte{})
	return raw[:len(raw)-sha256.Size]
}

// TestHostileCache: files with a right checksum and a wrong content.
func TestHostileCache(t *testing.T) {
	tok := tiny(t)
	ids, merges := len(tok.ends), len(tok.merges)
	ends := cacheFixed
	pairs := ends + 4*ids
	added := pairs + 12*merges
	text := added + 4*len(tok.added)
	le := binary.LittleEndian
	put := func(at int, x uint32) func([]byte) { return func(b []byte) { le.PutUint32(b[at:], x) } }
	for _, c := range []struct {
		name   string
		change func([]byte)
		says   string
	}{
		{"no ids", put(40, 0), "counts"},
		{"many ids", put(40, 1<<31), "counts"},
		{"much text", put(44, 1<<31), "counts"},
		{"many merges", put(48, 1<<30), "counts"},
		{"many added", put(52, 1<<30), "counts"},
		{"sizes that cancel out", func(b []byte) {
			le.PutUint32(b[40:], uint32(ids+3))
			le.PutUint32(b[48:], uint32(merges-1))
		}, "cache"},
		{"end before start", put(ends+4*7, 3), "token 7"},
		{"last end early", put(ends+4*(ids-1), le.Uint32(tinyBody(t)[ends+4*(ids-2):])), "tokens end"},
		{"end past the text", put(ends+4*(ids-1), 1<<30), "tokens end"},
		{"left", put(pairs, uint32(ids)), "merge 0"},
		{"right", put(pairs+4, 1<<31), "merge 0"},
		{"result", put(pairs+8, 1<<32-1), "merge 0"},
		{"other result", put(pairs+8, 5), "merge 0"},
		{"added id", put(added, uint32(2*ids)), "added token 0"},
		{"added id a byte's", put(added, 0), "byte 0x"},
		{"added text not UTF-8", put(added, 2*uint32(tok.byteID[0xff])), "added token"},
		{"two tokens alike", func(b []byte) { b[text] = b[text+1] }, "expected one id"},
	} {
		body := tinyBody(t)
		c.change(body)
		got, err := decodeCache(seal(body), [32]byte{})
		if got != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, expected %q", c.name, err, c.says)
		}
	}
	if _, err := decodeCache(seal(tinyBody(t)), [32]byte{}); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

func FuzzDecodeCache(f *testing.F) {
	f.Add(tinyBody(f))
	f.Fuzz(func(t *testing.T, body []byte) {
		body = bytes.Clone(body)
		if len(body) >= 40 {
			copy(body, cacheMagic)
			clear(body[8:40])
		}
		tok, err := decodeCache(seal(body), [32]byte{})
		if err == nil {
			const text = "Hello <|end|> aabb'S 12\r\n\U0001f642 abababab"
			if got := tok.Decode(tok.EncodeLiteral(nil, text), true); got != text {
				t.Errorf("decodes to %q", got)
			}
			tok.Encode(nil, text)
		}
	})
}
