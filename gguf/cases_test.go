package gguf_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"npack/gguf"
	"npack/testdata/cases"
)

// Reports of real users (testdata/cases): each file is refused with the words
// that it asks for, or gives the values that it holds.
func TestCases(t *testing.T) {
	dir := t.TempDir() // shards lie side by side
	n := 0
	for _, c := range cases.All() {
		if !strings.HasSuffix(c.File, ".gguf") {
			continue
		}
		b, err := cases.Files.ReadFile(c.File)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.File), b, 0o666); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n < 30 {
		t.Fatalf("%d cases", n)
	}
	for _, c := range cases.All() {
		if !strings.HasSuffix(c.File, ".gguf") {
			continue
		}
		t.Run(c.File, func(t *testing.T) {
			path := filepath.Join(dir, c.File)
			f, err := gguf.Open(path)
			if err != nil {
				refused(t, c, path, err)
				return
			}
			defer f.Close()
			if c.Verdict == "reject" {
				t.Fatal("accepted")
			}
			accepted(t, c, f)
		})
	}
}

func refused(t *testing.T, c cases.Case, path string, err error) {
	if c.Verdict == "accept" {
		t.Fatal(err)
	}
	var e *gguf.Error
	if !errors.As(err, &e) || e.File != path {
		t.Fatalf("%#v", err)
	}
	// Package pack knows web pages and pointers; here they are not GGUF.
	if c.Case == "A-12" {
		if !errors.Is(err, gguf.ErrNotGGUF) {
			t.Error(err)
		}
		return
	}
	if e.Hint == "" {
		t.Errorf("%v: no hint", err)
	}
	// Not in the path, which names the case.
	text := strings.ReplaceAll(err.Error(), dirOf(path), "")
	if e.Place != "" {
		text = strings.Replace(text, filepath.Base(path), "", 1)
	}
	for _, word := range c.MustMention {
		if !strings.Contains(text, word) {
			t.Errorf("%s does not mention %q", text, word)
		}
	}
}

func dirOf(path string) string { return filepath.Dir(path) + string(filepath.Separator) }

// accepted compares what expected.json says about values.
func accepted(t *testing.T, c cases.Case, f *gguf.File) {
	var want map[string]json.RawMessage
	if len(c.Expect) > 0 {
		if err := json.Unmarshal(c.Expect, &want); err != nil {
			t.Fatal(err)
		}
	}
	values := func(name string) []float32 {
		x := f.Tensor(name)
		if x == nil {
			x = f.Tensor(name + ".weight")
		}
		if x == nil {
			t.Fatalf("no tensor %q", name)
		}
		v := make([]float32, x.Rows()*x.Cols())
		if err := x.Type.Dequantize(v, x.Data); err != nil {
			t.Fatal(err)
		}
		return v
	}
	decode := func(key string, to any) {
		if err := json.Unmarshal(want[key], to); err != nil {
			t.Fatal(err)
		}
	}
	checked := 0
	for key := range want {
		switch key {
		case "a", "b", "c":
			var v []float32
			decode(key, &v)
			if got := values(key); !slices.Equal(got, v) {
				t.Errorf("%s is %v, want %v", key, got, v)
			}
		case "tensors":
			var n int
			decode(key, &n)
			if len(f.Tensors) != n {
				t.Errorf("%d tensors, want %d", len(f.Tensors), n)
			}
		case "fv5_row0_first8":
			// -2 to 2 mean -hi, -lo, 0, lo, hi.
			var codes []int
			var scales [][2]float32
			decode(key, &codes)
			decode("scales", &scales)
			got := values("blk.0.attn_q.weight")
			for i, c := range codes {
				if w := weight(c, scales[0][0], scales[0][1]); got[i] != w {
					t.Errorf("weight %d is %v, want %v", i, got[i], w)
				}
			}
			for r, s := range scales {
				lo, hi, _, _, _ := gguf.SplitFV5(f.Tensor("blk.0.attn_q.weight").Data[r*gguf.FV5Bytes:])
				if lo != s[0] || hi != s[1] {
					t.Errorf("row %d: scales %v and %v, want %v", r, lo, hi, s)
				}
			}
		case "fv5b_first4":
			var v []float32
			decode(key, &v)
			if got := values("token_embd.weight"); !slices.Equal(got[:4], v) {
				t.Errorf("%v, want %v", got[:4], v)
			}
		case "scales":
		default:
			t.Errorf("nothing checks %q", key)
		}
		checked++
	}
	if c.Verdict == "accept" && checked == 0 {
		t.Error("no value was checked")
	}
}

func weight(code int, lo, hi float32) float32 {
	return [...]float32{-hi, -lo, 0, lo, hi}[code+2]
}

// The vectors of A-03: exact dots of blocks with one weight at each edge.
func TestVectors(t *testing.T) {
	b, err := cases.Files.ReadFile("a03_fv5_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Vectors []struct {
			Name  string
			Cols  int
			SLo   float32 `json:"s_lo"`
			SHi   float32 `json:"s_hi"`
			Block string  `json:"block_hex"`
			Codes []int
			X     []float32
			Dot   float32 `json:"dot_exact"`
		}
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Vectors) < 10 {
		t.Fatalf("%d vectors", len(v.Vectors))
	}
	for _, x := range v.Vectors {
		raw := unhex(t, x.Block)
		got := make([]float32, x.Cols)
		if err := gguf.FV5.Dequantize(got, raw); err != nil {
			t.Fatal(err)
		}
		var dot float32
		for i, w := range got {
			if want := weight(x.Codes[i], x.SLo, x.SHi); w != want {
				t.Fatalf("%s: weight %d is %v, want %v", x.Name, i, w, want)
			}
			dot += w * x.X[i]
		}
		if dot != x.Dot {
			t.Errorf("%s: dot %v, want %v", x.Name, dot, x.Dot)
		}
		again := make([]byte, 0, len(raw))
		for ; len(raw) > 0; raw = raw[gguf.FV5Bytes:] {
			lo, hi, bp, bn, br := gguf.SplitFV5(raw)
			again = again[:len(again)+gguf.FV5Bytes]
			gguf.PutFV5(again[len(again)-gguf.FV5Bytes:], lo, hi, bp, bn, br)
		}
		if !slices.Equal(again, unhex(t, x.Block)) {
			t.Errorf("%s: other bytes", x.Name)
		}
	}
}
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
