package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"npack/gpu"
	"npack/gpu/kernels"
	"npack/runtime/reference"
)

// geometry is what the kernels of attention see of a model and a pass.
type geometry struct {
	heads, kvHeads, dim, pairs int
	pos                        []int32 // of each column
	norm                       bool
}

func geometries() []geometry {
	return []geometry{
		{4, 2, 16, 8, []int32{0, 1, 2}, true},
		{5, 1, 20, 10, []int32{62, 63, 64, 65}, true},
		{3, 3, 18, 9, []int32{5}, false},
		{2, 1, 130, 64, []int32{127, 128}, false},
		{6, 2, 64, 16, []int32{255, 256, 257}, true},
		{8, 1, 128, 64, []int32{300}, true},
		{1, 1, 260, 130, []int32{70}, true},
	}
}

var caches = []string{"f16", "f32", "i8"}

// elem is the size of a cache's element in bytes.
var elem = map[string]int{"f16": 2, "f32": 4, "i8": 1}

// permuted is where element d of a key lies (cache.k).
func permuted(d int) int { return (d/64*16+d%16)*4 + d/16%4 }

// vectorIndex is where a head vector lies in a layer's cache (cache.k).
func vectorIndex(pos, value, head, kvHeads int) int {
	return ((pos/256*2+value)*kvHeads+head)*256 + pos%256
}

// cacheWords is the size of a cache that holds position last, in words.
func cacheWords(last, kvHeads, pad int, kind string) int {
	return (last/256 + 1) * 2 * kvHeads * 256 * pad * elem[kind] / 4
}

// store returns the elements of x [pad] in the cache's type, and as the cache gives them
// back.
func store(x []float32, kind string) (words []uint32, scale float32, back []float32) {
	back = append([]float32(nil), x...)
	raw := make([]byte, 0, 4*len(x))
	var m float32
	for _, v := range x {
		m = max(m, float32(math.Abs(float64(v))))
	}
	q := make([]int32, len(x))
	if kind == "i8" && m >= 0x1p-40 {
		scale = reference.QuantizeInt8(q, x, m)
	}
	for i, v := range x {
		switch kind {
		case "f16":
			h := reference.F32toF16(v)
			back[i] = reference.F16toF32(h)
			raw = append(raw, byte(h), byte(h>>8))
		case "i8":
			back[i] = mul(float32(q[i]), scale)
			raw = append(raw, byte(q[i]))
		default:
			b := math.Float32bits(v)
			raw = append(raw, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
		}
	}
	for i := 0; i < len(raw); i += 4 {
		words = append(words, uint32(raw[i])|uint32(raw[i+1])<<8|uint32(raw[i+2])<<16|uint32(raw[i+3])<<24)
	}
	return words, scale, back
}

// rotated norms and rotates a head in plain Go.
func rotated(x, g []float32, cos, sin []float32) []float32 {
	y := append([]float32(nil), x...)
	if g != nil {
		y = normed(x, g, float32(1/float64(len(x))))
	}
	for i, v := range y {
		y[i] = reference.Keep(v, 50)
	}
	n := len(cos)
	for i := range n {
		a, b := y[i], y[i+n]
		y[i] = reference.Keep(sub(mul(a, cos[i]), mul(b, sin[i])), 50)
		y[i+n] = reference.Keep(add(mul(b, cos[i]), mul(a, sin[i])), 50)
	}
	return y
}

func TestHeads(t *testing.T) { texts(t, checkHeads) }

func checkHeads(t testing.TB, c *card, capability int) {
	for i, g := range geometries() {
		for _, kind := range caches {
			if !c.wants("heads_" + kind) {
				continue
			}
			r := random(uint64(i))
			pad, n, last := kernels.HeadPad(g.dim), len(g.pos)+1, int(g.pos[len(g.pos)-1])
			koff, voff := g.heads*g.dim+5, (g.heads+g.kvHeads)*g.dim+9
			stride := voff + g.kvHeads*g.dim
			y := randomVector(r, n*stride, 2)
			for d := range g.dim { // a key of nearly nothing
				y[stride+koff+d] = float32(math.Ldexp(r.Float64(), -45))
			}
			qn, kn := randomVector(r, g.dim, 1), randomVector(r, g.dim, 1)
			cos, sin := randomVector(r, (last+1)*g.pairs, 0.5), randomVector(r, (last+1)*g.pairs, 0.5)
			flags, qNorm, kNorm := 0, []float32(nil), []float32(nil)
			if g.norm {
				flags, qNorm, kNorm = kernels.HeadsNorm, qn, kn
			}
			// Column 0 is another run's.
			pos := append([]int32{9}, g.pos...)
			size := cacheWords(last, g.kvHeads, pad, kind)
			cache, scales := make([]uint32, size), make([]float32, size*4/elem[kind]/pad)
			queries := make([]float32, n*g.heads*pad)
			for col := 1; col < n; col++ {
				p := int(pos[col])
				co, si := cos[p*g.pairs:][:g.pairs], sin[p*g.pairs:][:g.pairs]
				for h := range g.heads {
					for d, v := range rotated(y[col*stride+h*g.dim:][:g.dim], qNorm, co, si) {
						queries[(col*g.heads+h)*pad+permuted(d)] = v
					}
				}
				for h := range g.kvHeads {
					key, value := make([]float32, pad), make([]float32, pad)
					for d, v := range rotated(y[col*stride+koff+h*g.dim:][:g.dim], kNorm, co, si) {
						key[permuted(d)] = v
					}
					for d := range g.dim {
						value[d] = reference.Keep(y[col*stride+voff+h*g.dim+d], 50)
					}
					for v, x := range [][]float32{key, value} {
						at := vectorIndex(p, v, h, g.kvHeads)
						words, scale, _ := store(x, kind)
						copy(cache[at*len(words):], words)
						scales[at] = scale
					}
				}
			}
			qh, kv, kvs := upload(c, make([]float32, n*g.heads*pad)), upload(c, make([]uint32, size)), upload(c, make([]float32, len(scales)))
			fault := upload(c, []int32{math.MaxInt32})
			c.launch("heads_"+kind, g.heads+2*g.kvHeads, n-1, 1, upload(c, y), upload(c, qn), upload(c, kn), upload(c, pos), upload(c, cos), upload(c, sin),
				qh, kv, kvs, fault, num(g.heads), num(g.kvHeads), num(g.dim), num(g.pairs), num(stride), num(koff), num(voff), num(1),
				real32(float32(1/float64(g.dim))), real32(eps), num(flags), num(4))
			what := fmt.Sprintf("%s, %+v", kind, g)
			equal(t, what+": queries", c.floats(qh), queries)
			equal(t, what+": cache", c.words(kv), cache)
			if kind == "i8" {
				equal(t, what+": scales", c.floats(kvs), scales)
			}
			equal(t, what+": fault", c.words(fault), []uint32{math.MaxInt32})
		}
	}
}

// TestHeadsFaults stores what the cache cannot hold.
func TestHeadsFaults(t *testing.T) { texts(t, checkHeadsFaults) }

func checkHeadsFaults(t testing.TB, c *card, capability int) {
	const dim = 20
	for _, kind := range caches {
		if !c.wants("heads_" + kind) {
			continue
		}
		for what, v := range map[string]float32{"infinite": float32(math.Inf(1)), "not a number": float32(math.NaN()), "large": 65520, "less": 65519} {
			for place, at := range map[string][]int{"query": {3}, "key": {dim + 7}, "value": {3*dim - 1}, "key and value": {dim, 2 * dim}} {
				y := make([]float32, 3*dim)
				for _, d := range at {
					y[d] = v
				}
				want := uint32(math.MaxInt32)
				if place != "query" && (what == "infinite" || what == "not a number" || what == "large" && kind == "f16") {
					want = 4
				}
				fault := upload(c, []int32{math.MaxInt32})
				// No pair is rotated, so that the value is stored as it is.
				c.launch("heads_"+kind, 3, 1, 1, upload(c, y), gpu.Arg{}, gpu.Arg{}, upload(c, []int32{0}), upload(c, []float32{1}), upload(c, []float32{0}),
					c.room(64), c.room(cacheWords(0, 1, 64, kind)), c.room(512), fault, num(1), num(1), num(dim), num(0), num(3*dim), num(dim), num(2*dim), num(0),
					real32(1./dim), real32(eps), num(0), num(4))
				equal(t, fmt.Sprintf("%s: %s in a %s", kind, what, place), c.words(fault), []uint32{want})
			}
		}
	}
}

// chunk is one chunk of attention of a head in plain Go.
func chunk(q []float32, keys, values [][]float32, scale float32) (m, l float32, o []float32) {
	var p [64]float32
	o = make([]float32, len(q))
	for j, k := range keys {
		var lanes [16]float32
		for d := range q {
			lanes[d%16] = add(lanes[d%16], mul(q[d], k[d]))
		}
		if p[j] = mul(reference.Fold(lanes[:]), scale); j == 0 || p[j] > m {
			m = p[j]
		}
	}
	for j, v := range values {
		p[j] = reference.Exp(sub(p[j], m))
		for d := range o {
			o[d] = add(o[d], mul(p[j], v[d]))
		}
	}
	for d := range o {
		o[d] = reference.Keep(o[d], 40)
	}
	return m, reference.Fold(p[:]), o
}

// join puts the chunks of a head together in plain Go.
func join(m, l []float32, o [][]float32) []float32 {
	most, sum, out := m[0], float32(0), make([]float32, len(o[0]))
	for _, v := range m {
		most = max(most, v)
	}
	for k := range m {
		w := reference.Exp(sub(m[k], most))
		sum = add(sum, mul(l[k], w))
		for d := range out {
			out[d] = add(out[d], mul(o[k][d], w))
		}
	}
	for d := range out {
		out[d] = mul(out[d], reference.Recip(sum))
	}
	return out
}

// kept applies keep_50, as queries, keys and values have been.
func kept(x []float32) []float32 {
	for i, v := range x {
		x[i] = reference.Keep(v, 50)
	}
	return x
}

// TestAttention compares the chunks' raw sums, then what is made of them.
func TestAttention(t *testing.T) { texts(t, checkAttention) }

func checkAttention(t testing.TB, c *card, capability int) {
	for i, g := range geometries() {
		for _, kind := range caches {
			if c.wants("attn_"+kind) || c.only == "attn_join" && kind == "f32" {
				attention(t, c, random(uint64(i)), &g, kind)
			}
		}
	}
}

func attention(t testing.TB, c *card, r *rand.Rand, g *geometry, kind string) {
	pad, n, last := kernels.HeadPad(g.dim), len(g.pos)+1, int(g.pos[len(g.pos)-1])
	size := cacheWords(last, g.kvHeads, pad, kind)
	cache, scales := make([]uint32, size), make([]float32, size*4/elem[kind]/pad)
	for i := range cache {
		cache[i] = math.MaxUint32 // positions that are not there yet
	}
	back := [2][][][]float32{} // [key, value][head][position]
	for v := range 2 {
		back[v] = make([][][]float32, g.kvHeads)
		for h := range g.kvHeads {
			for p := range last + 1 {
				x := make([]float32, pad)
				for d, f := range kept(randomVector(r, g.dim, 1)) {
					if d < g.dim && v == 0 {
						x[permuted(d)] = f
					} else {
						x[d] = f
					}
				}
				words, scale, b := store(x, kind)
				at := vectorIndex(p, v, h, g.kvHeads)
				copy(cache[at*len(words):], words)
				scales[at] = scale
				if v == 0 {
					plain := make([]float32, g.dim)
					for d := range plain {
						plain[d] = b[permuted(d)]
					}
					b = plain
				}
				back[v][h] = append(back[v][h], b[:g.dim])
			}
		}
	}
	queries := make([]float32, n*g.heads*pad)
	plain := make([][]float32, n*g.heads)
	for i := range plain {
		plain[i] = kept(randomVector(r, g.dim, 1))
		for d, f := range plain[i] {
			queries[i*pad+permuted(d)] = f
		}
	}
	scale := float32(1 / math.Sqrt(float64(g.dim)))
	chunks, group := last/64+2, g.heads/g.kvHeads // one chunk too many, as a grid for the cache's step has
	pos := append([]int32{0}, g.pos...)
	ostride := g.heads*g.dim + 1
	part, po := make([]float32, (n-1)*chunks*g.heads*2), make([]float32, (n-1)*chunks*g.heads*pad)
	out, most := make([]float32, n*ostride), make([]uint32, n)
	for col := range n - 1 {
		p := int(g.pos[col])
		for h := range g.heads {
			var ms, ls []float32
			var os [][]float32
			for k := range p/64 + 1 {
				from, to := 64*k, min(64*k+64, p+1)
				m, l, o := chunk(plain[(col+1)*g.heads+h], back[0][h/group][from:to], back[1][h/group][from:to], scale)
				slot := (col*chunks+k)*g.heads + h
				part[2*slot], part[2*slot+1] = m, l
				copy(po[slot*pad:], o)
				ms, ls, os = append(ms, m), append(ls, l), append(os, o)
			}
			for d, v := range join(ms, ls, os) {
				out[(col+1)*ostride+h*g.dim+d] = v
				most[col+1] = max(most[col+1], math.Float32bits(v)&^(1<<31))
			}
		}
	}
	zeros := func(n int) gpu.Arg { return upload(c, make([]float32, n)) }
	gotPart, gotPo, fault, positions := zeros(len(part)), zeros(len(po)), upload(c, []int32{math.MaxInt32}), upload(c, pos)
	c.launch("attn_"+kind, chunks, g.kvHeads*((group+3)/4), n-1, upload(c, queries), upload(c, cache), upload(c, scales), positions,
		gotPart, gotPo, fault, num(g.heads), num(g.kvHeads), num(g.dim), num(1), num(chunks), real32(scale), num(5))
	what := fmt.Sprintf("%s, %+v", kind, *g)
	equal(t, what+": largest scores and sums", c.floats(gotPart), part)
	equal(t, what+": sums of values", c.floats(gotPo), po)
	equal(t, what+": fault", c.words(fault), []uint32{math.MaxInt32})
	gotOut, amax := zeros(len(out)), upload(c, make([]uint32, n))
	c.launch("attn_join", g.heads, n-1, 1, gotPart, gotPo, positions, gotOut, amax, num(g.heads), num(g.dim), num(1), num(chunks), num(ostride))
	equal(t, what+": output", c.floats(gotOut), out)
	equal(t, what+": amax", c.words(amax), most)
}

// TestAttentionFault has a score that is not finite.
func TestAttentionFault(t *testing.T) { texts(t, checkAttentionFault) }

func checkAttentionFault(t testing.TB, c *card, capability int) {
	for bad := range 3 {
		if !c.wants("attn_f32") {
			return
		}
		q, cache := make([]float32, 64), make([]float32, 2*256*64)
		for i := range q {
			q[i] = 3e38
		}
		if bad < 2 {
			cache[70*bad*64/2+5] = 3e38 // of position 0 or 35
		}
		fault := upload(c, []int32{math.MaxInt32})
		c.launch("attn_f32", 1, 1, 1, upload(c, q), upload(c, cache), gpu.Arg{}, upload(c, []int32{40}), c.room(2), c.room(64), fault,
			num(1), num(1), num(64), num(0), num(1), real32(0.125), num(5))
		want := uint32(5)
		if bad == 2 {
			want = math.MaxInt32
		}
		equal(t, "fault", c.words(fault), []uint32{want})
	}
}

// TestJoinMany joins more chunks than a block has threads.
func TestJoinMany(t *testing.T) { texts(t, checkJoinMany) }

func checkJoinMany(t testing.TB, c *card, capability int) {
	const chunks, dim, pad = 300, 3, 64
	r := random(8)
	part, po := make([]float32, 2*chunks), make([]float32, chunks*pad)
	var ms, ls []float32
	var os [][]float32
	for k := range chunks {
		m, l, o := float32(r.NormFloat64()*4), float32(1+r.Float64()), randomVector(r, dim, 1)
		part[2*k], part[2*k+1] = m, l
		copy(po[k*pad:], o)
		ms, ls, os = append(ms, m), append(ls, l), append(os, o)
	}
	out := c.room(dim)
	c.launch("attn_join", 1, 1, 1, upload(c, part), upload(c, po), upload(c, []int32{64*chunks - 1}), out, upload(c, []uint32{0}),
		num(1), num(dim), num(0), num(chunks), num(dim))
	equal(t, "output", c.floats(out), join(ms, ls, os))
}
