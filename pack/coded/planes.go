package coded

import "encoding/binary"

// The two forms of three bit planes (§4). Weight k is bit k%8 of byte k/8 of each plane;
// its state is bp + 3*bn + br, and a symbol is the states of three weights as
// digits of base 5, the first weight the lowest.
//
// Work goes by groups of 16 symbols: 48 weights, six bytes of each plane.
const (
	groupSymbols = 16
	groupBytes   = 6

	// batch is how much is converted and coded at once: symbols that stay in
	// the first-level cache between the two.
	batchSymbols = 4096
	batchBytes   = batchSymbols / 8 * 3 // of one plane
)

// spread holds, for 12 bits of one plane, the digits of four symbols: byte i is
// b0 + 5*b1 + 25*b2 of bits 3i to 3i+2.
var spread = func() (t [4096]uint32) {
	for v := range t {
		for i := range 4 {
			b := uint32(v) >> (3 * i)
			t[v] |= (b&1 + b>>1&1*5 + b>>2&1*25) << (8 * i)
		}
	}
	return t
}()

// digits holds, for a symbol, three bits of each plane: bp at bit 0, bn at 24,
// br at 48. Unused symbols have none.
var digits = func() (t [256]uint64) {
	const p, m, r = 1, 1 << 24, 1 << 48
	states := [5]uint64{0, p, p | r, m, m | r}
	for s := range 125 {
		t[s] = states[s%5] | states[s/5%5]<<1 | states[s/25]<<2
	}
	return t
}()

// toSymbols converts groups: dst[16*groups] from the first 6*groups bytes of
// the planes, each of which has two bytes more. It reports whether all weights
// have a state; if not, dst means nothing.
func toSymbols(dst, bp, bn, br []byte, groups int) bool {
	const mask = 1<<48 - 1
	var bad uint64
	for i := range groups {
		at := i * groupBytes
		p := binary.LittleEndian.Uint64(bp[at : at+8])
		m := binary.LittleEndian.Uint64(bn[at : at+8])
		r := binary.LittleEndian.Uint64(br[at : at+8])
		bad |= (p&m | r&^(p|m)) & mask
		d := dst[i*groupSymbols : i*groupSymbols+groupSymbols]
		// Digits add up without carries: a valid symbol is at most 124, and
		// the bytes of any are at most 31 + 3*31 + 31.
		a := uint64(spread[p&4095]+spread[r&4095]+3*spread[m&4095]) |
			uint64(spread[p>>12&4095]+spread[r>>12&4095]+3*spread[m>>12&4095])<<32
		b := uint64(spread[p>>24&4095]+spread[r>>24&4095]+3*spread[m>>24&4095]) |
			uint64(spread[p>>36&4095]+spread[r>>36&4095]+3*spread[m>>36&4095])<<32
		binary.LittleEndian.PutUint64(d, a)
		binary.LittleEndian.PutUint64(d[8:], b)
	}
	return bad == 0
}

// toPlanes is the reverse: it writes 6*groups bytes of each plane, and two
// more after them that mean nothing.
func toPlanes(bp, bn, br, src []byte, groups int) {
	for i := range groups {
		s := src[i*groupSymbols : i*groupSymbols+groupSymbols]
		a, b := binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
		// Four symbols are 12 bits of each plane at bits 0, 24 and 48.
		t0 := digits[a&255] | digits[a>>8&255]<<3 | digits[a>>16&255]<<6 | digits[a>>24&255]<<9
		t1 := digits[a>>32&255] | digits[a>>40&255]<<3 | digits[a>>48&255]<<6 | digits[a>>56]<<9
		t2 := digits[b&255] | digits[b>>8&255]<<3 | digits[b>>16&255]<<6 | digits[b>>24&255]<<9
		t3 := digits[b>>32&255] | digits[b>>40&255]<<3 | digits[b>>48&255]<<6 | digits[b>>56]<<9
		lo, hi := t0|t1<<12, t2|t3<<12 // br is cut off at the top here
		const plane = 1<<24 - 1
		at := i * groupBytes
		binary.LittleEndian.PutUint64(bp[at:at+8], lo&plane|hi&plane<<24)
		binary.LittleEndian.PutUint64(bn[at:at+8], lo>>24&plane|hi>>24&plane<<24)
		binary.LittleEndian.PutUint64(br[at:at+8], t0>>48|t1>>48<<12|t2>>48<<24|t3>>48<<36)
	}
}
