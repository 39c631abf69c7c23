package native_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"npack/pack"
	"npack/pack/native"
	"npack/ternary"
	"npack/ternary/ternarytest"
	"npack/testdata/story"
	"npack/testdata/storydraft"
	"npack/testdata/tv4z"
)

// containers returns all containers of the test data that open.
func containers(t testing.TB) map[string][]byte {
	all := map[string][]byte{"story.bin": story.Container, "story-draft.bin": storydraft.Container}
	names, err := fs.Glob(tv4z.Files, "*.bin")
	if err != nil || len(names) < 12 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		b, err := tv4z.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = b
	}
	return all
}

func write(t testing.TB, m *ternary.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := native.Write(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	for name, want := range containers(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, want, 0o666); err != nil {
				t.Fatal(err)
			}
			f, err := native.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(write(t, f.Model())); sum != sha256.Sum256(want) {
				t.Error("reading and writing changes bytes")
			}
			if got := native.ModelSize(f.Model()); got != f.Size() || f.Size() != int64(len(want)) {
				t.Errorf("%d bytes, ModelSize says %d and Size %d", len(want), got, f.Size())
			}
			// The records tile the file.
			var off int64
			for _, r := range f.Records() {
				if r.Offset != off || r.Size <= 0 {
					t.Errorf("%s: at %d with %d bytes, want it at %d", r.Name, r.Offset, r.Size, off)
				}
				off += r.Size
			}
			if off != f.Size() {
				t.Errorf("records end at %d, the file at %d", off, f.Size())
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
	}
}

// Files that keep every rule but are not as npack writes them.
func TestRoundTripOdd(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[4].Spec)
	w := &m.Layers[0].Q
	w.BiasFlag = -3
	w.RSLo[0], w.RSHi[1] = 0x7fffffff, -0x80000000
	m.Head.WSum[2] = 12345
	m.Layers[1].V.Bias, m.Layers[1].V.BiasFlag = nil, 0
	m.Layers[0].K.ColsPad = 500 // in a stride of 64
	want := write(t, m)
	f, err := native.OpenBytes("odd", want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(write(t, f.Model()), want) {
		t.Error("reading and writing changes bytes")
	}
	s, err := f.Model().Survey(t.Context(), ternary.WalkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.SumMismatches != 3 {
		t.Errorf("%d mismatches, want 3", s.SumMismatches)
	}
}

// What is written must not depend on whether numbers were views or copies: the
// same file at all four alignments.
func TestAlignment(t *testing.T) {
	want, _ := tv4z.Files.ReadFile("a1-bias-untied.bin")
	for shift := range 4 {
		buf := make([]byte, len(want)+4)
		b := buf[shift : shift+len(want)]
		copy(b, want)
		f, err := native.OpenBytes("shifted", b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(write(t, f.Model()), want) {
			t.Errorf("shift %d changes bytes", shift)
		}
		at := uintptr(unsafe.Pointer(&f.Model().FinalNorm[0])) - uintptr(unsafe.Pointer(&buf[0]))
		if view := at < uintptr(len(buf)); view != (uintptr(unsafe.Pointer(&b[0]))%4 == 0) && littleEndian() {
			t.Errorf("shift %d: numbers are a view: %t", shift, view)
		}
	}
}

func littleEndian() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 1
}

func TestBadPlanes(t *testing.T) {
	for name, bad := range tv4z.Bad {
		b, err := tv4z.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := native.OpenBytes(name, b)
		if err != nil {
			t.Fatal(err)
		}
		err = f.Model().Validate()
		var e *ternary.Error
		if !errors.As(err, &e) {
			t.Fatalf("%s: %v", name, err)
		}
		got := bad
		got.Tensor, got.Part, got.Row, got.Col = e.Tensor, e.Part, e.Row, e.Col
		var p *pack.Error
		if !errors.As(f.Place(err), &p) || !errors.Is(p, pack.ErrCorrupt) || p.Hint == "" {
			t.Fatalf("%s: Place gives %v", name, f.Place(err))
		}
		got.Offset = p.Offset
		if d := cmp.Diff(bad, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
		// The offset is that of the bad byte: the bit is set there.
		if b[p.Offset]>>(bad.Col%8)&1 != 1 {
			t.Errorf("%s: byte %d is %#02x", name, p.Offset, b[p.Offset])
		}
	}
	for name, b := range containers(t) {
		if _, bad := tv4z.Bad[name]; bad {
			continue
		}
		f, err := native.OpenBytes(name, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Model().Validate(); err != nil {
			t.Errorf("%s: %v", name, f.Place(err))
		}
	}
}

// Each part of each record: its offset must be where a change of it shows.
func TestPlaceOffsets(t *testing.T) {
	b := write(t, ternarytest.Model(ternarytest.All()[5].Spec))
	f, err := native.OpenBytes("m", b)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Records() {
		parts := map[native.Kind][]string{
			native.KindVector: {"norm"},
			native.KindInt8:   {"scale"},
			native.KindTrit:   {"s_lo", "s_hi", "bias"},
		}[r.Kind]
		for _, part := range parts {
			off, ok := r.PartOffset(part)
			if !ok {
				if part == "bias" && r.BiasFlag == 0 {
					continue
				}
				t.Fatalf("%s: no offset of %s", r.Name, part)
			}
			row := r.Rows - 1
			at := int(off) + 4*row
			broken := bytes.Clone(b)
			copy(broken[at:], []byte{0, 0, 0xc0, 0x7f}) // NaN
			g, err := native.OpenBytes("m", broken)
			if err != nil {
				t.Fatal(err)
			}
			var e *ternary.Error
			var p *pack.Error
			err = g.Model().Validate()
			if !errors.As(err, &e) || !errors.As(g.Place(err), &p) {
				t.Fatalf("%s %s: %v", r.Name, part, err)
			}
			if e.Tensor != r.Name || e.Part != part || e.Row != row || p.Offset != int64(at) {
				t.Errorf("%s %s row %d at %d: %v", r.Name, part, row, at, p)
			}
		}
	}
}

func TestPublishedSizes(t *testing.T) {
	for name, tt := range map[string]struct {
		c    ternary.Config
		want int64
	}{
		"8B":   {ternarytest.Qwen8B(), 3_875_404_812},
		"0.6B": {ternarytest.Qwen06B(), 327_719_836},
	} {
		if got := native.Size(&tt.c); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", name, got, tt.want)
		}
	}
}

func TestPacked(t *testing.T) {
	for _, name := range []string{"worked.t5q", "a3-tied.t5q"} {
		b, err := tv4z.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = native.OpenBytes(name, b)
		if !errors.Is(err, pack.ErrUnsupported) || !strings.Contains(err.Error(), "t5q") {
			t.Errorf("%v, want ErrUnsupported about t5q", err)
		}
		if _, err = native.OpenBytes(name, b[:len(b)-1]); errors.Is(err, pack.ErrUnsupported) {
			t.Errorf("cut by one byte it is no t5q file: %v", err)
		}
	}
}

func TestOpenRefusesOthers(t *testing.T) {
	if _, err := native.Open(t.TempDir()); !errors.Is(err, pack.ErrNotModel) {
		t.Errorf("directory: %v", err)
	}
	if _, err := native.Open("no such file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := native.OpenBytes("x.tv4z", append([]byte("TV4Z\x01"), make([]byte, 60)...)); !errors.Is(err, pack.ErrUnsupported) {
		t.Errorf("tv4z: %v", err)
	}
}

// Release must change nothing but where pages are.
func TestRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.bin")
	if err := os.WriteFile(path, story.Container, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := native.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := f.Model()
	if m.Release == nil {
		t.Skip("SKIP: pages of a map are not released on " + runtime.GOOS)
	}
	m.Release([]byte{1, 2, 3}) // not of the map: nothing happens
	m.Release(nil)
	for range 2 {
		if !bytes.Equal(write(t, m), story.Container) { // releases as it goes
			t.Fatal("released pages come back changed")
		}
	}
}

// A file that is cut short while it is mapped must give an error, not end the
// program.
func TestCutWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIP: windows does not let a mapped file be cut")
	}
	if comm, _ := os.ReadFile("/proc/self/comm"); bytes.HasPrefix(comm, []byte("qemu")) {
		t.Skip("SKIP: qemu does not tell the address of a bus error, so Go takes it for a nil pointer")
	}
	path := filepath.Join(t.TempDir(), "s.bin")
	if err := os.WriteFile(path, story.Container, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := native.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	_, err = f.Model().Survey(context.Background(), ternary.WalkOptions{})
	if !errors.Is(err, ternary.ErrFault) || !errors.Is(f.Place(err), pack.ErrTruncated) {
		t.Errorf("got %v", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	m := ternarytest.Model(ternarytest.All()[0].Spec)
	m.Layers[1].Up.Stride++
	var b bytes.Buffer
	if err := native.Write(&b, m); !errors.Is(err, ternary.ErrInvalid) || b.Len() != 0 {
		t.Errorf("%v after %d bytes", err, b.Len())
	}
}
