package coded

import "math"

// counts says how often each symbol occurs.
type counts [256]uint64

// add counts symbols. Four tables keep equal neighbours from waiting for each
// other; what is added at once is less than 2^32 bytes.
func (c *counts) add(symbols []byte) {
	var t [4][256]uint32
	for len(symbols) >= 8 {
		s := (*[8]byte)(symbols)
		t[0][s[0]]++
		t[1][s[1]]++
		t[2][s[2]]++
		t[3][s[3]]++
		t[0][s[4]]++
		t[1][s[5]]++
		t[2][s[6]]++
		t[3][s[7]]++
		symbols = symbols[8:]
	}
	for _, s := range symbols {
		t[0][s]++
	}
	for s := range c {
		c[s] += uint64(t[0][s]) + uint64(t[1][s]) + uint64(t[2][s]) + uint64(t[3][s])
	}
}

// frequencies returns the publisher's table for the first n symbols (§6). Its
// sum is scale unless nothing was counted: then all of it is symbol 0's, which
// is what the rule for a missing rest gives.
func (c *counts) frequencies(n int) []uint16 {
	var total uint64
	for _, v := range c[:n] {
		total += v
	}
	freq := make([]uint16, n)
	sum, most := 0, 0 // most: the symbol with the largest count, the lowest of several
	for s, v := range c[:n] {
		if v > c[most] {
			most = s
		}
		if v > 0 {
			freq[s] = uint16(max(1, v*scale/total))
			sum += int(freq[s])
		}
	}
	for sum > scale { // rare symbols were raised to 1
		largest := 0
		for s, f := range freq {
			if f > freq[largest] {
				largest = s
			}
		}
		take := min(sum-scale, int(freq[largest])-1)
		freq[largest] -= uint16(take)
		sum -= take
	}
	freq[most] += uint16(scale - sum)
	return freq
}

// entropy returns the order-0 entropy of what was counted, in bits: no code
// that gives each symbol a fixed share of bits needs less.
func (c *counts) entropy() float64 {
	var total uint64
	for _, v := range c {
		total += v
	}
	bits := 0.0
	for _, v := range c {
		if v > 0 {
			bits += float64(v) * math.Log2(float64(total)/float64(v))
		}
	}
	return bits
}

// ideal returns the bits that what was counted needs if each symbol costs what
// its share of scale in a table says: the entropy, and what rounding the
// shares to 1/scale costs.
func (c *counts) ideal(freq []uint16) float64 {
	bits := 0.0
	for s, f := range freq {
		if f > 0 {
			bits += float64(c[s]) * math.Log2(scale/float64(f))
		}
	}
	return bits
}
