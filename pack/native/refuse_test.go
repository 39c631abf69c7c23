package native_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"npack/pack"
	"npack/pack/native"
	"npack/ternary/ternarytest"
	"npack/testdata/cases"
	"npack/testdata/tv4z"
)

// The container cases of testdata/cases, and those that are told apart by their
// first bytes.
func TestCases(t *testing.T) {
	n := 0
	for _, c := range cases.All() {
		sniffed := c.File == "a07_empty.gguf" || c.File == "a07_magic_only.gguf" || strings.HasPrefix(c.File, "a12_")
		if !strings.HasSuffix(c.File, ".bin") && !sniffed {
			continue
		}
		n++
		t.Run(c.File, func(t *testing.T) {
			b, err := cases.Files.ReadFile(c.File)
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != c.SHA256 {
				t.Fatal("not the file of expected.json")
			}
			if c.Verdict != "reject" {
				t.Fatalf("verdict %q has no test", c.Verdict)
			}
			path := filepath.Join(t.TempDir(), c.File)
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, errFile := native.Open(path)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
				t.Errorf("%d bytes were allocated", got)
			}
			_, errBytes := native.OpenBytes(path, b)
			if errFile == nil || errBytes == nil || errFile.Error() != errBytes.Error() {
				t.Fatalf("file: %v\nbytes: %v", errFile, errBytes)
			}
			var e *pack.Error
			if !errors.As(errFile, &e) || e.File != path || e.Hint == "" {
				t.Fatalf("%#v", errFile)
			}
			text := errFile.Error() + "\n" + e.Hint
			if strings.Contains(errFile.Error(), "\n") {
				t.Errorf("more than a line: %q", errFile)
			}
			for _, word := range c.MustMention {
				if !strings.Contains(text, word) {
					t.Errorf("%q does not mention %q", text, word)
				}
			}
		})
	}
	if n != 6 {
		t.Errorf("%d cases, want 6", n)
	}
}

// Each field of the header and of a record's head: refused with its own offset.
func TestFieldErrors(t *testing.T) {
	good := write(t, ternarytest.Model(ternarytest.All()[0].Spec)) // tied, hidden 64, 64 query columns
	f, err := native.OpenBytes("m", good)
	if err != nil {
		t.Fatal(err)
	}
	record := map[string]int{}
	for _, r := range f.Records() {
		record[r.Name] = int(r.Offset)
	}
	q, table := record["blk.0.attn_q"], record["token_embd"]
	tests := []struct {
		off     int
		value   uint32
		kind    error
		mention string
	}{
		{4, 5, pack.ErrUnsupported, "header: byte 4: version is 5, expected 4"},
		{4, 0xffffffff, pack.ErrUnsupported, "version is -1"},
		{8, 4, pack.ErrCorrupt, "header: byte 8: arch is 4"},
		{12, 0, pack.ErrCorrupt, "header: byte 12: n_layers is 0"},
		{12, 0x7fffffff, pack.ErrCorrupt, "n_layers is 2147483647"},
		{12, 3, pack.ErrCorrupt, "tensor"}, // the third layer is not there
		{12, 4096, pack.ErrCorrupt, "tensor"},
		{16, 0x80000000, pack.ErrCorrupt, "header: byte 16: hidden is -2147483648"},
		{20, 1 << 20, pack.ErrCorrupt, "n_heads * head_dim is 16777216"},
		{24, 0, pack.ErrCorrupt, "byte 24: n_kv_heads"},
		{28, 0, pack.ErrCorrupt, "byte 28: head_dim"},
		{32, 0, pack.ErrCorrupt, "byte 32: rotary_dims"},
		{36, 0, pack.ErrCorrupt, "byte 36: intermediate"},
		{40, 1<<24 + 1, pack.ErrCorrupt, "byte 40: vocab is 16777217, expected 1 to 16777216"},
		{44, 0, pack.ErrCorrupt, "byte 44: max_position"},
		{48, 0x7fc00000, pack.ErrCorrupt, "byte 48: rms_norm_eps is NaN"},
		{52, 0, pack.ErrCorrupt, "byte 52: rope_theta is 0"},
		{56, 3, pack.ErrCorrupt, "byte 56: eok is 3"},
		{q, 65, pack.ErrCorrupt, fmt.Sprintf(`tensor "blk.0.attn_q": byte %d: rows is 65, expected 64`, q)},
		{q + 4, 63, pack.ErrCorrupt, fmt.Sprintf("byte %d: cols is 63", q+4)},
		{q + 8, 63, pack.ErrCorrupt, fmt.Sprintf("byte %d: cols_pad is 63, expected at least cols, 64", q+8)},
		{q + 8, 513, pack.ErrCorrupt, fmt.Sprintf("byte %d: row_stride is 64 bytes, expected at least 65", q+12)},
		{q + 12, 0x7fffffff, pack.ErrTruncated, fmt.Sprintf("byte %d: truncated: the record needs 412316861268 bytes", q)},
		{q + 12, 0xffffffff, pack.ErrCorrupt, "row_stride is -1 bytes"},
		{table, 97, pack.ErrCorrupt, fmt.Sprintf(`tensor "token_embd": byte %d: rows is 97`, table)},
		{table + 12, 65, pack.ErrCorrupt, fmt.Sprintf("byte %d: row_stride is 65, expected cols_pad, 64", table+12)},
	}
	for _, tt := range tests {
		bad := bytes.Clone(good)
		binary.LittleEndian.PutUint32(bad[tt.off:], tt.value)
		_, err := native.OpenBytes("m.bin", bad)
		if !errors.Is(err, tt.kind) || !strings.HasPrefix(err.Error(), `"m.bin": `) || !strings.Contains(err.Error(), tt.mention) {
			t.Errorf("byte %d = %d: %v, want %v that mentions %q", tt.off, int32(tt.value), err, tt.kind, tt.mention)
		}
	}
}

func TestTruncated(t *testing.T) {
	b, _ := tv4z.Files.ReadFile("worked.bin")
	for n := range b {
		_, err := native.OpenBytes("worked.bin", b[:n])
		if !errors.Is(err, pack.ErrTruncated) {
			t.Fatalf("%d of %d bytes: %v, want ErrTruncated", n, len(b), err)
		}
	}
	_, err := native.OpenBytes("worked.bin", append(bytes.Clone(b), 0))
	if !errors.Is(err, pack.ErrCorrupt) || !strings.Contains(err.Error(), "1 bytes follow") {
		t.Errorf("a byte more: %v", err)
	}
}

// Any changed byte: an error or a model that writes the same bytes again.
func TestFlippedBytes(t *testing.T) {
	b, _ := tv4z.Files.ReadFile("worked.bin")
	for i := range b {
		for _, v := range []byte{b[i] ^ 1, ^b[i]} {
			bad := bytes.Clone(b)
			bad[i] = v
			check(t, bad)
		}
	}
}

// check is what must hold for any bytes at all.
func check(t *testing.T, b []byte) {
	f, err := native.OpenBytes("fuzz", b)
	if err != nil {
		var e *pack.Error
		if !errors.As(err, &e) || e.Hint == "" {
			t.Fatalf("no *pack.Error with a hint: %v", err)
		}
		return
	}
	if err := f.Model().CheckShapes(); err != nil {
		t.Fatalf("opened, but: %v", err)
	}
	if err := f.Model().Validate(); err != nil {
		var e *pack.Error
		if !errors.As(f.Place(err), &e) || e.Offset < headerSize || e.Offset >= f.Size() {
			t.Fatalf("%v is placed at %v", err, f.Place(err))
		}
	}
	if !bytes.Equal(write(t, f.Model()), b) {
		t.Fatal("reading and writing changes bytes")
	}
}

const headerSize = 60

func FuzzOpen(f *testing.F) {
	for name, b := range containers(f) {
		if !strings.HasPrefix(name, "story") {
			f.Add(b)
		}
	}
	for _, c := range cases.All() {
		if b, _ := cases.Files.ReadFile(c.File); len(b) > 0 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { check(t, b) })
}
