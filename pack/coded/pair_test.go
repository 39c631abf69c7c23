package coded

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// pairLane returns a lane that decodes n symbols of payload. Its source is all
// that it may read, its destination lies at off in an array of canaries.
func pairLane(payload []byte, freq []uint16, n, off int) (l lane, dst []byte) {
	l.table = new(decodeTable)
	l.table.set(freq)
	l.x = states{binary.LittleEndian.Uint32(payload), binary.LittleEndian.Uint32(payload[4:])}
	l.src = make([]byte, 2*n) // the payload, as far as it goes, and zeros
	copy(l.src, payload[8:])
	dst = bytes.Repeat([]byte{0xc5}, off+n+32)
	l.dst = dst[off : off+n : off+n]
	return l, dst
}

// comparePair holds the kernel to its reference on the first n symbols of two
// payloads.
func comparePair(t *testing.T, name string, payloads [2][]byte, freqs [2][]uint16, n int) {
	t.Helper()
	var got, want [2]lane
	var gotDst, wantDst [2][]byte
	for i := range got {
		got[i], gotDst[i] = pairLane(payloads[i], freqs[i], n, 16+i)
		want[i], wantDst[i] = pairLane(payloads[i], freqs[i], n, 16+i)
	}
	w0, w1 := decodePairGeneric(&want, n)
	g0, g1 := decodePair(&got, n)
	if g0 != w0 || g1 != w1 {
		t.Fatalf("%s, %d symbols: took %d and %d bytes, want %d and %d", name, n, g0, g1, w0, w1)
	}
	for i := range got {
		if got[i].x != want[i].x || !bytes.Equal(gotDst[i], wantDst[i]) {
			t.Fatalf("%s, %d symbols, lane %d: decodes to something else, or outside its output", name, n, i)
		}
	}
}

// The kernel equals the generic code, which equals §5 as it is written: edges of lengths, the
// two payloads of the same or of other kinds, and sources that no encoder made.
func TestPair(t *testing.T) {
	if !haveKernel {
		t.Log("this build or CPU has no kernel (BMI2, LZCNT and MOVBE on amd64, without the tag noasm): the generic code is tested with itself and with §5")
	}
	rng := rand.New(rand.NewPCG(4, 9))
	const most = batchSymbols + 8
	type source struct {
		name             string
		symbols, payload []byte
		freq             []uint16
	}
	var sources []source
	for name, set := range symbolSets() {
		s := source{name: name, symbols: set(rng, most)}
		s.freq = tableOf(s.symbols, 256)
		s.payload = naiveEncode(s.symbols, s.freq)
		sources = append(sources, s)
	}
	noise := sources[0]
	noise.name, noise.symbols = "noise", nil
	noise.payload = fill(2*most+8, func() byte { return byte(rng.Uint32()) })
	binary.LittleEndian.PutUint32(noise.payload, stateMin)
	binary.LittleEndian.PutUint32(noise.payload[4:], 1<<31-1)
	sources = append(sources, noise)

	for _, a := range sources {
		for _, b := range sources {
			for _, n := range []int{4, 8, 12, 16, 60, minTogether, minTogether + 4, 1024, batchSymbols - 4, batchSymbols, most} {
				name := a.name + " and " + b.name
				comparePair(t, name, [2][]byte{a.payload, b.payload}, [2][]uint16{a.freq, b.freq}, n)
				l, dst := pairLane(a.payload, a.freq, n, 0)
				m, _ := pairLane(b.payload, b.freq, n, 0)
				decodePair(&[2]lane{l, m}, n)
				if a.symbols != nil && !bytes.Equal(dst[:n], a.symbols[:n]) {
					t.Fatalf("%s, %d symbols: not those that were encoded", name, n)
				}
			}
		}
	}
}

// Two blocks of a worker end, and leave their chunks, at different times.
func TestTogether(t *testing.T) {
	planes, table := sample(3*chunkBytes/2/8*8+40), sampleTable(3*chunkBytes+17)
	type source struct {
		m    Method
		data []byte
	}
	sources := []source{
		{Byte, table}, {T5Q, planes}, {Byte, table[:5000]}, {T5Q, sample(64)}, {Byte, bytes.Repeat([]byte{1, 2}, batchSymbols)[:batchSymbols+1]},
		{Byte, bytes.Repeat([]byte{9}, chunkBytes+1)}, {T5Q, make([]byte, 3*chunkBytes)}, {Byte, table[:2*chunkBytes]}, {T5Q, nil},
	}
	rng := rand.New(rand.NewPCG(4, 10))
	for range 6 {
		rng.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		l := &line{ctx: t.Context(), work: make(chan *unit, len(sources))}
		var units []*unit
		for _, s := range sources {
			b, coded := block(t, s.m, s.data)
			p := &payload{r: bytes.NewReader(coded), left: b.Payload}
			u := &unit{block: b, payload: p.next, ready: make(chan struct{}), counts: new(counts)}
			units = append(units, u)
			l.work <- u
		}
		close(l.work)
		new(decoding).serve(l)
		for i, u := range units {
			if u.err != nil || !bytes.Equal(bytes.Join(u.pieces, nil), sources[i].data) {
				t.Fatalf("block %d of %d bytes (%v): wrong bytes, error %v", i, len(sources[i].data), sources[i].m, u.err)
			}
			total := uint64(0)
			for _, c := range u.counts {
				total += c
			}
			if total != uint64(u.block.Symbols()) {
				t.Fatalf("block %d: %d symbols counted, want %d", i, total, u.block.Symbols())
			}
		}
	}
}
