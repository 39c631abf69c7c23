package coded

// Two payloads are decoded in one loop where there is a kernel for it. A symbol
// needs the one before of its state: two loads, a multiplication and shifts,
// some 20 cycles in which the two states of one payload keep a core busy for
// half of the time. Blocks do not depend on each other, so that another's two
// states fill the rest.

// lane is one of the payloads.
type lane struct {
	table *decodeTable
	dst   []byte
	src   []byte
	x     states
}

// decodePairGeneric decodes symbols, a multiple of four, in each lane: dst has
// room for them, and src two bytes for each. It returns how many bytes of src
// they took and leaves the new states in x.
func decodePairGeneric(lanes *[2]lane, symbols int) (eaten0, eaten1 int) {
	var eaten [2]int
	for i := range lanes {
		l := &lanes[i]
		n, pos := l.table.decode(&l.x, l.dst[:symbols], l.src, 0)
		for ; n < symbols; n++ {
			l.dst[n], pos = l.table.decodeOne(&l.x, n, l.src, pos)
		}
		eaten[i] = pos
	}
	return eaten[0], eaten[1]
}

// minTogether is the number of symbols from which together is worth a call.
const minTogether = 64

// room is for how many symbols dst and the payload's chunk are good, whatever
// bytes they take: a multiple of four.
func (d *blockDecoder) room() int {
	return min(len(d.dst), (d.n+window-d.pos)/2) &^ 3
}

// together decodes n symbols of each block, which have room for them.
func together(a, b *blockDecoder, n int) {
	lanes := [2]lane{
		{&a.table, a.dst[:n], a.chunk[a.pos : a.pos+2*n], a.x},
		{&b.table, b.dst[:n], b.chunk[b.pos : b.pos+2*n], b.x},
	}
	eatenA, eatenB := decodePair(&lanes, n)
	a.x, a.dst, a.pos = lanes[0].x, a.dst[n:], a.pos+eatenA
	b.x, b.dst, b.pos = lanes[1].x, b.dst[n:], b.pos+eatenB
}
