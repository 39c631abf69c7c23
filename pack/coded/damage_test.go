package coded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"npack/internal/machine"
	"npack/pack"
	"npack/testdata/tv4z"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := tv4z.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// oneClearError says what is wrong with an error about damaged bytes.
func oneClearError(err error) string {
	var e *pack.Error
	switch {
	case !errors.As(err, &e):
		return "no pack.Error"
	case e.File != "test" || e.Place == "" || e.Offset < 0 || e.Hint == "":
		return "no file, place, offset or hint"
	case e.Kind != pack.ErrTruncated && e.Expected == "":
		return "nothing expected"
	case strings.Contains(err.Error(), "\n"):
		return "several lines"
	}
	return ""
}

// Damage of any one byte gives one clear error, or the right bytes where
// readers ignore it; never a wrong file.
func TestFlips(t *testing.T) {
	good, want := readFile(t, "worked.tv4z"), readFile(t, "worked.bin")
	step := 1
	if testing.Short() {
		step = 17
	}
	for i := 0; i < len(good); i += step {
		for j, flip := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(good)
			b[i] ^= flip
			for _, size := range []int64{0, int64(len(b))}[j&1 : j&1+1] {
				got, err := decodeBytes(b, DecodeOptions{Size: size, Threads: 1 + i%2})
				if err == nil {
					if !bytes.Equal(got, want) {
						t.Fatalf("byte %d: wrong bytes and no error", i)
					}
					if !(i >= 5 && i < 8 || i >= 36 && i < 40) {
						t.Errorf("byte %d flipped by %#x: no error", i, flip)
					}
					continue
				}
				if bad := oneClearError(err); bad != "" {
					t.Errorf("byte %d: %s: %v", i, bad, err)
				}
			}
		}
	}
}

func TestTruncations(t *testing.T) {
	good := readFile(t, "worked.tv4z")
	step := 1
	if testing.Short() {
		step = 17
	}
	for n := 0; n < len(good); n += step {
		for _, size := range []int64{0, int64(n)} {
			_, err := decodeBytes(good[:n], DecodeOptions{Size: size, Threads: 2})
			if !errors.Is(err, pack.ErrTruncated) {
				t.Fatalf("%d of %d bytes: %v", n, len(good), err)
			}
			if bad := oneClearError(err); bad != "" {
				t.Errorf("%d bytes: %s: %v", n, bad, err)
			}
		}
	}
}

// Every rule of a block that a flip cannot reach alone.
func TestRefused(t *testing.T) {
	u64 := func(b []byte, at int, v uint64) { binary.LittleEndian.PutUint64(b[at:], v) }
	tests := []struct {
		name string
		make func(f *forge) []byte
		kind error
		text string
	}{
		{"trailing byte", func(f *forge) []byte { f.raw([]byte("abc")); return append(f.file(), 0) }, pack.ErrCorrupt, "bytes follow"},
		{"version", func(f *forge) []byte { b := f.file(); b[4] = 2; return b }, pack.ErrUnsupported, "version is 2"},
		{"magic", func(f *forge) []byte { b := f.file(); b[0] = 'X'; return b }, pack.ErrNotModel, "XV4Z"},
		{"source_size", func(f *forge) []byte { b := f.file(); u64(b, 8, 1<<63); return b }, pack.ErrCorrupt, "source_size"},
		{"too few blocks", func(f *forge) []byte { f.raw([]byte("abc")); b := f.file(); u64(b, 8, 4); return b }, pack.ErrCorrupt, "add up to 3"},
		{"gap between blocks", func(f *forge) []byte {
			f.raw([]byte("abc"))
			f.raw([]byte("abc"))
			b := f.file()
			b[40+20+1] = 4
			return b
		}, pack.ErrCorrupt, "source_offset is 4"},
		{"method", func(f *forge) []byte { f.raw(nil); b := f.file(); b[40] = 3; return b }, pack.ErrCorrupt, "method is 3"},
		{"n past the source", func(f *forge) []byte { f.raw(nil); b := f.file(); u64(b, 49, math.MaxUint64); return b }, pack.ErrCorrupt, "at most the 0"},
		{"3n overflows", func(f *forge) []byte {
			f.planes([3][]byte{}, nil)
			b := f.file()
			u64(b, 8, 12)
			u64(b, 49, 1<<64/3+8)
			return b
		}, pack.ErrCorrupt, "three planes"},
		{"n no multiple of 4", func(f *forge) []byte {
			f.planes(randomPlanesSeed(8), nil)
			b := f.file()
			u64(b, 49, 6)
			return b
		}, pack.ErrCorrupt, "multiple of 4"},
		{"payload below 8", func(f *forge) []byte { f.bytes(nil, nil); b := f.file(); u64(b, 57, 7); return b }, pack.ErrCorrupt, "payload_size is 7"},
		{"payload of 2^64 - 1", func(f *forge) []byte { f.bytes(nil, nil); b := f.file(); u64(b, 57, math.MaxUint64); return b }, pack.ErrCorrupt, "payload_size"},
		{"frequencies", func(f *forge) []byte { f.bytes(nil, nil); b := f.file(); b[65]++; return b }, pack.ErrCorrupt, "add up to 16385"},
		{"state too small", func(f *forge) []byte { f.bytes([]byte("ab"), nil); b := f.file(); b[40+537+3] = 0; return b }, pack.ErrCorrupt, "state 0 starts"},
		{"state too large", func(f *forge) []byte { f.bytes([]byte("ab"), nil); b := f.file(); b[40+537+7] |= 0x80; return b }, pack.ErrCorrupt, "state 1 starts"},
		{"payload left over", func(f *forge) []byte {
			f.bytes([]byte("abc"), nil)
			b := append(f.file(), 0)
			u64(b, 57, uint64(len(b)-40-537))
			return b
		}, pack.ErrCorrupt, "1 bytes of the payload are left over"},
		{"payload too short", func(f *forge) []byte {
			f.bytes(bytes.Repeat([]byte("abcdefgh"), 50), nil)
			b := f.file()
			b = b[:len(b)-1]
			u64(b, 57, uint64(len(b)-40-537))
			return b
		}, pack.ErrCorrupt, "ends before the last symbol"},
		{"end state", func(f *forge) []byte { f.bytes(nil, nil); b := f.file(); b[40+537]++; return b }, pack.ErrCorrupt, "state 0 ends"},
		{"weights past the end", func(f *forge) []byte {
			// 4 bytes a plane are 32 weights: the 11th symbol has one too many.
			f.head(T5Q, 4)
			symbols := make([]byte, 11)
			symbols[10] = 25
			f.payload(symbols, tableOf(symbols, 125))
			f.source = make([]byte, 12)
			return f.file()
		}, pack.ErrCorrupt, "weights past the end"},
		{"md5", func(f *forge) []byte { f.raw([]byte("abc")); b := f.file(); b[16]++; return b }, pack.ErrCorrupt, "md5 is"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f forge
			b := tt.make(&f)
			for _, o := range []DecodeOptions{{}, {Size: int64(len(b))}, {Memory: 1}} {
				_, err := decodeBytes(b, o)
				if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%v, want %v that mentions %q", err, tt.kind, tt.text)
				} else if bad := oneClearError(err); bad != "" {
					t.Errorf("%s: %v", bad, err)
				}
			}
		})
	}
}

func randomPlanesSeed(n int) (p [3][]byte) {
	for i := range p {
		p[i] = make([]byte, n)
	}
	p[0][0] = 7
	return p
}

// Heads that claim much take no memory for it.
func TestHostileMemory(t *testing.T) {
	const huge = 1 << 50
	hostile := func(m Method, n, payload uint64) []byte {
		h := Header{SourceSize: 3 * huge, Blocks: 1}
		b := append(h.bytes(), byte(m))
		b = binary.LittleEndian.AppendUint64(b, 0)
		b = binary.LittleEndian.AppendUint64(b, n)
		if m == Raw {
			return b
		}
		b = binary.LittleEndian.AppendUint64(b, payload)
		for _, f := range flat(m.alphabet()) {
			b = binary.LittleEndian.AppendUint16(b, f)
		}
		return append(b, bytes.Repeat([]byte{0, 0, 128, 0}, 3)...)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		kind error
	}{
		{"raw", hostile(Raw, huge, 0), pack.ErrTruncated},
		{"byte", hostile(Byte, huge, huge), pack.ErrTruncated},
		{"byte, short payload", hostile(Byte, huge, 12), pack.ErrCorrupt},
		{"t5q", hostile(T5Q, huge, huge), pack.ErrUnsupported},
		{"t5q of a size that is taken", hostile(T5Q, 300<<20, 12), pack.ErrCorrupt},
		{"t5q, all of it promised", hostile(T5Q, 300<<20, 300<<20), pack.ErrTruncated},
		{"t5q that fits", hostile(T5Q, 20<<20, 12), pack.ErrCorrupt},
	} {
		for _, size := range []int64{0, int64(len(tt.b))} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := decodeBytes(tt.b, DecodeOptions{Size: size, Threads: 2})
			runtime.ReadMemStats(&after)
			kind := tt.kind
			if size > 0 && kind == pack.ErrUnsupported {
				kind = pack.ErrTruncated // the file's end is known first
			}
			if !errors.Is(err, kind) {
				t.Errorf("%s: %v, want %v", tt.name, err, kind)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
				t.Errorf("%s: %d bytes allocated", tt.name, used)
			}
		}
	}
}

// Readers that give little at a time or fail.
func TestReaders(t *testing.T) {
	b, want := readFile(t, "a3-untied.tv4z"), readFile(t, "a3-untied.bin")
	run := func(r io.Reader) ([]byte, error) {
		h, err := ReadHeader("test", r)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = Decode(context.Background(), h, r, &out, DecodeOptions{Name: "test", Threads: 2})
		return out.Bytes(), err
	}
	for name, r := range map[string]io.Reader{
		"half":          iotest.HalfReader(bytes.NewReader(b)),
		"one byte":      iotest.OneByteReader(bytes.NewReader(b)),
		"data with EOF": iotest.DataErrReader(bytes.NewReader(b)),
	} {
		if got, err := run(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("cable pulled")
	for _, n := range []int{0, 20, 50, 1000, len(b) - 1, len(b)} {
		_, err := run(io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) || errors.Is(err, pack.ErrCorrupt) || errors.Is(err, pack.ErrTruncated) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// Errors of the writer and of the check end the run as they are.
func TestWriterFails(t *testing.T) {
	b := readFile(t, "a3-untied.tv4z")
	full := errors.New("disk full")
	for name, o := range map[string]DecodeOptions{"writer": {}, "check": {Check: &limited{n: 5000, err: full}}} {
		r := bytes.NewReader(b)
		h, _ := ReadHeader("test", r)
		var w io.Writer = &limited{n: 5000, err: full}
		if name == "check" {
			w = nil
		}
		if err := Decode(context.Background(), h, r, w, o); err != full {
			t.Errorf("%s: %v", name, err)
		}
	}
	src := readFile(t, "a3-untied.bin")
	if err := Encode(context.Background(), bytes.NewReader(src), int64(len(src)), &limited{n: 5000, err: full}, EncodeOptions{}); err != full {
		t.Errorf("encode: %v", err)
	}
}

type limited struct {
	n   int
	err error
}

func (l *limited) Write(b []byte) (int, error) {
	if l.n -= len(b); l.n < 0 {
		return 0, l.err
	}
	return len(b), nil
}

// A run ends when its context does, even in the middle of a Read.
func TestCancel(t *testing.T) {
	b := readFile(t, "a3-untied.tv4z")
	ctx, cancel := context.WithCancel(context.Background())
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	go pw.Write(b[:len(b)/2]) // and no more
	h, err := ReadHeader("test", pr)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := Decode(ctx, h, pr, io.Discard, DecodeOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("decode: %v", err)
	}
	src := readFile(t, "a3-untied.bin")
	if err := Encode(ctx, bytes.NewReader(src), int64(len(src)), io.Discard, EncodeOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("encode: %v", err)
	}
	if err := Pack(ctx, "test", bytes.NewReader(src), int64(len(src)), io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("pack: %v", err)
	}
}

// The readers of files refuse what a stream's reader does, and sizes that
// cannot be.
func TestFilesRefused(t *testing.T) {
	good := readFile(t, "worked.tv4z")
	index := func(b []byte) error {
		_, err := ReadIndex(context.Background(), "test", bytes.NewReader(b), int64(len(b)))
		return err
	}
	for n := range good {
		if err := index(good[:n]); !errors.Is(err, pack.ErrTruncated) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if err := index(append(bytes.Clone(good), 0)); !errors.Is(err, pack.ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
	many := Header{Blocks: maxIndex + 1}
	if err := index(many.bytes()); !errors.Is(err, pack.ErrUnsupported) {
		t.Errorf("many blocks: %v", err)
	}
	open := func(b []byte) error {
		path := filepath.Join(t.TempDir(), "x.tv4z")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), path)
		return err
	}
	// One symbol, so that a payload of 8 bytes stands for any size.
	f := forge{}
	f.bytes(nil, nil)
	b := f.file()
	binary.LittleEndian.PutUint64(b[8:], 1<<50)
	binary.LittleEndian.PutUint64(b[40+9:], 1<<50)
	if machine.ReadMemory().Available == 0 {
		t.Log("SKIP: this system does not say how much memory is free")
	} else if err := open(b); !errors.Is(err, pack.ErrNoSpace) {
		t.Errorf("2^50 bytes: %v", err)
	}
	f = forge{}
	f.raw([]byte("no container, but a good transport"))
	var e *pack.Error
	if err := open(f.file()); !errors.As(err, &e) || e.Kind != pack.ErrNotModel || !strings.HasPrefix(e.Place, "decoded container") {
		t.Errorf("no container: %v", err)
	}
	b = bytes.Clone(good)
	b[len(b)-1]++
	if err := open(b); !errors.Is(err, pack.ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
}
