package coded

import "encoding/binary"

// The coder (§5): static order-0 rANS with two interleaved states, renormalised
// by bytes. A state x keeps stateMin <= x < 2^31 between symbols.
const (
	scaleBits = 14
	scale     = 1 << scaleBits // the sum of a table's frequencies
	stateMin  = 1 << 23
)

// window is how many bytes past its position the decoder loads at once. What
// holds a payload has so many spare bytes at the end.
const window = 8

// decodeTable says for each slot of [0, scale) whose it is. With its 18 KiB one
// stays in a first-level cache of 32 KiB and two nearly do; a table with all three
// numbers in each slot (64 or 128 KiB) does not, and measured 0.75 times as fast.
type decodeTable struct {
	symbol [scale]uint8
	span   [256]span
}

// span is what a step of the decoder needs of a symbol of frequency f: with
// rest = scale - f,
//
//	f*(x>>14) + x&(scale-1) - cum = x - cum - rest*(x>>14)
type span struct{ rest, cum uint32 }

// set fills t from frequencies whose sum is scale.
func (t *decodeTable) set(freq []uint16) {
	cum := uint32(0)
	for s, f := range freq {
		t.span[s] = span{scale - uint32(f), cum}
		slots := t.symbol[cum : cum+uint32(f)]
		for i := range slots {
			slots[i] = uint8(s)
		}
		cum += uint32(f)
	}
}

// states are the two interleaved states: x[i&1] is symbol i's.
type states [2]uint32

// decode decodes symbols in groups of four, the first of them of state 0, until
// less than four are wanted or pos is past len(src) - window. It returns how
// many it made and the new pos.
//
// A branch for each of the 0, 1 or 2 bytes that a symbol takes would be
// mispredicted all the time. Instead the bytes wanted are counted from the two
// comparisons, and both states are filled from one load.
func (t *decodeTable) decode(x *states, dst, src []byte, pos int) (n, newPos int) {
	x0, x1 := x[0], x[1]
	for n <= len(dst)-4 && pos <= len(src)-window {
		w := binary.BigEndian.Uint64(src[pos:])

		s0 := t.symbol[x0&(scale-1)]
		e0 := &t.span[s0]
		dst[n] = s0
		x0 = x0 - e0.cum - e0.rest*(x0>>scaleBits)
		s1 := t.symbol[x1&(scale-1)]
		e1 := &t.span[s1]
		dst[n+1] = s1
		x1 = x1 - e1.cum - e1.rest*(x1>>scaleBits)
		k0 := (x0-stateMin)>>31 + (x0-stateMin>>8)>>31 // bytes: bit 31 is the borrow
		y0 := (uint64(x0)<<32 | w>>32) << (k0 * 8 & 63)
		k1 := (x1-stateMin)>>31 + (x1-stateMin>>8)>>31
		y1 := (uint64(x1)<<32 | uint64(uint32(y0))) << (k1 * 8 & 63)
		x0, x1 = uint32(y0>>32), uint32(y1>>32)
		k := k0 + k1
		w <<= k * 8 & 63

		s2 := t.symbol[x0&(scale-1)]
		e2 := &t.span[s2]
		dst[n+2] = s2
		x0 = x0 - e2.cum - e2.rest*(x0>>scaleBits)
		s3 := t.symbol[x1&(scale-1)]
		e3 := &t.span[s3]
		dst[n+3] = s3
		x1 = x1 - e3.cum - e3.rest*(x1>>scaleBits)
		k2 := (x0-stateMin)>>31 + (x0-stateMin>>8)>>31
		y2 := (uint64(x0)<<32 | w>>32) << (k2 * 8 & 63)
		k3 := (x1-stateMin)>>31 + (x1-stateMin>>8)>>31
		y3 := (uint64(x1)<<32 | uint64(uint32(y2))) << (k3 * 8 & 63)
		x0, x1 = uint32(y2>>32), uint32(y3>>32)

		pos += int(k + k2 + k3)
		n += 4
	}
	x[0], x[1] = x0, x1
	return n, pos
}

// decodeOne is decode for one symbol of state i&1, as §5 defines it. It needs
// two bytes after pos.
func (t *decodeTable) decodeOne(x *states, i int, src []byte, pos int) (symbol byte, newPos int) {
	v := x[i&1]
	slot := v & (scale - 1)
	symbol = t.symbol[slot]
	e := &t.span[symbol]
	v = v - e.cum - e.rest*(v>>scaleBits)
	for v < stateMin {
		v = v<<8 | uint32(src[pos])
		pos++
	}
	x[i&1] = v
	return symbol, pos
}

// encodeSymbol is what encoding a symbol of frequency f needs in place of a
// division: x/f = x*reciprocal >> shift for all x < 2^31 (§5).
type encodeSymbol struct {
	most       uint32 // f * 2^17 - 1, the largest state before the step
	reciprocal uint32 // ceil(2^shift / f)
	cum        uint32
	rest       uint16 // scale - f
	shift      uint16 // 31 + ceil(log2 f)
}

type encodeTable [256]encodeSymbol

func (t *encodeTable) set(freq []uint16) {
	*t = encodeTable{}
	cum := uint32(0)
	for s, f := range freq {
		if f == 0 {
			continue
		}
		shift := uint16(31)
		for 1<<(shift-31) < int(f) {
			shift++
		}
		t[s] = encodeSymbol{
			most:       uint32(f)<<17 - 1,
			reciprocal: uint32((1<<shift + uint64(f) - 1) / uint64(f)),
			cum:        cum, rest: scale - f, shift: shift,
		}
		cum += uint32(f)
	}
}

// encode encodes symbols from the last to the first, the first being of state
// 0, and puts their bytes before out[pos:]. It stops when fewer than 2*4 bytes
// are left there and returns how many symbols are still to do.
func (t *encodeTable) encode(x *states, symbols, out []byte, pos int) (left, newPos int) {
	n := len(symbols)
	for n&3 != 0 && pos >= 8 {
		n--
		x[n&1], pos = t[symbols[n]].push(x[n&1], out, pos)
	}
	if n&3 != 0 {
		return n, pos
	}
	x0, x1 := x[0], x[1]
	for n >= 4 && pos >= 8 && pos <= len(out) {
		s := symbols[n-4 : n : n]
		x1, pos = t[s[3]].push(x1, out, pos)
		x0, pos = t[s[2]].push(x0, out, pos)
		x1, pos = t[s[1]].push(x1, out, pos)
		x0, pos = t[s[0]].push(x0, out, pos)
		n -= 4
	}
	x[0], x[1] = x0, x1
	return n, pos
}

// push puts the bytes that x has too much before out[pos:] and the symbol into
// x. Two bytes are stored always; what counts is how far pos moves.
func (e *encodeSymbol) push(x uint32, out []byte, pos int) (uint32, int) {
	binary.BigEndian.PutUint16(out[pos-2:], uint16(x))
	k := (e.most-x)>>31 + (e.most-x>>8)>>31
	x >>= k * 8 & 31
	q := uint32(uint64(x) * uint64(e.reciprocal) >> (e.shift & 63))
	return x + e.cum + q*uint32(e.rest), pos - int(k)
}
