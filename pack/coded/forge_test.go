package coded

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// forge makes a transport of blocks that some other encoder may have written.
type forge struct {
	source []byte
	coded  []byte
	blocks uint32
}

func (f *forge) head(m Method, n int) {
	f.blocks++
	f.coded = append(f.coded, byte(m))
	f.coded = binary.LittleEndian.AppendUint64(f.coded, uint64(len(f.source)))
	f.coded = binary.LittleEndian.AppendUint64(f.coded, uint64(n))
}

func (f *forge) payload(symbols []byte, freq []uint16) {
	p := naiveEncode(symbols, freq)
	f.coded = binary.LittleEndian.AppendUint64(f.coded, uint64(len(p)))
	for _, v := range freq {
		f.coded = binary.LittleEndian.AppendUint16(f.coded, v)
	}
	f.coded = append(f.coded, p...)
}

func (f *forge) raw(b []byte) {
	f.head(Raw, len(b))
	f.coded = append(f.coded, b...)
	f.source = append(f.source, b...)
}

// bytes adds a byte block; a nil freq takes the publisher's.
func (f *forge) bytes(b []byte, freq []uint16) {
	if freq == nil {
		freq = tableOf(b, 256)
	}
	f.head(Byte, len(b))
	f.payload(b, freq)
	f.source = append(f.source, b...)
}

func (f *forge) planes(p [3][]byte, freq []uint16) {
	symbols, ok := naiveSymbols(p[0], p[1], p[2])
	if !ok {
		panic("broken planes")
	}
	if freq == nil {
		freq = tableOf(symbols, 125)
	}
	f.head(T5Q, len(p[0]))
	f.payload(symbols, freq)
	f.source = append(append(append(f.source, p[0]...), p[1]...), p[2]...)
}

func (f *forge) file() []byte {
	h := Header{SourceSize: int64(len(f.source)), MD5: md5.Sum(f.source), Blocks: f.blocks}
	return append(h.bytes(), f.coded...)
}

func decodeBytes(b []byte, o DecodeOptions) ([]byte, error) {
	r := bytes.NewReader(b)
	h, err := ReadHeader("test", r)
	if err != nil {
		return nil, err
	}
	o.Name = "test"
	var out bytes.Buffer
	err = Decode(context.Background(), h, r, &out, o)
	return out.Bytes(), err
}

// flat is a table that the publisher would not make.
func flat(n int) []uint16 {
	f := make([]uint16, n)
	for i := range f {
		f[i] = uint16(scale / n)
	}
	f[n-1] += uint16(scale - n*(scale/n))
	return f
}

// Any split into blocks that tiles the source is decoded, by all ways through
// the decoder: blocks that fit its memory and such that do not.
func TestForeign(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	text := bytes.Repeat([]byte("abracadabra"), 100)
	large := fill(10*chunkBytes+5, func() byte { return byte(rng.IntN(3)) })
	tests := []struct {
		name string
		make func(f *forge)
	}{
		{"no blocks", func(f *forge) {}},
		{"one raw block", func(f *forge) { f.raw(text) }},
		{"one byte block", func(f *forge) { f.bytes(text, nil) }},
		{"another table", func(f *forge) { f.bytes(text, flat(256)) }},
		{"empty blocks", func(f *forge) {
			f.raw(nil)
			f.bytes(nil, nil)
			f.raw(text)
			f.planes([3][]byte{}, nil)
			f.bytes(nil, flat(256))
			f.bytes(text[:1], nil)
			f.raw(nil)
		}},
		{"planes of a few bytes", func(f *forge) {
			for _, n := range []int{4, 8, 12, 16, 20, 24, 28, 44, batchBytes - 4, batchBytes, batchBytes + 4} {
				f.planes(randomPlanes(rng, n), nil)
			}
			f.planes(randomPlanes(rng, 36), flat(125))
		}},
		{"one symbol, long", func(f *forge) {
			f.bytes(bytes.Repeat([]byte{9}, 5*batchSymbols+3), nil)
			f.planes([3][]byte{make([]byte, 4*batchBytes), make([]byte, 4*batchBytes), make([]byte, 4*batchBytes)}, nil)
		}},
		{"chunk edges", func(f *forge) {
			for _, n := range []int{chunkBytes - 1, chunkBytes, chunkBytes + 1} {
				f.raw(large[:n])
				f.bytes(large[:n], nil)
				f.bytes(large[:n], flat(256)) // the payload has several chunks
			}
			f.planes(randomPlanes(rng, chunkBytes), nil)
			f.planes(randomPlanes(rng, chunkBytes+4), nil)
		}},
		{"large", func(f *forge) {
			f.raw(text)
			f.bytes(large, flat(256))
			f.raw(large)
			f.planes(randomPlanes(rng, 4*chunkBytes+8), nil)
			f.bytes(large, nil)
			f.raw(text)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f forge
			tt.make(&f)
			b := f.file()
			for _, o := range []DecodeOptions{{}, {Threads: 3, Size: int64(len(b))}, {Threads: 2, Memory: 1}, {Threads: 2, Memory: 1, Count: true}} {
				got, err := decodeBytes(b, o)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, f.source) {
					t.Fatalf("%+v: decodes to something else", o)
				}
			}
			// Reserved bytes are ignored.
			copy(b[5:8], "abc")
			copy(b[36:40], "defg")
			if got, err := decodeBytes(b, DecodeOptions{}); err != nil || !bytes.Equal(got, f.source) {
				t.Errorf("reserved bytes: %v", err)
			}
		})
	}
}
