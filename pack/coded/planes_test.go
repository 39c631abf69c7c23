package coded

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// naiveSymbols is §4, weight by weight; ok is false if one has no state.
func naiveSymbols(bp, bn, br []byte) (symbols []byte, ok bool) {
	symbols = make([]byte, (8*len(bp)+2)/3)
	for k := range 8 * len(bp) {
		bit := func(p []byte) byte { return p[k/8] >> (k % 8) & 1 }
		p, m, r := bit(bp), bit(bn), bit(br)
		if p == 1 && m == 1 || r == 1 && p == 0 && m == 0 {
			return nil, false
		}
		symbols[k/3] += [3]byte{1, 5, 25}[k%3] * (p + 3*m + r)
	}
	return symbols, true
}

// randomPlanes returns planes of n bytes whose weights all have a state.
func randomPlanes(rng *rand.Rand, n int) (p [3][]byte) {
	for i := range p {
		p[i] = make([]byte, n)
	}
	for i := range n {
		p[0][i] = byte(rng.Uint32())
		p[1][i] = byte(rng.Uint32()) &^ p[0][i]
		p[2][i] = byte(rng.Uint32()) & (p[0][i] | p[1][i])
	}
	return p
}

func TestPlanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, groups := range []int{0, 1, 2, 3, 17, batchBytes / groupBytes} {
		n := groups * groupBytes
		p := randomPlanes(rng, n)
		want, ok := naiveSymbols(p[0], p[1], p[2])
		if !ok {
			t.Fatal("the test's planes are wrong")
		}
		pad := func(b []byte) []byte { return append(bytes.Clone(b), 0xff, 0xff) } // must not count
		symbols := bytes.Repeat([]byte{0xc5}, len(want)+16)
		if !toSymbols(symbols[8:8+len(want)], pad(p[0]), pad(p[1]), pad(p[2]), groups) {
			t.Fatalf("%d groups refused", groups)
		}
		if !bytes.Equal(symbols[8:8+len(want)], want) {
			t.Fatalf("%d groups give other symbols", groups)
		}
		if bytes.Count(symbols[:8], []byte{0xc5}) != 8 || bytes.Count(symbols[8+len(want):], []byte{0xc5}) != 8 {
			t.Fatal("wrote outside its output")
		}
		var back [3][]byte
		for i := range back {
			back[i] = bytes.Repeat([]byte{0xc5}, n+16)
		}
		toPlanes(back[0][8:8+n+2], back[1][8:8+n+2], back[2][8:8+n+2], want, groups)
		for i := range back {
			if !bytes.Equal(back[i][8:8+n], p[i]) {
				t.Fatalf("%d groups: plane %d differs", groups, i)
			}
			if bytes.Count(back[i][:8], []byte{0xc5}) != 8 || bytes.Count(back[i][8+n+2:], []byte{0xc5}) != 6 {
				t.Fatal("wrote outside its output")
			}
		}
	}
}

// Every way to break a rule is found at every bit.
func TestPlanesBroken(t *testing.T) {
	const groups, n = 3, 3 * groupBytes
	symbols := make([]byte, groups*groupSymbols)
	for k := range 8 * n {
		for _, state := range [][3]byte{{1, 1, 0}, {1, 1, 1}, {0, 0, 1}} {
			var p [3][]byte
			for i := range p {
				p[i] = make([]byte, n+2)
				p[i][k/8] = state[i] << (k % 8)
			}
			if toSymbols(symbols, p[0], p[1], p[2], groups) {
				t.Fatalf("weight %d with bits %v is accepted", k, state)
			}
		}
	}
}

// All triplets there are.
func TestSymbolsAll(t *testing.T) {
	var symbols [128]byte
	for s := range symbols[:125] {
		symbols[s] = byte(s)
	}
	var p [3][48 + 2]byte
	toPlanes(p[0][:], p[1][:], p[2][:], symbols[:], 8)
	got, ok := naiveSymbols(p[0][:48], p[1][:48], p[2][:48])
	if !ok || !bytes.Equal(got, symbols[:]) {
		t.Fatal(ok, got)
	}
}

func TestSymbolsOf(t *testing.T) {
	for n := range int64(100) {
		if got, want := symbolsOf(n), (8*n+2)/3; got != want {
			t.Errorf("%d bytes: %d, want %d", n, got, want)
		}
	}
	const most = math.MaxInt64 / 3
	if got, exact := uint64(symbolsOf(most)), new(big.Int).Mul(big.NewInt(most), big.NewInt(8)); got != exact.Add(exact, big.NewInt(2)).Div(exact, big.NewInt(3)).Uint64() {
		t.Errorf("%d bytes: %d, want %d", int64(most), got, exact)
	}
}
