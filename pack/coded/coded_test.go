package coded_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"npack/pack"
	"npack/pack/coded"
	"npack/pack/native"
	"npack/testdata/story"
	"npack/testdata/tv4z"
)

// pair is a container and the transport that the publisher's program made of
// it.
type pair struct {
	name          string
	source, coded []byte
}

func pairs(t testing.TB) []pair {
	t.Helper()
	names, err := fs.Glob(tv4z.Files, "*.bin")
	if err != nil || len(names) != 12 {
		t.Fatal(names, err)
	}
	var all []pair
	for _, n := range names {
		n = strings.TrimSuffix(n, ".bin")
		all = append(all, pair{n, file(t, n+".bin"), file(t, n+".tv4z")})
	}
	b, err := os.ReadFile(filepath.FromSlash("../../testdata/story/story.tv4z"))
	if err != nil {
		t.Fatal(err)
	}
	return append(all, pair{"story", story.Container, b})
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := tv4z.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(b []byte, o coded.DecodeOptions) ([]byte, error) {
	r := bytes.NewReader(b)
	h, err := coded.ReadHeader(o.Name, r)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = coded.Decode(context.Background(), h, r, &out, o)
	return out.Bytes(), err
}

func encode(b []byte, o coded.EncodeOptions) ([]byte, error) {
	var out bytes.Buffer
	err := coded.Encode(context.Background(), bytes.NewReader(b), int64(len(b)), &out, o)
	return out.Bytes(), err
}

// Every genuine file is decoded to its container and made from it again, bit
// for bit.
func TestGenuine(t *testing.T) {
	for _, p := range pairs(t) {
		for _, threads := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s/%d", p.name, threads), func(t *testing.T) {
				for _, size := range []int64{0, int64(len(p.coded))} {
					got, err := decode(p.coded, coded.DecodeOptions{Name: p.name, Threads: threads, Size: size})
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, p.source) {
						t.Error("decodes to something else")
					}
				}
				got, err := encode(p.source, coded.EncodeOptions{Name: p.name, Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, p.coded) {
					t.Error("encodes to something else")
				}
			})
		}
	}
}

// recipe makes the 38 MB container that testdata/tv4z/README.md describes.
func recipe() []byte {
	seed := uint32(0x2545f491)
	next := func() uint32 {
		seed ^= seed << 13
		seed ^= seed >> 17
		seed ^= seed << 5
		return seed
	}
	thin := func() uint32 { a := next(); return a & next() }
	le := binary.LittleEndian
	b := make([]byte, 0, 37879768)
	u32 := func(n int, v uint32) {
		for range n {
			b = le.AppendUint32(b, v)
		}
	}
	f32 := func(n int, f float32) { u32(n, math.Float32bits(f)) }
	b = append(b, "TRTC"...)
	for _, v := range []uint32{4, 1, 1, 64, 1, 1, 64, 64, 64, 524800, 2048} {
		u32(1, v)
	}
	f32(1, 1e-6)
	f32(1, 10000)
	u32(1, 1)
	f32(128, 1)
	for range 7 {
		for _, v := range []uint32{64, 64, 512, 64} {
			u32(1, v)
		}
		planes := make([]byte, 3*4096)
		for w := range 1024 {
			a := thin()
			n := thin() &^ a
			le.PutUint32(planes[4*w:], a)
			le.PutUint32(planes[4096+4*w:], n)
			le.PutUint32(planes[8192+4*w:], next()&(a|n))
		}
		b = append(b, planes...)
		f32(64, 1.0/64)
		f32(64, 1.0/32)
		u32(129, 0)
	}
	f32(64, 1)
	for _, v := range []uint32{524800, 64, 64, 64} {
		u32(1, v)
	}
	for range 8396800 {
		u32(1, thin())
	}
	f32(524800, 1.0/2048)
	u32(524800, 0)
	return b
}

// The publisher's program cuts a large table and gives these bytes.
func TestRecipe(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: 38 MB in short mode")
	}
	b := recipe()
	if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != "bc70d3d805a68504735ef6e87904907287fce79f9ff3bb31aed205b31577d342" {
		t.Fatalf("the recipe gives %s", got)
	}
	for _, threads := range []int{1, 3} {
		out, err := encode(b, coded.EncodeOptions{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(out)); got != "46607e03d49ad39d6c194e1dfe88b37c85d8a5a2e93f1d2f946e0d9002dc250d" {
			t.Errorf("%d threads: %d bytes, sha256 %s", threads, len(out), got)
		}
		back, err := decode(out, coded.DecodeOptions{Threads: threads})
		if err != nil || !bytes.Equal(back, b) {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}

// A file as output gets its header at the end, and the same bytes.
func TestSeekable(t *testing.T) {
	for _, p := range pairs(t) {
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("before"); err != nil {
			t.Fatal(err)
		}
		if err := coded.Encode(context.Background(), bytes.NewReader(p.source), int64(len(p.source)), f, coded.EncodeOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("after"); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(f.Name())
		if err != nil || string(got) != "before"+string(p.coded)+"after" {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// What cannot be encoded is no container, or not one that the coder takes.
func TestEncodeRefuses(t *testing.T) {
	good := file(t, "worked.bin")
	for n := range len(good) {
		if _, err := encode(good[:n], coded.EncodeOptions{Name: "x"}); !errors.Is(err, pack.ErrTruncated) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	change := func(at int, v byte) []byte { b := bytes.Clone(good); b[at] = v; return b }
	for name, tt := range map[string]struct {
		b    []byte
		kind error
	}{
		"longer":    {append(bytes.Clone(good), 0), pack.ErrCorrupt},
		"magic":     {change(0, 'X'), pack.ErrNotModel},
		"version":   {change(4, 5), pack.ErrUnsupported},
		"arch":      {change(8, 9), pack.ErrCorrupt},
		"no layers": {change(12, 0), pack.ErrCorrupt},
		"eok":       {change(56, 3), pack.ErrCorrupt},
		"stride":    {change(128, 63), pack.ErrUnsupported},
		"rows":      {change(119, 0x80), pack.ErrCorrupt},
	} {
		_, err := encode(tt.b, coded.EncodeOptions{Name: "x"})
		var e *pack.Error
		if !errors.Is(err, tt.kind) || !errors.As(err, &e) || e.Hint == "" || e.File != "x" {
			t.Errorf("%s: %v, want %v", name, err, tt.kind)
		}
	}
}

func TestPacked(t *testing.T) {
	ctx := context.Background()
	for _, p := range pairs(t) {
		var packed bytes.Buffer
		err := coded.Pack(ctx, p.name, bytes.NewReader(p.source), int64(len(p.source)), &packed)
		if bad, ok := tv4z.Bad[p.name+".bin"]; ok {
			var e *pack.Error
			if !errors.As(err, &e) || e.Kind != pack.ErrCorrupt || e.Offset != bad.Offset ||
				e.Place != fmt.Sprintf("tensor %q: row %d: column %d", bad.Tensor, bad.Row, bad.Col) {
				t.Errorf("%s: %v", p.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if want, err := tv4z.Files.ReadFile(p.name + ".t5q"); err == nil && !bytes.Equal(packed.Bytes(), want) {
			t.Errorf("%s: packs to something else", p.name)
		}
		r, size := bytes.NewReader(packed.Bytes()), int64(packed.Len())
		if !coded.IsPacked(r, size) || coded.IsPacked(bytes.NewReader(p.source), int64(len(p.source))) {
			t.Errorf("%s: told apart wrongly", p.name)
		}
		var back bytes.Buffer
		if err := coded.Unpack(ctx, p.name, r, size, &back); err != nil || !bytes.Equal(back.Bytes(), p.source) {
			t.Errorf("%s: unpack: %v", p.name, err)
		}
	}
}

// Damage of a packed file is refused where the form allows to see it.
func TestPackedRefused(t *testing.T) {
	good := file(t, "worked.t5q")
	unpack := func(b []byte) error {
		return coded.Unpack(context.Background(), "x", bytes.NewReader(b), int64(len(b)), io.Discard)
	}
	b := bytes.Clone(good)
	b[546] = 125 // the first symbol of v
	var e *pack.Error
	if err := unpack(b); !errors.As(err, &e) || e.Offset != 546 || !strings.Contains(e.Found, "125") {
		t.Errorf("symbol 125: %v", err)
	}
	b = bytes.Clone(good)
	b[546+170] = 25 // its last one holds two weights
	if err := unpack(b); !errors.As(err, &e) || e.Offset != 546+170 || !strings.Contains(e.Found, "past the end") {
		t.Errorf("tail: %v", err)
	}
	for n := range good {
		if err := unpack(good[:n]); !errors.Is(err, pack.ErrTruncated) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if err := unpack(file(t, "worked.bin")); !errors.Is(err, pack.ErrUnsupported) {
		t.Errorf("a container: %v", err)
	}
}

// Statistics: names from the container without decoding planes, exact entropy
// when asked for, the same from both sides.
func TestStatistics(t *testing.T) {
	ctx := context.Background()
	for _, p := range pairs(t) {
		x, err := coded.ReadIndex(ctx, p.name, bytes.NewReader(p.coded), int64(len(p.coded)))
		if err != nil {
			t.Fatal(err)
		}
		regions, err := x.Regions(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var from, to []float64
		if _, err := encode(p.source, coded.EncodeOptions{Done: func(d coded.Done) { from = append(from, d.Entropy) }}); err != nil {
			t.Fatal(err)
		}
		if _, err := decode(p.coded, coded.DecodeOptions{Count: true, Done: func(d coded.Done) { to = append(to, d.Entropy) }}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(from, to); diff != "" || len(from) != int(x.Header.Blocks) {
			t.Errorf("%s: %s", p.name, diff)
		}
		f, err := native.OpenBytes(p.name, p.source)
		if err != nil {
			t.Fatal(err)
		}
		tensors := x.Tensors(regions, to)
		i := 0
		for m := range f.Model().Tensors() {
			if m.Vector != nil {
				continue
			}
			got := tensors[i]
			i++
			if got.Tensor != m.Name || got.Layer != m.Layer || got.Blocks != 1 {
				t.Errorf("%s: %+v, want %s", p.name, got, m.Name)
			}
			if m.Ternary != nil && (got.Size != int64(3*len(m.Ternary.BP)) || got.Cols != int64(m.Ternary.Cols)) {
				t.Errorf("%s: %+v", p.name, got)
			}
			if bits := 8 * float64(got.Coded); bits < got.Entropy {
				t.Errorf("%s: %s: %.0f bits are fewer than the bound, %.1f", p.name, got.Tensor, bits, got.Entropy)
			}
		}
		if i != len(tensors) {
			t.Errorf("%s: %d tensors, want %d", p.name, len(tensors), i)
		}
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join("..", "..", "testdata", "story", "story.tv4z")
	f, err := coded.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Name() != path || f.Size() != int64(len(story.Container)) {
		t.Errorf("%s of %d bytes", f.Name(), f.Size())
	}
	if err := f.Model().Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel) // opening takes many
	if f, err := coded.Open(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("opening with a context that ended: %v, %v", f, err)
	}
	var out bytes.Buffer
	if err := coded.Write(&out, f.Model()); err != nil {
		t.Fatal(err)
	}
	if want, _ := os.ReadFile(path); !bytes.Equal(out.Bytes(), want) {
		t.Error("opening and writing changes bytes")
	}
}

// FuzzDecode: any bytes give an error or, by MD5, what was encoded.
func FuzzDecode(f *testing.F) {
	for _, p := range pairs(f) {
		if len(p.coded) < 30000 {
			f.Add(p.coded)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := coded.ReadHeader("x", bytes.NewReader(b))
		if err != nil || h.SourceSize > 1<<22 {
			return
		}
		got, err := decode(b, coded.DecodeOptions{Name: "x", Threads: 2, Size: int64(len(b)) * int64(len(b)&1)})
		if err != nil {
			return
		}
		if int64(len(got)) != h.SourceSize || md5.Sum(got) != h.MD5 {
			t.Fatal("no error and other bytes")
		}
		x, err := coded.ReadIndex(context.Background(), "x", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		x.Regions(context.Background())
	})
}

// FuzzEncode: what is taken for a container comes back, through both forms.
func FuzzEncode(f *testing.F) {
	f.Add(file(f, "worked.bin"))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := encode(b, coded.EncodeOptions{Name: "x", Threads: 2})
		if err != nil {
			return
		}
		back, err := decode(out, coded.DecodeOptions{Name: "x"})
		if err != nil || !bytes.Equal(back, b) {
			t.Fatalf("does not come back: %v", err)
		}
		var packed, unpacked bytes.Buffer
		if err := coded.Pack(context.Background(), "x", bytes.NewReader(b), int64(len(b)), &packed); err != nil {
			return
		}
		if err := coded.Unpack(context.Background(), "x", bytes.NewReader(packed.Bytes()), int64(packed.Len()), &unpacked); err != nil || !bytes.Equal(unpacked.Bytes(), b) {
			t.Fatalf("packed form does not come back: %v", err)
		}
	})
}
