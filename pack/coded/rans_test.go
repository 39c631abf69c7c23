package coded

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveEncode and naiveDecode are §5 as it is written.
func naiveEncode(symbols []byte, freq []uint16) []byte {
	cum := make([]uint32, 257)
	for s, f := range freq {
		cum[s+1] = cum[s] + uint32(f)
	}
	x := [2]uint32{1 << 23, 1 << 23}
	var reversed []byte
	for i := len(symbols) - 1; i >= 0; i-- {
		k, s := i&1, symbols[i]
		f := uint32(freq[s])
		for uint64(x[k]) >= uint64(f)<<17 {
			reversed = append(reversed, byte(x[k]))
			x[k] >>= 8
		}
		x[k] = x[k]/f*16384 + x[k]%f + cum[s]
	}
	reversed = binary.BigEndian.AppendUint32(reversed, x[1])
	reversed = binary.BigEndian.AppendUint32(reversed, x[0])
	slices.Reverse(reversed)
	return reversed
}

func naiveDecode(payload []byte, freq []uint16, n int) (symbols []byte, x [2]uint32, pos int) {
	x = [2]uint32{binary.LittleEndian.Uint32(payload), binary.LittleEndian.Uint32(payload[4:])}
	pos = 8
	for i := range n {
		k := i & 1
		slot, cum, s := x[k]&16383, uint32(0), 0
		for slot >= cum+uint32(freq[s]) {
			cum += uint32(freq[s])
			s++
		}
		symbols = append(symbols, byte(s))
		x[k] = uint32(freq[s])*(x[k]>>14) + slot - cum
		for x[k] < 1<<23 {
			x[k] = x[k]<<8 | uint32(payload[pos])
			pos++
		}
	}
	return symbols, x, pos
}

func tableOf(symbols []byte, n int) []uint16 {
	var c counts
	c.add(symbols)
	return c.frequencies(n)
}

// The example of the format's description.
func TestAbracadabra(t *testing.T) {
	symbols := []byte("abracadabra")
	freq := tableOf(symbols, 256)
	for s, want := range map[byte]uint16{'a': 7450, 'b': 2978, 'c': 1489, 'd': 1489, 'r': 2978} {
		if freq[s] != want {
			t.Errorf("%c: %d, want %d", s, freq[s], want)
		}
	}
	if got, want := hex.EncodeToString(encodeAll(t, symbols, freq)), "1dcd9a228ee7a0009687"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	long := bytes.Repeat(symbols, 3000)
	got := encodeAll(t, long, tableOf(long, 256))
	if len(got) != 8424 || hex.EncodeToString(got[:12]) != "265032025c283802505666"+"3e" || hex.EncodeToString(got[8420:]) != "291d9687" {
		t.Errorf("%d bytes, %x ... %x", len(got), got[:12], got[8420:])
	}
}

// encodeAll encodes with the fast encoder, inside an array of canaries.
func encodeAll(t testing.TB, symbols []byte, freq []uint16) []byte {
	var table encodeTable
	table.set(freq)
	size := 2*len(symbols) + 16
	b := bytes.Repeat([]byte{0xc5}, size+32)
	out := b[16 : 16+size : 16+size]
	x := states{stateMin, stateMin}
	left, pos := table.encode(&x, symbols, out, len(out))
	if left != 0 {
		t.Fatalf("%d of %d symbols left with %d bytes of room", left, len(symbols), pos)
	}
	if bytes.Count(b[:16], []byte{0xc5}) != 16 || bytes.Count(b[16+size:], []byte{0xc5}) != 16 {
		t.Fatal("wrote outside its output")
	}
	head := binary.LittleEndian.AppendUint32(nil, x[0])
	return append(binary.LittleEndian.AppendUint32(head, x[1]), out[pos:]...)
}

// symbolSets are the sources that coders are tried with: edges of lengths, and
// tables from one symbol to many rare ones.
func symbolSets() map[string]func(rng *rand.Rand, n int) []byte {
	return map[string]func(rng *rand.Rand, n int) []byte{
		"one":  func(rng *rand.Rand, n int) []byte { return bytes.Repeat([]byte{77}, n) },
		"two":  func(rng *rand.Rand, n int) []byte { return fill(n, func() byte { return byte(rng.IntN(2) * 124) }) },
		"flat": func(rng *rand.Rand, n int) []byte { return fill(n, func() byte { return byte(rng.IntN(125)) }) },
		"rare": func(rng *rand.Rand, n int) []byte { // takes two bytes at a time
			return fill(n, func() byte {
				if rng.IntN(100) > 0 {
					return 3
				}
				return byte(rng.IntN(125))
			})
		},
	}
}

func fill(n int, f func() byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = f()
	}
	return b
}

func TestCoder(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 3))
	lengths := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 100, 1023, 1024, 1025, batchSymbols - 1, batchSymbols, batchSymbols + 1, 3*batchSymbols + 7}
	for name, set := range symbolSets() {
		for _, n := range lengths {
			symbols := set(rng, n)
			freq := tableOf(symbols, 125)
			want := naiveEncode(symbols, freq)
			got := encodeAll(t, symbols, freq)
			if !bytes.Equal(got, want) {
				t.Fatalf("%s %d: encodes to something else", name, n)
			}
			back, x, pos := naiveDecode(want, freq, n)
			if !bytes.Equal(back, symbols) || pos != len(want) || x != [2]uint32{stateMin, stateMin} {
				t.Fatalf("%s %d: the reference does not decode what it made", name, n)
			}
			decodeAll(t, name, symbols, want, freq)
		}
	}
}

// decodeAll decodes with the fast decoder, inside an array of canaries.
func decodeAll(t *testing.T, name string, symbols, payload []byte, freq []uint16) {
	t.Helper()
	var table decodeTable
	table.set(freq)
	n := len(symbols)
	b := bytes.Repeat([]byte{0xc5}, n+32)
	dst := b[16 : 16+n : 16+n]
	src := append(slices.Clone(payload), make([]byte, window)...)
	x := states{binary.LittleEndian.Uint32(src), binary.LittleEndian.Uint32(src[4:])}
	made, pos := table.decode(&x, dst, src, 8)
	if made != n/4*4 {
		t.Fatalf("%s: %d of %d symbols", name, made, n)
	}
	for i := made; i < n; i++ {
		dst[i], pos = table.decodeOne(&x, i, src, pos)
	}
	if !bytes.Equal(dst, symbols) || pos != len(payload) || x != (states{stateMin, stateMin}) {
		t.Fatalf("%s: %d symbols decode to something else", name, n)
	}
	if bytes.Count(b[:16], []byte{0xc5}) != 16 || bytes.Count(b[16+n:], []byte{0xc5}) != 16 {
		t.Fatal("wrote outside its output")
	}
}

// The reciprocals divide exactly, at the edges of every frequency and state.
func TestReciprocal(t *testing.T) {
	for f := 1; f <= scale; f++ {
		var table encodeTable
		table.set([]uint16{uint16(f), uint16(scale - f)})
		e := table[0]
		if e.most != uint32(f)<<17-1 || e.rest != uint16(scale-f) {
			t.Fatalf("frequency %d: %+v", f, e)
		}
		for _, x := range []uint32{stateMin, uint32(f)<<17 - 1, uint32(f) << 16, uint32(f)<<16 - 1, uint32(f)*511 + uint32(f) - 1, 1<<31 - 1} {
			if got := uint32(uint64(x) * uint64(e.reciprocal) >> e.shift); got != x/uint32(f) {
				t.Fatalf("%d / %d gives %d", x, f, got)
			}
		}
	}
}

func TestFrequencies(t *testing.T) {
	tests := []struct {
		name   string
		counts map[int]uint64
		want   map[int]uint16
	}{
		{"nothing", nil, map[int]uint16{0: scale}},
		{"one", map[int]uint64{9: 1}, map[int]uint16{9: scale}},
		{"halves", map[int]uint64{1: 5, 2: 5}, map[int]uint16{1: 8192, 2: 8192}},
		{"rest to the largest", map[int]uint64{1: 1, 2: 1, 3: 1}, map[int]uint16{1: 5462, 2: 5461, 3: 5461}},
		{"raised", map[int]uint64{1: 1, 2: 1 << 40}, map[int]uint16{1: 1, 2: 16383}},
		// 8191 + 8191 + 3 raised to 1 are one too many: the lower of the two gives.
		{"trimmed", map[int]uint64{1: 1 << 40, 2: 1 << 40, 3: 1, 4: 1, 5: 1}, map[int]uint16{1: 8190, 2: 8191, 3: 1, 4: 1, 5: 1}},
	}
	for _, tt := range tests {
		var c counts
		for s, n := range tt.counts {
			c[s] = n
		}
		for s, f := range c.frequencies(125) {
			if f != tt.want[s] {
				t.Errorf("%s: symbol %d has %d, want %d", tt.name, s, f, tt.want[s])
			}
		}
	}
}

// FuzzCoder holds the fast coder to the reference on any symbols.
func FuzzCoder(f *testing.F) {
	f.Add([]byte("abracadabra"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, symbols []byte) {
		freq := tableOf(symbols, 256)
		payload := encodeAll(t, symbols, freq)
		if !bytes.Equal(payload, naiveEncode(symbols, freq)) {
			t.Fatal("encodes to something else")
		}
		decodeAll(t, "fuzz", symbols, payload, freq)
		if n := len(symbols) &^ 3; n > 0 {
			// The other lane starts elsewhere: at what no encoder made.
			other := append(binary.LittleEndian.AppendUint32(nil, stateMin), 0xff, 0xff, 0xff, 0x7f)
			other = append(other, symbols...)
			comparePair(t, "fuzz", [2][]byte{payload, other}, [2][]uint16{freq, freq}, n)
		}
	})
}
