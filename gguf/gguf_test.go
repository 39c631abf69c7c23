package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rewrite writes what was read, by the public API alone.
func rewrite(t testing.TB, f *File) []byte {
	t.Helper()
	h := f.Header
	h.Tensors = slices.Clone(h.Tensors)
	var out bytes.Buffer
	w, err := NewWriter(&out, &h)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Tensors {
		if _, err := w.Write(x.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != h.FileSize() {
		t.Fatalf("%d bytes, FileSize says %d", out.Len(), h.FileSize())
	}
	return out.Bytes()
}

// golden is a file that gguf-py made, with every kind of value.
func golden(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/gguf-py.gguf")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRead(t *testing.T) {
	f, err := Open("testdata/gguf-py.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	get := func(key string) Value {
		v, ok := f.Value(key)
		if !ok {
			t.Errorf("no key %q", key)
		}
		return v
	}
	for key, want := range map[string]int64{"t.u8": 200, "t.i8": -7, "t.u16": 60000, "t.i16": -3, "t.u32": 4000000000, "t.i32": -5, "t.i64": -1 << 40} {
		if n, ok := get(key).Int(); !ok || n != want {
			t.Errorf("%s is %d, %v; want %d", key, n, ok, want)
		}
		if n, ok := get(key).Uint(); ok != (want >= 0) || ok && n != uint64(want) {
			t.Errorf("%s is %d, %v as unsigned; want %d", key, n, ok, want)
		}
	}
	if n, ok := get("t.u64").Uint(); !ok || n != 1<<63+1 {
		t.Errorf("t.u64 is %d, %v", n, ok)
	}
	if _, ok := get("t.u64").Int(); ok {
		t.Error("t.u64 fits an int64")
	}
	if x, ok := get("t.f32").Float(); !ok || x != float64(float32(0.1)) {
		t.Errorf("t.f32 is %v, %v", x, ok)
	}
	if x, ok := get("t.f64").Float(); !ok || x != 0.1 {
		t.Errorf("t.f64 is %v, %v", x, ok)
	}
	if yes, ok := get("t.yes").Bool(); !ok || !yes {
		t.Error("t.yes is not true")
	}
	if s, ok := get("t.text").Text(); !ok || s != "naïve „text“" {
		t.Errorf("t.text is %q, %v", s, ok)
	}
	if s, ok := get("t.strings").Strings(); !ok || !slices.Equal(s, []string{"a", "", "Ġthe", "日本"}) {
		t.Errorf("t.strings is %q, %v", s, ok)
	}
	var ints []int64
	for _, n := range get("t.ints").Ints() {
		ints = append(ints, n)
	}
	if !slices.Equal(ints, []int64{1, -2, 3}) {
		t.Errorf("t.ints is %v", ints)
	}
	if _, ok := get("t.text").Strings(); ok {
		t.Error("a string is an array")
	}
	// gguf-py lays out bytes as an array of u8.
	if b, ok := get("t.bytes").Bytes(); !ok || !bytes.Equal(b, []byte{0, 255, 3}) {
		t.Errorf("t.bytes is %v, %v", b, ok)
	}
	x := f.Tensor("f32.weight")
	if x == nil || x.Type != F32 || !slices.Equal(x.Dims, []uint64{3, 2}) || x.Rows() != 2 || x.Cols() != 3 {
		t.Fatalf("f32.weight: %+v", x)
	}
	got := make([]float32, 6)
	if err := x.Type.Dequantize(got, x.Data); err != nil || !slices.Equal(got, []float32{0, 1, 2, 3, 4, 5}) {
		t.Errorf("f32.weight: %v, %v", got, err)
	}
	if q := f.Tensor("q8.weight"); q == nil || q.Type != Q8_0 || q.Size != 4*34 {
		t.Errorf("q8.weight: %+v", q)
	}
	if f.Tensor("none") != nil {
		t.Error("a tensor that is not there was found")
	}
}

// What is read and written again is the same file: as gguf-py made it, in
// version 2, with other alignments, without padding at the end, empty.
func TestByteExact(t *testing.T) {
	check := func(name string, b []byte) {
		t.Helper()
		f, err := OpenBytes(name, b)
		if err != nil {
			t.Fatal(err)
		}
		if got := rewrite(t, f); !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes become %d others", name, len(b), len(got))
		}
	}
	b := golden(t)
	check("v3", b)
	v2 := slices.Clone(b)
	v2[4] = 2
	check("v2", v2)
	check("unpadded", b[:len(b)-20])
	check("empty", append([]byte("GGUF\x03\x00\x00\x00"), make([]byte, 16)...))
	for _, a := range []uint32{8, 16, 64, 4096} {
		f, err := OpenBytes("x", b)
		if err != nil {
			t.Fatal(err)
		}
		f.Metadata = append(slices.Clone(f.Metadata), KV{"general.alignment", Uint32(a)})
		again := rewrite(t, f)
		g, err := OpenBytes("y", again)
		if err != nil || g.Alignment != int(a) || g.Tensors[1].Offset != max(int64(a), 24) && a > 24 {
			t.Fatalf("alignment %d: %v", a, err)
		}
		check("aligned", again)
		for i := range f.Tensors {
			if !bytes.Equal(f.Tensors[i].Data, g.Tensors[i].Data) {
				t.Errorf("alignment %d: tensor %q differs", a, f.Tensors[i].Name)
			}
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	tensor := func(name string, ty Type, dims ...uint64) Tensor { return Tensor{Name: name, Type: ty, Dims: dims} }
	for name, tt := range map[string]struct {
		h       Header
		mention string
	}{
		"name":       {Header{Tensors: []Tensor{tensor(strings.Repeat("x", 64), F32, 1)}}, "at most 63"},
		"twice":      {Header{Tensors: []Tensor{tensor("a", F32, 1), tensor("a", F32, 1)}}, "twice"},
		"dims":       {Header{Tensors: []Tensor{tensor("a", F32, 1, 1, 1, 1, 1)}}, "at most 4"},
		"block":      {Header{Tensors: []Tensor{tensor("a", FV5, 300)}}, "multiple of its block, 256"},
		"unknown":    {Header{Tensors: []Tensor{tensor("a", 45, 32)}}, "in no table"},
		"huge":       {Header{Tensors: []Tensor{tensor("a", F32, 1<<60), tensor("b", F32, 1<<60)}}, "2^63"},
		"key":        {Header{Metadata: []KV{{"k", Bool(true)}, {"k", Bool(true)}}}, "twice"},
		"no value":   {Header{Metadata: []KV{{"k", Value{}}}}, "no value"},
		"alignment":  {Header{Metadata: []KV{{"general.alignment", Uint32(24)}}}, "24"},
		"kind":       {Header{Metadata: []KV{{"general.alignment", Int32(32)}}}, "u32"},
		"version":    {Header{Version: 1}, "version is 1"},
		"long a key": {Header{Metadata: []KV{{strings.Repeat("k", 1<<16), Bool(true)}}}, "65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			_, err := NewWriter(&out, &tt.h)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.mention) || out.Len() > 0 {
				t.Errorf("%v after %d bytes, want one that mentions %q", err, out.Len(), tt.mention)
			}
		})
	}
	h := Header{Tensors: []Tensor{tensor("a", F32, 2), tensor("b", F32, 0), tensor("c", F32, 1)}}
	w, err := NewWriter(new(bytes.Buffer), &h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 9)); err == nil {
		t.Error("9 bytes for a tensor of 8")
	}
	if _, err := w.Write(make([]byte, 8)); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), `"c": 4 bytes are missing`) {
		t.Errorf("closed early: %v", err)
	}
	if _, err := w.Write(make([]byte, 4)); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// forge makes a file of bytes of its own choice.
type forge struct{ bytes.Buffer }

func (f *forge) num(v ...any) *forge {
	for _, n := range v {
		if s, ok := n.(string); ok {
			binary.Write(f, binary.LittleEndian, uint64(len(s)))
			f.WriteString(s)
		} else {
			binary.Write(f, binary.LittleEndian, n)
		}
	}
	return f
}

// A fork's Q2_0 is told by the space that its tensors have, also at the end of a
// file, and is written with the id that it was read with.
func TestQ2Groups(t *testing.T) {
	for _, tt := range []struct {
		typ  Type
		size int
	}{{Q2_0, 18 * 32}, {Q2_0G128, 34 * 16}} {
		b := forged(2, 0).num("a", uint32(1), uint64(2048), uint32(42), uint64(0), "b", uint32(1), uint64(2048), uint32(42), uint64(tt.size)).data(2 * tt.size)
		f, err := OpenBytes("x.gguf", b)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range f.Tensors {
			if x.Type != tt.typ || x.Size != int64(tt.size) || len(x.Data) != tt.size {
				t.Errorf("%s: %v, %d bytes, want %v, %d", x.Name, x.Type, x.Size, tt.typ, tt.size)
			}
		}
		h := &Header{Tensors: []Tensor{{Name: "a", Dims: []uint64{2048}, Type: tt.typ}, {Name: "b", Dims: []uint64{2048}, Type: tt.typ}}}
		var w bytes.Buffer
		x, err := NewWriter(&w, h)
		if err != nil {
			t.Fatal(err)
		}
		for range h.Tensors {
			if _, err := x.Write(make([]byte, tt.size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		if f, err = OpenBytes("x.gguf", w.Bytes()); err != nil || f.Tensors[1].Type != tt.typ {
			t.Errorf("written: %v, %v", f, err)
		}
	}
}

func forged(tensors, keys uint64) *forge {
	f := new(forge)
	f.WriteString("GGUF")
	return f.num(uint32(3), tensors, keys)
}

func (f *forge) data(n int) []byte {
	f.Write(make([]byte, -f.Len()&31+n))
	return f.Bytes()
}

// Cases beyond those of testdata/cases.
func TestRefuse(t *testing.T) {
	u := func(n uint32) uint32 { return n }
	for name, tt := range map[string]struct {
		b       []byte
		kind    error
		mention string
	}{
		"version 1":       {[]byte("GGUF\x01\x00\x00\x00" + strings.Repeat("\x00", 16)), ErrUnsupported, "version is 1"},
		"version 4":       {[]byte("GGUF\x04\x00\x00\x00" + strings.Repeat("\x00", 16)), ErrUnsupported, "version is 4"},
		"kind":            {forged(0, 1).num("k", u(13)).Bytes(), ErrCorrupt, "13 is no kind"},
		"cut value":       {forged(0, 1).num("k", u(10), u(1)).Bytes(), ErrTruncated, `key "k"`},
		"bool":            {forged(0, 1).num("k", u(7), uint8(2)).Bytes(), ErrCorrupt, "a bool is 2"},
		"bools":           {forged(0, 1).num("k", u(9), u(7), uint64(3), uint8(1), uint8(0), uint8(200)).Bytes(), ErrCorrupt, "byte 51: a bool is 200"},
		"nested":          {forged(0, 1).num("k", u(9), u(9), uint64(0)).Bytes(), ErrUnsupported, "array of arrays"},
		"element kind":    {forged(0, 1).num("k", u(9), u(77), uint64(0)).Bytes(), ErrCorrupt, "77 is no kind"},
		"string in list":  {forged(0, 1).num("k", u(9), u(8), uint64(2), "ab", uint64(1<<63)).Bytes(), ErrCorrupt, "string 1"},
		"key twice":       {forged(0, 2).num("k", u(7), uint8(1), "k", u(7), uint8(1)).Bytes(), ErrCorrupt, "twice"},
		"tensor twice":    {forged(2, 0).num("a", u(0), u(0), uint64(0), "a", u(0), u(0), uint64(32)).data(64), ErrCorrupt, "twice"},
		"five dims":       {forged(1, 0).num("a", u(5), [5]uint64{1, 1, 1, 1, 1}, u(0), uint64(0)).data(32), ErrCorrupt, "5 dimensions"},
		"misaligned":      {forged(1, 0).num("a", u(0), u(0), uint64(8)).data(64), ErrCorrupt, "multiple of the alignment, 32"},
		"overlap":         {forged(2, 0).num("a", u(1), uint64(16), u(0), uint64(0), "b", u(0), u(0), uint64(32)).data(64), ErrCorrupt, `tensor "b" starts 32 bytes`},
		"same place":      {forged(2, 0).num("a", u(0), u(0), uint64(0), "b", u(0), u(0), uint64(0)).data(64), ErrCorrupt, "starts 0 bytes"},
		"Q2_0 of a fork":  {forged(2, 0).num("a", u(1), uint64(2048), u(42), uint64(0), "b", u(0), u(0), uint64(544)).data(576), nil, ""},
		"id of ours":      {forged(1, 0).num("a", u(1), uint64(128), uint32(Q2_0G128), uint64(0)).data(64), ErrUnsupported, "type id 2147483690 is in no table"},
		"FV5B of others":  {forged(2, 0).num("a", u(1), uint64(256), u(44), uint64(0), "b", u(0), u(0), uint64(160)).data(192), ErrUnsupported, "129 to 160 bytes for 256 values"},
		"past 2^63":       {forged(1, 0).num("a", u(1), uint64(4), u(0), uint64(1)<<63).data(64), ErrCorrupt, "the offset is 9223372036854775808"},
		"zero times 2^64": {forged(1, 0).num("a", u(3), uint64(1<<63), uint64(1<<63), uint64(0), u(0), uint64(64)).Bytes(), nil, ""},
		"gap":             {forged(2, 0).num("a", u(0), u(0), uint64(0), "b", u(0), u(0), uint64(64)).data(128), nil, ""},
		"not GGUF":        {[]byte("GGML, older than that"), ErrNotGGUF, `"GGML, ol"`},
		"nothing":         {nil, ErrTruncated, "0 are there"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := OpenBytes("x.gguf", tt.b)
			if !errors.Is(err, tt.kind) || (err == nil) != (tt.kind == nil) {
				t.Fatalf("%v, want %v", err, tt.kind)
			}
			if err == nil {
				f.Close()
				return
			}
			if !strings.Contains(err.Error(), tt.mention) {
				t.Errorf("%v does not mention %q", err, tt.mention)
			}
			var e *Error
			if !errors.As(err, &e) || e.File != "x.gguf" {
				t.Errorf("%#v", err)
			}
		})
	}
}

// split writes the tensors of the golden file as a set of shards.
func split(t *testing.T, dir string, change func(i int, h *Header)) (names []string) {
	t.Helper()
	f, err := OpenBytes("x", golden(t))
	if err != nil {
		t.Fatal(err)
	}
	n := len(f.Tensors)
	for i := range n {
		h := Header{Tensors: []Tensor{f.Tensors[i]}}
		if i == 0 {
			h.Metadata = slices.Clone(f.Metadata)
		}
		h.Metadata = append(h.Metadata, KV{"split.no", Uint16(uint16(i))}, KV{"split.count", Uint16(uint16(n))}, KV{"split.tensors.count", Int32(int32(n))})
		change(i, &h)
		var out bytes.Buffer
		w, err := NewWriter(&out, &h)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range h.Tensors {
			if _, err := w.Write(x.Data); err != nil {
				t.Fatal(err)
			}
		}
		name := filepath.Join(dir, "m-0000"+string(rune('1'+i))+"-of-00004.gguf")
		if err := os.WriteFile(name, out.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func TestShards(t *testing.T) {
	want, err := OpenBytes("x", golden(t))
	if err != nil {
		t.Fatal(err)
	}
	names := split(t, t.TempDir(), func(int, *Header) {})
	for _, name := range names {
		f, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Shards) != 4 || f.Name() != name {
			t.Errorf("%d shards, %q", len(f.Shards), f.Name())
		}
		var length int64
		for i := range f.Tensors {
			x, y := f.Tensors[i], want.Tensors[i]
			if x.Name != y.Name || !bytes.Equal(x.Data, y.Data) || x.File() != names[i] {
				t.Errorf("tensor %d: %q of %s", i, x.Name, x.File())
			}
			st, err := os.Stat(names[i])
			if err != nil {
				t.Fatal(err)
			}
			length += st.Size()
			f.Release(x.Data)
		}
		if f.Length() != length {
			t.Errorf("length %d, want %d", f.Length(), length)
		}
		if v, ok := f.Value("t.text"); !ok || v.Kind != KindString {
			t.Error("the first shard's metadata is not there")
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestShardsRefuse(t *testing.T) {
	keep := func(int, *Header) {}
	for name, tt := range map[string]struct {
		change  func(i int, h *Header)
		after   func(names []string)
		kind    error
		mention string
	}{
		"missing": {keep, func(n []string) { os.Remove(n[0]); os.Remove(n[2]) }, ErrTruncated, "missing: m-00001-of-00004.gguf, m-00003-of-00004.gguf"},
		"renamed": {keep, func(n []string) { os.Rename(n[1], n[3]) }, ErrUnsupported, "this is shard 2 of 4"},
		"other number": {func(i int, h *Header) {
			if i == 0 {
				h.Metadata[len(h.Metadata)-3].Value = Uint16(2)
			}
		}, nil, ErrCorrupt, "split.no"},
		"sum":  {func(i int, h *Header) { h.Metadata[len(h.Metadata)-1].Value = Int32(5) }, nil, ErrCorrupt, "4, the tensors of all 4 shards"},
		"same": {func(i int, h *Header) { h.Tensors[0].Name = "a" }, nil, ErrCorrupt, "the tensor is in"},
		"odd": {func(i int, h *Header) {
			if i == 3 {
				h.Metadata[1].Value = Int32(-4)
			}
		}, nil, ErrCorrupt, "a number from 0"},
	} {
		t.Run(name, func(t *testing.T) {
			names := split(t, t.TempDir(), tt.change)
			if tt.after != nil {
				tt.after(names)
			}
			_, err := Open(names[3])
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.mention) {
				t.Errorf("%v, want %v that mentions %q", err, tt.kind, tt.mention)
			}
		})
	}
}

// What a lookup gives for a key that is not there is nothing in any form.
func TestNoValue(t *testing.T) {
	v, ok := new(Header).Value("none")
	_, i := v.Int()
	_, u := v.Uint()
	_, f := v.Float()
	_, b := v.Bool()
	_, s := v.Text()
	_, l := v.Strings()
	_, y := v.Bytes()
	if ok || i || u || f || b || s || l || y || v.Print() != "not there" {
		t.Errorf("%v: %v %v %v %v %v %v %v, %s", ok, i, u, f, b, s, l, y, v.Print())
	}
	for range v.Ints() {
		t.Error("an element")
	}
}

func TestPrint(t *testing.T) {
	for _, tt := range []struct {
		v    Value
		want string
	}{
		{String("a\x1b"), `"a\x1b"`}, {Bool(true), "true"}, {Int32(-3), "-3"}, {Uint64(1 << 63), "9223372036854775808"},
		{Float32(1e-6), "1e-06"}, {Strings([]string{"a"}), "1 × string"}, {Bytes(nil), "0 × u8"},
	} {
		if d := cmp.Diff(tt.want, tt.v.Print()); d != "" {
			t.Error(d)
		}
	}
}
