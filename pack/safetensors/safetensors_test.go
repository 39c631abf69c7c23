package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"npack/internal/hexdoc"
	"npack/internal/outfile"
	"npack/pack"
	"npack/pack/safetensors"
	"npack/testdata/cases"
)

// file makes a file of a header's text and data.
func file(text string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(b, text...), data...)
}

func open(b []byte) (*safetensors.File, error) {
	return safetensors.New("x", bytes.NewReader(b), int64(len(b)))
}

func read(t testing.TB, x *safetensors.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Size)
	if _, err := x.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// The example of FORMAT.md is what the reader finds and the writer writes.
func TestFormatExample(t *testing.T) {
	_, lines, b, err := hexdoc.Example("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[int64]string{}
	for _, l := range lines {
		comments[l.Offset] = l.Comment
	}
	for i := range f.Tensors {
		x := &f.Tensors[i]
		v, err := x.Floats()
		if err != nil {
			t.Fatal(err)
		}
		if want := x.Name + " = " + strings.Trim(fmt.Sprint(v), "[]"); comments[x.FileAt()] != want {
			t.Errorf("byte %04x: the example says %q, the reader finds %q", x.FileAt(), comments[x.FileAt()], want)
		}
	}
	if got := rewrite(t, f); !bytes.Equal(got, b) {
		t.Errorf("written again it is\n%s, want\n%s", hex.Dump(got), hex.Dump(b))
	}
	if want := []safetensors.KV{{Key: "format", Value: "pt"}}; !cmp.Equal(f.Metadata, want) {
		t.Errorf("metadata %v", f.Metadata)
	}
}

// rewrite writes what f holds, tensors in the order of their data.
func rewrite(t testing.TB, f *safetensors.File) []byte {
	t.Helper()
	h := safetensors.Header{Metadata: f.Metadata, Tensors: slices.Clone(f.Tensors)}
	slices.SortStableFunc(h.Tensors, func(a, b safetensors.Tensor) int { return int(a.Offset - b.Offset) })
	from := slices.Clone(h.Tensors)
	var b bytes.Buffer
	w, err := safetensors.NewWriter(&b, &h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range from {
		if _, err := w.Write(read(t, &from[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Reports of real users (testdata/cases).
func TestCases(t *testing.T) {
	dir, n := t.TempDir(), 0
	for _, c := range cases.All() {
		if !strings.HasSuffix(c.File, safetensors.Extension) {
			continue
		}
		n++
		b, err := cases.Files.ReadFile(c.File)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, c.File)
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Open(path)
		// What is in these two is for the importer to judge.
		if c.File == "a23_packed_u8.safetensors" || c.File == "a23_not_ternary.safetensors" {
			if err != nil || f.Tensor(c.MustMention[0]) == nil && f.Tensor("model.layers.0.mlp.down_proj.weight") == nil {
				t.Errorf("%s: %v", c.File, err)
				continue
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		var e *pack.Error
		if !errors.As(err, &e) || e.File != path || e.Hint == "" {
			t.Errorf("%s: %v", c.File, err)
			continue
		}
		for _, word := range c.MustMention {
			if !strings.Contains(e.Place+e.Found, word) {
				t.Errorf("%v does not mention %q", err, word)
			}
		}
	}
	if n != 5 {
		t.Errorf("%d cases", n)
	}
}

func TestOrderAndTypes(t *testing.T) {
	// Header order is not data order, metadata is in the middle, text is odd.
	b := file(` {"z":{"shape":[2],"data_offsets":[4,8],"dtype":"F16"}, "__metadata__":{"q":"é\"<","a":""},`+
		"\n"+`"a\u0020b":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},"e":{"dtype":"I64","shape":[3,0],"data_offsets":[8,8]},`+
		`"f":{"dtype":"F4","shape":[4],"data_offsets":[8,10]}}  `, 1, 2, 3, 4, 0, 0x3c, 0, 0xc0, 9, 9)
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range f.Tensors {
		names = append(names, x.Name)
	}
	if want := []string{"z", "a b", "e", "f"}; !slices.Equal(names, want) {
		t.Errorf("names %q", names)
	}
	if want := []safetensors.KV{{"q", `é"<`}, {"a", ""}}; !slices.Equal(f.Metadata, want) {
		t.Errorf("metadata %q", f.Metadata)
	}
	z, u := f.Tensor("z"), f.Tensor("a b")
	if v, err := z.Floats(); err != nil || !slices.Equal(v, []float32{1, -2}) || z.Rows() != 1 || z.Cols() != 2 {
		t.Errorf("z is %v of %dx%d, %v", v, z.Rows(), z.Cols(), err)
	}
	if _, err := u.Floats(); !errors.Is(err, pack.ErrUnsupported) {
		t.Errorf("U8 as float: %v", err)
	}
	two := make([]byte, 9)
	if n, err := u.ReadAt(two, 2); n != 2 || err != io.EOF || two[0] != 3 || two[1] != 4 {
		t.Errorf("%d bytes, %v: %v", n, err, two)
	}
	if n, err := u.ReadAt(two[:2], 2); n != 2 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := u.ReadAt(two, 5); err == nil {
		t.Error("read behind the end")
	}
	g, err := open(rewrite(t, f))
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Tensors {
		x := &f.Tensors[i]
		if y := g.Tensor(x.Name); y == nil || y.DType != x.DType || !slices.Equal(x.Shape, y.Shape) || !bytes.Equal(read(t, x), read(t, y)) {
			t.Errorf("%q became something else", x.Name)
		}
	}
}

func TestRefused(t *testing.T) {
	one := func(entry string) string { return `{"t":` + entry + `}` }
	f32 := func(shape, offsets string) string {
		return one(`{"dtype":"F32","shape":` + shape + `,"data_offsets":` + offsets + `}`)
	}
	tests := []struct {
		name string
		b    []byte
		kind error
		text string
	}{
		{"no bytes", nil, pack.ErrTruncated, "header"},
		{"seven bytes", file("")[:7], pack.ErrTruncated, "7 bytes"},
		{"no JSON", file(""), pack.ErrCorrupt, "not complete"},
		{"header behind the end", file("{}")[:9], pack.ErrTruncated, "2 bytes, 1 are there"},
		{"header of 2^64-1", bytes.Repeat([]byte{255}, 99), pack.ErrCorrupt, "18446744073709551615"},
		{"an array", file("[]"), pack.ErrCorrupt, "an object"},
		{"not complete", file(`{"a":{`), pack.ErrCorrupt, "not complete"},
		{"no JSON at all", file(`{a}`), pack.ErrCorrupt, "invalid character"},
		{"behind the object", file(`{}{}`), pack.ErrCorrupt, "behind the object"},
		{"not UTF-8", file("{\"\xff\":1}"), pack.ErrCorrupt, "UTF-8"},
		{"a number as tensor", file(`{"t":1}`), pack.ErrCorrupt, `"t"`},
		{"deep", file(strings.Repeat(`{"a":`, 1<<16)), pack.ErrUnsupported, `field "a"`},
		{"long name", file(`{"` + strings.Repeat("n", 5000) + `":{}}`), pack.ErrUnsupported, "5000 bytes"},
		{"twice", file(`{"t":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}`, 1, 2), pack.ErrCorrupt, "twice"},
		{"field twice", file(one(`{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}`), 1), pack.ErrCorrupt, `"dtype" is there twice`},
		{"field missing", file(one(`{"dtype":"U8","data_offsets":[0,1]}`), 1), pack.ErrCorrupt, "missing"},
		{"offsets missing", file(one(`{"dtype":"U8","shape":[1]}`), 1), pack.ErrCorrupt, "0 data_offsets"},
		{"three offsets", file(one(`{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}`), 1), pack.ErrUnsupported, "more than 2"},
		{"unknown field", file(one(`{"dtype":"U8","shape":[1],"stride":[1],"data_offsets":[0,1]}`), 1), pack.ErrUnsupported, "stride"},
		{"unknown type", file(one(`{"dtype":"Q4","shape":[1],"data_offsets":[0,1]}`), 1), pack.ErrUnsupported, `"Q4"`},
		{"a fraction", file(f32("[1.5]", "[0,4]"), 1, 2, 3, 4), pack.ErrCorrupt, "1.5"},
		{"an exponent", file(f32("[1e0]", "[0,4]"), 1, 2, 3, 4), pack.ErrCorrupt, "1e0"},
		{"2^63", file(f32("[9223372036854775808]", "[0,4]"), 1, 2, 3, 4), pack.ErrCorrupt, "9223372036854775808"},
		{"a string as size", file(f32(`["1"]`, "[0,4]"), 1, 2, 3, 4), pack.ErrCorrupt, `"1"`},
		{"many dimensions", file(f32("["+strings.Repeat("1,", 16)+"1]", "[0,4]"), 1, 2, 3, 4), pack.ErrUnsupported, "16 integers"},
		{"product wraps", file(f32("[4294967296,4294967296]", "[0,0]")), pack.ErrCorrupt, "2^63"},
		{"bytes wrap", file(f32("[4611686018427387904]", "[0,0]")), pack.ErrCorrupt, "2^63"},
		{"half a byte", file(one(`{"dtype":"F4","shape":[3],"data_offsets":[0,1]}`), 1), pack.ErrCorrupt, "whole bytes"},
		{"offsets disagree", file(f32("[2]", "[0,4]"), 1, 2, 3, 4), pack.ErrCorrupt, "expected 8"},
		{"backwards", file(f32("[1]", "[4,0]"), 1, 2, 3, 4), pack.ErrCorrupt, "-4 bytes"},
		{"past the end", file(f32("[2]", "[0,8]"), 1, 2, 3, 4), pack.ErrTruncated, "needs 8 bytes, 4 are there"},
		{"a hole", file(f32("[1]", "[4,8]"), 1, 2, 3, 4, 5, 6, 7, 8), pack.ErrCorrupt, "hole"},
		{"left over", file(f32("[1]", "[0,4]"), 1, 2, 3, 4, 5), pack.ErrCorrupt, "1 bytes are left"},
		{"overlap", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 1, 2, 3), pack.ErrCorrupt, `"b"`},
		{"same place", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1, 2), pack.ErrCorrupt, "inside another"},
		{"metadata of numbers", file(`{"__metadata__":{"a":1}}`), pack.ErrCorrupt, "a string"},
		{"metadata twice", file(`{"__metadata__":{"a":"","a":""}}`), pack.ErrCorrupt, `key "a"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := open(tt.b)
			runtime.ReadMemStats(&after)
			var e *pack.Error
			if !errors.As(err, &e) || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) || e.Hint == "" || e.File != "x" {
				t.Errorf("%v, want %v that mentions %q", err, tt.kind, tt.text)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20+uint64(8*len(tt.b)) {
				t.Errorf("%d bytes allocated for %d of file", n, len(tt.b))
			}
		})
	}
}

// Sets: an index, names that count, a directory; what is missing or elsewhere.
func TestSets(t *testing.T) {
	entry := func(name string, v byte) []byte {
		return file(`{"__metadata__":{"n":"`+name+`"},"`+name+`":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, v)
	}
	const one, two, idx = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"
	good := map[string]string{one: string(entry("a", 1)), two: string(entry("b", 2)), idx: `{"metadata":{"total_size":2},"weight_map":{"a":"` + one + `","b":"` + two + `"}}`}
	with := func(changes map[string]string) map[string]string {
		m := map[string]string{}
		for k, v := range good {
			m[k] = v
		}
		for k, v := range changes {
			if m[k] = v; v == "" {
				delete(m, k)
			}
		}
		return m
	}
	tests := []struct {
		name  string
		files map[string]string
		path  string
		kind  error // nil: it opens
		text  string
	}{
		{"by the first", good, one, nil, ""},
		{"by the second", good, two, nil, ""},
		{"by the index", good, idx, nil, ""},
		{"by the directory", good, ".", nil, ""},
		{"directory without an index", with(map[string]string{idx: ""}), ".", nil, ""},
		{"missing file", with(map[string]string{two: ""}), one, pack.ErrTruncated, two},
		{"missing file of the index", with(map[string]string{one: ""}), ".", pack.ErrTruncated, one},
		{"index leads out", with(map[string]string{idx: `{"weight_map":{"a":"../` + one + `"}}`}), idx, pack.ErrCorrupt, "beside"},
		{"index leads to a folder", with(map[string]string{idx: `{"weight_map":{"a":"x/` + one + `"}}`}), idx, pack.ErrCorrupt, "beside"},
		{"index is empty", with(map[string]string{idx: `{}`}), idx, pack.ErrCorrupt, "0 tensors"},
		{"index is no JSON", with(map[string]string{idx: `<html>`}), idx, pack.ErrCorrupt, "JSON"},
		{"index is wrong", with(map[string]string{idx: `{"weight_map":{"a":"` + two + `","b":"` + one + `"}}`}), idx, pack.ErrCorrupt, `"a"`},
		{"index has more", with(map[string]string{idx: `{"weight_map":{"a":"` + one + `","c":"` + two + `"}}`}), idx, pack.ErrCorrupt, `"c"`},
		{"in two files", with(map[string]string{two: string(entry("a", 2))}), one, pack.ErrCorrupt, `"a"`},
		{"number 3 of 2", map[string]string{"m-00003-of-00002.safetensors": string(entry("a", 1))}, "m-00003-of-00002.safetensors", pack.ErrCorrupt, "3 of 2"},
		{"empty directory", map[string]string{"config.json": "{}"}, ".", pack.ErrNotModel, "no *.safetensors"},
		{"several", map[string]string{"a.safetensors": string(entry("a", 1)), "b.safetensors": string(entry("b", 1))}, ".", pack.ErrNotModel, "a.safetensors, b.safetensors"},
		{"GGUF inside", map[string]string{"m.safetensors": "GGUF\x03\x00\x00\x00" + strings.Repeat("\x00", 16)}, ".", pack.ErrNotModel, "GGUF"},
		{"page", map[string]string{"m.safetensors": "<!DOCTYPE html><p>sign in"}, "m.safetensors", pack.ErrNotModel, "HTML"},
		{"a folder in the name's place", map[string]string{"model.safetensors/x": ""}, ".", pack.ErrNotModel, "regular"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(dir, filepath.FromSlash(name))
				if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
					t.Fatal(err)
				}
				if text == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			f, err := safetensors.Open(filepath.Join(dir, tt.path))
			if tt.kind != nil {
				var e *pack.Error
				if !errors.As(err, &e) || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%v, want %v that mentions %q", err, tt.kind, tt.text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if len(f.Tensors) != 2 || len(f.Files()) != 2 || f.Size() != int64(len(good[one])+len(good[two])) || f.Metadata[0].Value != "a" {
				t.Errorf("%d tensors in %q, %d bytes, metadata %v", len(f.Tensors), f.Files(), f.Size(), f.Metadata)
			}
			for name, v := range map[string]byte{"a": 1, "b": 2} {
				if x := f.Tensor(name); x == nil || read(t, x)[0] != v || filepath.Base(x.File()) != map[string]string{"a": one, "b": two}[name] {
					t.Errorf("%q is wrong: %v", name, x)
				}
			}
		})
	}
	if _, err := safetensors.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such path: %v", err)
	}
}

// What Split makes and WriteSet writes opens as the whole again.
func TestWriteSet(t *testing.T) {
	h := safetensors.Header{Metadata: []safetensors.KV{{Key: "format", Value: "mlx"}}}
	var data []byte
	for i, n := range []int64{3, 5, 9, 1, 0, 4} {
		h.Tensors = append(h.Tensors, safetensors.Tensor{Name: fmt.Sprint("t", i), DType: safetensors.U8, Shape: []int64{n}})
		data = append(data, bytes.Repeat([]byte{byte(i)}, int(n))...)
	}
	for _, max := range []int64{0, 1, 8, 100} {
		files, err := h.Split(max)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[int64]int{0: 1, 1: 5, 8: 3, 100: 1}[max]; len(files) != want {
			t.Errorf("%d files of at most %d bytes, want %d", len(files), max, want)
		}
		path := filepath.Join(t.TempDir(), "m")
		d, err := outfile.CreateDir(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Abort()
		if err := safetensors.WriteSet(d, files, func(w io.Writer) error {
			for b := range slices.Chunk(data, 4) { // across tensors and files
				if _, err := w.Write(b); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
		f, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Tensors) != 6 || len(f.Files()) != len(files) {
			t.Errorf("%d tensors in %d files", len(f.Tensors), len(f.Files()))
		}
		for i := range f.Tensors {
			x := &f.Tensors[i]
			if b := read(t, x); x.Name != h.Tensors[i].Name || !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, int(h.Tensors[i].Shape[0]))) {
				t.Errorf("%q has %v", x.Name, b)
			}
		}
		f.Close()
		for name, b := range map[string][]byte{"too little": data[:len(data)-1], "too much": append(slices.Clone(data), 1)} {
			d, err := outfile.CreateDir(path, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := safetensors.WriteSet(d, files, func(w io.Writer) error { _, err := w.Write(b); return err }); err == nil {
				t.Errorf("%s data was taken", name)
			}
			d.Abort()
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	u8 := func(name string, shape ...int64) safetensors.Tensor {
		return safetensors.Tensor{Name: name, DType: safetensors.U8, Shape: shape}
	}
	for name, tensors := range map[string][]safetensors.Tensor{
		"twice":      {u8("a", 1), u8("a", 1)},
		"metadata":   {u8("__metadata__", 1)},
		"not UTF-8":  {u8("\xff", 1)},
		"too large":  {u8("a", 1<<62), u8("b", 1<<62)},
		"negative":   {u8("a", -1)},
		"no type":    {{Name: "a", Shape: []int64{1}}},
		"half bytes": {{Name: "a", DType: safetensors.F4, Shape: []int64{1}}},
	} {
		h := safetensors.Header{Tensors: tensors}
		if err := h.LayOut(); !errors.Is(err, pack.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w, err := safetensors.NewWriter(io.Discard, &safetensors.Header{Tensors: []safetensors.Tensor{u8("a", 2)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 3)); err == nil || w.Close() == nil {
		t.Error("too much or too little data was taken")
	}
}

// A file that is cut short while it is open is an error, not a zero.
func TestCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(path, file(`{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 1, 2, 3, 4), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := f.Tensor("t")
	if err := os.Truncate(path, x.FileAt()+1); err != nil {
		t.Fatal(err)
	}
	if _, err := x.ReadAt(make([]byte, 4), 0); !errors.Is(err, pack.ErrTruncated) {
		t.Error(err)
	}
}

// FuzzOpen: no bytes panic; what opens has its data in the file and, written
// again, is a file with the same contents, that is written with the same bytes.
func FuzzOpen(f *testing.F) {
	for _, c := range cases.All() {
		if b, err := cases.Files.ReadFile(c.File); err == nil && strings.HasSuffix(c.File, safetensors.Extension) {
			f.Add(b)
		}
	}
	_, _, example, err := hexdoc.Example("FORMAT.md")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add(file(`{"a":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[1,4]},"b":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}`, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := open(b)
		if err != nil {
			if len(err.Error()) > 64<<10 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for i := range x.Tensors {
			v := &x.Tensors[i]
			if v.FileAt()+v.Size > int64(len(b)) || v.Size > 0 && v.Rows()*v.Cols()*int64(v.DType.Bits()) != v.Size*8 {
				t.Fatalf("tensor %q: %d bytes at %d", v.Name, v.Size, v.FileAt())
			}
			if _, err := v.Floats(); err != nil && !errors.Is(err, pack.ErrUnsupported) {
				t.Fatal(err)
			}
		}
		once := rewrite(t, x)
		y, err := open(once)
		if err != nil {
			t.Fatalf("what was written does not open: %v", err)
		}
		for i := range x.Tensors {
			v := &x.Tensors[i]
			w := y.Tensor(v.Name)
			if w == nil || v.DType != w.DType || !slices.Equal(v.Shape, w.Shape) || !bytes.Equal(read(t, v), read(t, w)) {
				t.Fatalf("tensor %q has become another", v.Name)
			}
		}
		if !slices.Equal(x.Metadata, y.Metadata) || !bytes.Equal(rewrite(t, y), once) {
			t.Fatal("other metadata, or other bytes the second time")
		}
	})
}
