package mlx

// spread has the bits of a byte at the even places of a word.
var spread = func() (t [256]uint16) {
	for i := range t {
		for b := range 8 {
			t[i] |= uint16(i>>b&1) << (2 * b)
		}
	}
	return t
}()

// gather has the bits at the even places of a byte in four bits.
var gather = func() (t [256]byte) {
	for i := range t {
		for b := range 4 {
			t[i] |= byte(i>>(2*b)&1) << b
		}
	}
	return t
}()

// encodeTrits writes 2-bit codes, weight + 1, of 8 columns for each byte of the
// planes p and n, which have no bit in common. dst has twice their length.
func encodeTrits(dst, p, n []byte) {
	for i, x := range p {
		c := 0x5555 + spread[x] - spread[n[i]] // 1 + p - n in every pair of bits, without carries
		dst[2*i], dst[2*i+1] = byte(c), byte(c>>8)
	}
}

// decodeTrits is the inverse. It returns the column of the first code that is 3,
// or -1.
func decodeTrits(p, n, src []byte) int {
	bad := -1
	for i := range p {
		a, b := src[2*i], src[2*i+1]
		p[i] = gather[a>>1&0x55] | gather[b>>1&0x55]<<4
		n[i] = gather[^(a|a>>1)&0x55] | gather[^(b|b>>1)&0x55]<<4
		if three := gather[a&(a>>1)&0x55] | gather[b&(b>>1)&0x55]<<4; three != 0 && bad < 0 {
			for bad = 8 * i; three&1 == 0; bad++ {
				three >>= 1
			}
		}
	}
	return bad
}

// packCodes writes codes of some bits each as one stream, the least significant
// bit first. dst has len(q)*bits/8 bytes.
func packCodes(dst, q []byte, bits int) {
	var acc, have uint
	for _, c := range q {
		acc |= uint(c) << have
		for have += uint(bits); have >= 8; have -= 8 {
			dst[0] = byte(acc)
			dst, acc = dst[1:], acc>>8
		}
	}
}

// unpackCodes is the inverse.
func unpackCodes(q, src []byte, bits int) {
	var acc, have uint
	mask := uint(1)<<bits - 1
	for i := range q {
		for have < uint(bits) {
			acc |= uint(src[0]) << have
			src, have = src[1:], have+8
		}
		q[i] = byte(acc & mask)
		acc, have = acc>>bits, have-uint(bits)
	}
}
