package coded

import "testing"

// A large block of planes is at most 0.02 % above the order-0 entropy of its
// symbols, head and all. A table of values has more symbols that are rarer than
// 1/16384: the publisher's frequencies, which we must use, cost it some 0.03 %.
func TestEntropy(t *testing.T) {
	for i, m := range []Method{T5Q, Byte} {
		most := []float64{0.0002, 0.0005}[i]
		source := samples()[i]
		b, _ := block(t, m, source)
		var c counts
		if m == Byte {
			c.add(source)
		} else {
			symbols, _ := naiveSymbols(source[:benchPlane], source[benchPlane:2*benchPlane], source[2*benchPlane:])
			c.add(symbols)
		}
		bound := c.entropy()
		bits := 8 * float64(b.CodedSize())
		t.Logf("%s: %d bytes, %.2f %% of raw, %.4f %% above the entropy; the table's estimate is off by %.4f %%", m, b.CodedSize(),
			100*float64(b.CodedSize())/float64(b.Size), 100*(bits/bound-1), 100*(b.Estimate()/bound-1))
		// Of what is above, the table's part is the format's; the coder's own is
		// its 8 bytes of state and next to nothing.
		ideal := c.ideal(b.freq)
		if own := 8*float64(b.Payload) - ideal; ideal < bound || own < 0 || own > 64+1e-5*ideal {
			t.Errorf("%s: the entropy is %.0f bits, %.0f with the table, and the coder takes %.0f more", m, bound, ideal, own)
		}
		if over := bits/bound - 1; over < 0 || over > most {
			t.Errorf("%s: %.4f %% above the entropy", m, 100*over)
		}
	}
}
