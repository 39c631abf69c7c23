package gguf

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// vectors are what gguf-py makes of blocks (testdata/make.py).
type vectors struct {
	Sizes           map[string]struct{ ID, Weights, Bytes int }
	Blocks, Ternary []struct {
		Type        string
		ID          Type
		Raw, Values string
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	b, err := os.ReadFile("testdata/blocks.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func floats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	decodeF32(v, b)
	return v
}

// sameBits compares floats bit for bit.
func sameBits(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// The table of types against gguf-py's, whose size of Q8_1 is that of a layout
// that ggml has left; no file has it.
func TestTypes(t *testing.T) {
	v := readVectors(t)
	for name, s := range v.Sizes {
		if name == "Q8_1" {
			continue
		}
		id := Type(s.ID)
		if w, b := id.Block(); id.Name() != name || w != s.Weights || b != s.Bytes {
			t.Errorf("%v: %d values in %d bytes; gguf-py: %s, %d in %d", id, w, b, name, s.Weights, s.Bytes)
		}
	}
	for i := range types {
		if types[i].id != Type(i) {
			t.Fatalf("line %d of the table has id %d", i, types[i].id)
		}
	}
	for _, tt := range []struct {
		t           Type
		text        string
		known, runs bool
	}{{FV5, "FV5 (43)", true, true}, {39, "MXFP4 (39)", true, false}, {142, "type 142", false, false}, {math.MaxUint32, "type 4294967295", false, false}} {
		if tt.t.String() != tt.text || tt.t.Known() != tt.known || tt.t.Decodes() != tt.runs {
			t.Errorf("%v: known %v, decodes %v", tt.t, tt.t.Known(), tt.t.Decodes())
		}
	}
}

func TestDequantize(t *testing.T) {
	for _, b := range readVectors(t).Blocks {
		want := floats(unhex(t, b.Values))
		got := make([]float32, len(want))
		if err := b.ID.Dequantize(got, unhex(t, b.Raw)); err != nil {
			t.Errorf("%s: %v", b.Type, err)
		} else if i := sameBits(got, want); i >= 0 {
			t.Errorf("%s: value %d is %v, gguf-py says %v", b.Type, i, got[i], want[i])
		}
	}
}

func TestQuantizeTernary(t *testing.T) {
	for _, b := range readVectors(t).Ternary {
		want := unhex(t, b.Raw)
		got := make([]byte, len(want))
		if err := b.ID.Quantize(got, floats(unhex(t, b.Values))); err != nil {
			t.Errorf("%s: %v", b.Type, err)
		} else if !slices.Equal(got, want) {
			t.Errorf("%s: other bytes than gguf-py's", b.Type)
		}
	}
}

// Every exact encoder gives back what it was given or refuses, and places each
// value where the decoder looks for it.
func TestQuantizeRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	for _, typ := range []Type{F32, F16, BF16, TQ1_0, TQ2_0, Q2_0, Q2_0G128, I2_S} {
		n := 512
		size, err := typ.Size([]uint64{uint64(n)})
		if err != nil {
			t.Fatal(err)
		}
		src, dst, back := make([]float32, n), make([]byte, size), make([]float32, n)
		for _, s := range []float32{0, 0.5, 1.25} {
			for i := range src {
				src[i] = float32(rng.IntN(3)-1) * s
			}
			if err := typ.Quantize(dst, src); err != nil {
				t.Errorf("%v: %v", typ, err)
			}
			if err := typ.Dequantize(back, dst); err != nil || !slices.Equal(back, src) {
				t.Errorf("%v: %v, other values", typ, err)
			}
		}
		// One value alone, at each place.
		for i := range src {
			clear(src)
			src[i] = -2
			if err := typ.Quantize(dst, src); err != nil {
				t.Fatalf("%v: value %d: %v", typ, i, err)
			}
		}
		src[0], src[1], src[2] = 0.1, 0.2, 3e-39
		if err := typ.Quantize(dst, src); typ != F32 && !errors.Is(err, ErrInexact) {
			t.Errorf("%v: %v, want ErrInexact", typ, err)
		}
		if err := typ.Quantize(dst[1:], src); err == nil {
			t.Errorf("%v: a short destination", typ)
		}
	}
	if err := Q6_K.Quantize(make([]byte, 210), make([]float32, 256)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("Q6_K: %v", err)
	}
	if err := Type(39).Dequantize(make([]float32, 32), make([]byte, 17)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("MXFP4: %v", err)
	}
	if err := FV5.Dequantize(make([]float32, 256), make([]byte, 103)); err == nil {
		t.Error("a block that is one byte short")
	}
}

// I2_S and Q2_0, which gguf-py does not know, by hand: bytes as the fork's and
// upstream's packers write them.
func TestByHand(t *testing.T) {
	b := make([]byte, 32+i2sTail)
	b[5] = 2<<6 | 0<<4 | 1<<2 | 2 // values 5, 37, 69, 101
	encodeF32(b[32:], []float32{0.5})
	v := make([]float32, 128)
	if err := I2_S.Dequantize(v, b); err != nil || v[5] != 0.5 || v[37] != -0.5 || v[69] != 0 || v[101] != 0.5 || v[0] != -0.5 {
		t.Errorf("I2_S: %v %v", v, err)
	}
	b = make([]byte, 18)
	b[0], b[1] = 0, 0x38            // 0.5
	b[2+3] = 2 | 0<<2 | 1<<4 | 3<<6 // values 12 to 15
	if err := Q2_0.Dequantize(v[:64], b); err != nil || !slices.Equal(v[12:16], []float32{0.5, -0.5, 0, 1}) {
		t.Errorf("Q2_0: %v %v", v[12:16], err)
	}
	b = append(b, make([]byte, 16)...) // the same bytes as a fork reads them
	b[2+31] = 2 << 6
	if err := Q2_0G128.Dequantize(v, b); err != nil || !slices.Equal(v[12:16], []float32{0.5, -0.5, 0, 1}) || v[127] != 0.5 || v[126] != -0.5 {
		t.Errorf("Q2_0G128: %v %v", v, err)
	}
}

// All binary16 values, and rounding back: exact ones stay, middles go to even.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		f := half([]byte{byte(h), byte(h >> 8)})
		if f != f {
			if g := toHalf(f); g&0x7c00 != 0x7c00 || g&0x3ff == 0 {
				t.Fatalf("%#x: NaN becomes %#x", h, g)
			}
			continue
		}
		if g := toHalf(f); int(g) != h {
			t.Fatalf("%#x: %v becomes %#x", h, f, g)
		}
		next := half([]byte{byte(h + 1), byte((h + 1) >> 8)})
		if h&0x7fff >= 0x7bff {
			continue
		}
		middle := float32((float64(f) + float64(next)) / 2)
		if g := toHalf(middle); int(g) != h+h&1 {
			t.Fatalf("%v, between %#x and %#x, becomes %#x", middle, h, h+1, g)
		}
	}
	if toHalf(65520) != 0x7c00 || toHalf(65519.996) != 0x7bff || toHalf(-1e30) != 0xfc00 || toHalf(1e-30) != 0 {
		t.Error("the ends of the range")
	}
}
