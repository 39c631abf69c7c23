// Package reference is the definition of the forward pass: NUMERICS.md in
// plain Go, meant to be read. Logits of every other backend equal its logits,
// bit for bit. It is slow; only the linears and attention use more than one
// core, over outputs that do not depend on each other.
//
// reference.go is the forward pass; functions.go has recip, rsqrt and exp,
// fixed.go the fixed-point activations, rotary.go the rotary table, half.go
// half precision and ops.go the operations on float32 that all of it is made of.
package reference

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"npack/runtime/backend"
	"npack/ternary"
)

// Backend is the reference backend. The zero value is ready to use.
type Backend struct{}

// Name returns "reference".
func (Backend) Name() string { return "reference" }

// Load prepares m, which must be valid ([ternary.Model.Validate]).
func (Backend) Load(_ context.Context, m *ternary.Model, o backend.Options) (backend.Instance, error) {
	if err := backend.CheckWeights(m); err != nil {
		return nil, err
	}
	if o.Activations == 0 {
		o.Activations = backend.Exact
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	c := &m.Config
	return &instance{
		c: c, m: m, o: o,
		rope:      NewRotary(c.RotaryDims, c.RopeTheta),
		invHidden: float32(1 / float64(c.Hidden)), invHead: float32(1 / float64(c.HeadDim)), invFFN: float32(1 / float64(c.Intermediate)),
		invSqrtHead: float32(1 / math.Sqrt(float64(c.HeadDim))), // both correctly rounded everywhere
	}, nil
}

type instance struct {
	c    *ternary.Config
	m    *ternary.Model
	o    backend.Options
	rope *Rotary

	invHidden, invHead, invFFN float32 // 1/n of the three norm lengths
	invSqrtHead                float32
}

func (in *instance) Config() *ternary.Config  { return in.c }
func (in *instance) Options() backend.Options { return in.o }
func (in *instance) Close() error             { return nil }

func (in *instance) NewSequence(context int) (backend.Sequence, error) {
	extent, err := backend.NewExtent(context, MaxPositions)
	if err != nil {
		return nil, err
	}
	in.rope.Grow(context)
	return newSequence(in.c, in.o.KV, extent), nil
}

// token is one column of a batch.
type token struct {
	backend.Column
	seq *sequence
}

// Forward runs all tokens of all runs through the model, layer by layer. No
// column depends on another but through the cache, so neither batch nor split
// can change a bit.
func (in *instance) Forward(ctx context.Context, runs []backend.Run) error {
	batch, err := in.tokens(runs)
	if err != nil || len(batch) == 0 {
		return err
	}
	// x [N, Hidden]: the residual stream
	x := make([][]float32, len(batch))
	emb := in.m.InputEmbedding()
	for i, t := range batch {
		x[i] = make([]float32, in.c.Hidden)
		for c, q := range emb.Row(int(t.ID)) {
			x[i][c] = mul(float32(q), emb.Scale[t.ID])
		}
	}
	for l := range in.m.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := in.layer(l, batch, x); err != nil {
			return err
		}
	}
	if err := in.head(batch, x); err != nil {
		return err
	}
	for _, r := range runs {
		r.Seq.(*sequence).Held += len(r.Tokens)
	}
	return nil
}

// tokens checks the runs and lists their tokens.
func (in *instance) tokens(runs []backend.Run) ([]token, error) {
	for i, r := range runs {
		if s, ok := r.Seq.(*sequence); !ok || s.c != in.c {
			return nil, fmt.Errorf("run %d: the sequence is not of this instance", i)
		}
	}
	columns, err := backend.Columns(nil, runs, in.c.Vocab)
	batch := make([]token, len(columns))
	for i, c := range columns {
		batch[i] = token{c, runs[c.Run].Seq.(*sequence)}
	}
	return batch, err
}

// layer adds transformer block l to x [N, Hidden].
func (in *instance) layer(l int, batch []token, x [][]float32) error {
	c, w := in.c, &in.m.Layers[l]

	// Attention.
	h, err := in.quantize(in.norms(x, w.AttnNorm, in.invHidden), l, "attn_norm")
	if err != nil {
		return err
	}
	q := in.linear(&w.Q, h) // [N, Heads*HeadDim]
	k := in.linear(&w.K, h) // [N, KVHeads*HeadDim]
	v := in.linear(&w.V, h) // [N, KVHeads*HeadDim]
	scratch := make([]int32, c.HeadDim)
	for i, t := range batch {
		in.rotate(q[i], w.QNorm, t.Pos)
		in.rotate(k[i], w.KNorm, t.Pos)
		keepAll(q[i], 50)
		for head := range c.KVHeads {
			d := head * c.HeadDim
			at := t.Pos*c.KVHeads + head
			if !t.seq.keys[l].put(at, k[i][d:d+c.HeadDim], scratch) || !t.seq.values[l].put(at, v[i][d:d+c.HeadDim], scratch) {
				return backend.Overflow(l, "attn_k or attn_v")
			}
		}
	}
	a, err := in.attention(l, batch, q) // [N, Heads*HeadDim]
	if err != nil {
		return err
	}
	if c.Arch == ternary.BitNet {
		a = in.norms(a, w.AttnSubNorm, in.invHidden)
	}
	if h, err = in.quantize(a, l, "attn_output"); err != nil {
		return err
	}
	addTo(x, in.linear(&w.O, h))

	// MLP.
	if h, err = in.quantize(in.norms(x, w.FFNNorm, in.invHidden), l, "ffn_norm"); err != nil {
		return err
	}
	mid := in.linear(&w.Gate, h) // [N, Intermediate]
	up := in.linear(&w.Up, h)    // [N, Intermediate]
	for i := range mid {
		for j, g := range mid[i] {
			u := Keep(up[i][j], 50)
			if c.Arch == ternary.BitNet {
				g = Keep(max(g, 0), 50)
				mid[i][j] = mul(mul(g, g), u)
			} else {
				mid[i][j] = mul(Keep(SiLU(g), 50), u)
			}
		}
	}
	if c.Arch == ternary.BitNet {
		mid = in.norms(mid, w.FFNSubNorm, in.invFFN)
	}
	if h, err = in.quantize(mid, l, "ffn_down"); err != nil {
		return err
	}
	addTo(x, in.linear(&w.Down, h))
	return nil
}

// head writes the logits of the tokens that want them. The output embedding
// always takes fixed-point activations, in BitNet too.
func (in *instance) head(batch []token, x [][]float32) error {
	w := &in.m.Head
	for i, t := range batch {
		if t.Logits == nil {
			continue
		}
		h := in.norms(x[i:i+1], in.m.FinalNorm, in.invHidden)[0]
		q := make([]int32, len(h)) // [Hidden]
		scale, ok := Quantize(q, h, in.o.Activations)
		if !ok {
			return backend.Overflow(-1, "output_norm")
		}
		in.parallel(w.Rows, func(from, to int) {
			for r := from; r < to; r++ {
				var s int64
				for c, v := range w.Row(r) {
					s += int64(v) * int64(q[c])
				}
				t.Logits[r] = mul(float32(s), mul(w.Scale[r], scale))
			}
		})
	}
	return nil
}

// quantize turns x [N, n] into fixed point as the model and the options ask.
func (in *instance) quantize(x [][]float32, layer int, name string) ([]Fixed, error) {
	f := make([]Fixed, len(x))
	for i := range x {
		f[i].Q = make([]int32, len(x[i]))
		var ok bool
		if in.c.Arch == ternary.BitNet {
			f[i].After = true
			f[i].Scale, ok = QuantizeBitNet(f[i].Q, x[i])
		} else {
			f[i].Scale, ok = Quantize(f[i].Q, x[i], in.o.Activations)
		}
		if !ok {
			return nil, backend.Overflow(layer, name)
		}
	}
	return f, nil
}

// linear returns W*x [N, Rows] for x [N, Cols]. The sums are exact integers.
func (in *instance) linear(w *ternary.Matrix, x []Fixed) [][]float32 {
	y := make([][]float32, len(x))
	for i := range y {
		y[i] = make([]float32, w.Rows)
	}
	in.parallel(w.Rows, func(from, to int) {
		var cols signs
		for r := from; r < to; r++ {
			cols.set(w, r)
			for i := range x {
				lo, hi := cols.sums(x[i].Q)
				y[i][r] = scaled(lo, hi, w.SLo[r], w.SHi[r], &x[i])
				if w.Bias != nil {
					y[i][r] = add(y[i][r], Keep(w.Bias[r], 50))
				}
			}
		}
	})
	return y
}

// scaled returns the output of a row with the integer sums lo and hi.
func scaled(lo, hi int64, sLo, sHi float32, x *Fixed) float32 {
	if x.After {
		return mul(add(mul(float32(lo), sLo), mul(float32(hi), sHi)), x.Scale)
	}
	return add(mul(float32(lo), mul(sLo, x.Scale)), mul(float32(hi), mul(sHi, x.Scale)))
}

// signs lists the columns of one ternary row by weight: +lo, -lo, +hi, -hi.
type signs [4][]int32

func (s *signs) set(w *ternary.Matrix, row int) {
	for i := range s {
		s[i] = s[i][:0]
	}
	for j := range (w.Cols + 7) / 8 {
		at := row*w.Stride + j
		p, n, r := w.BP[at], w.BN[at], w.BR[at]
		for i, b := range [4]byte{p &^ r, n &^ r, p & r, n & r} {
			for ; b != 0; b &= b - 1 {
				s[i] = append(s[i], int32(8*j+bits.TrailingZeros8(b)))
			}
		}
	}
}

// sums returns the sums of (bp-bn)*q over the columns of each magnitude.
func (s *signs) sums(q []int32) (lo, hi int64) {
	var sum [4]int64
	for i, cols := range s {
		var n int64
		for _, c := range cols {
			n += int64(q[c])
		}
		sum[i] = n
	}
	return sum[0] - sum[1], sum[2] - sum[3]
}

// norms returns the RMS norm of each row of x [N, n] with weight g [n].
func (in *instance) norms(x [][]float32, g []float32, inv float32) [][]float32 {
	y := make([][]float32, len(x))
	for i := range x {
		y[i] = append([]float32(nil), x[i]...)
		norm(y[i], g, inv, in.c.RMSEps)
	}
	return y
}

// norm replaces x [n] by its RMS norm with weight g [n]; inv is 1/n.
func norm(x, g []float32, inv, eps float32) {
	var lanes [256]float32
	keepAll(x, 50)
	for c, v := range x {
		lanes[c%256] = add(lanes[c%256], mul(v, v))
	}
	r := RSqrt(add(mul(Fold(lanes[:]), inv), eps))
	for c, v := range x {
		x[c] = Keep(mul(mul(v, r), g[c]), 50)
	}
}

// rotate norms (if g is not nil) and rotates every head of x [heads*HeadDim]
// at position pos: element i pairs with element i + RotaryDims/2.
func (in *instance) rotate(x, g []float32, pos int) {
	n := in.rope.Pairs
	cos, sin := in.rope.Cos[pos*n:(pos+1)*n], in.rope.Sin[pos*n:(pos+1)*n]
	for ; len(x) > 0; x = x[in.c.HeadDim:] {
		if g != nil {
			norm(x[:in.c.HeadDim], g, in.invHead, in.c.RMSEps)
		} else {
			keepAll(x[:in.c.HeadDim], 50)
		}
		for i := range n {
			a, b := x[i], x[i+n]
			x[i] = sub(mul(a, cos[i]), mul(b, sin[i]))
			x[i+n] = add(mul(b, cos[i]), mul(a, sin[i]))
		}
	}
}

// chunk is the number of key positions that attention takes together.
const chunk = 64

// attention returns the mixed values [N, Heads*HeadDim] for queries q of the
// same shape, over the positions up to each token's own.
func (in *instance) attention(l int, batch []token, q [][]float32) ([][]float32, error) {
	heads, dim := in.c.Heads, in.c.HeadDim
	out := make([][]float32, len(batch))
	for i := range out {
		out[i] = make([]float32, heads*dim)
	}
	var bad atomic.Bool
	in.parallel(len(batch)*heads, func(from, to int) {
		for i := from; i < to; i++ {
			t, d := i/heads, i%heads*dim
			if !in.attend(out[t][d:d+dim], q[t][d:d+dim], l, &batch[t], i%heads) {
				bad.Store(true)
			}
		}
	})
	if bad.Load() {
		return nil, backend.Overflow(l, "attention scores")
	}
	return out, nil
}

// attend computes one head of one token: out [HeadDim] from q [HeadDim]. It
// reports false if a score is not finite.
func (in *instance) attend(out, q []float32, l int, t *token, head int) bool {
	c, keys, values := in.c, &t.seq.keys[l], &t.seq.values[l]
	group := head / (c.Heads / c.KVHeads)
	vec := make([]float32, c.HeadDim) // a key or value vector

	type partial struct {
		m, l float32   // largest score, sum of exponentials
		o    []float32 // [HeadDim]
	}
	var parts []partial
	for first := 0; first <= t.Pos; first += chunk {
		n := min(chunk, t.Pos+1-first)
		var s, p [chunk]float32
		part := partial{o: make([]float32, c.HeadDim)}
		for j := range n {
			keys.get(vec, (first+j)*c.KVHeads+group)
			s[j] = mul(dot(q, vec), in.invSqrtHead)
			if !finite(s[j]) {
				return false
			}
			if j == 0 || s[j] > part.m {
				part.m = s[j]
			}
		}
		for j := range n {
			p[j] = Exp(sub(s[j], part.m))
			values.get(vec, (first+j)*c.KVHeads+group)
			for d := range part.o {
				part.o[d] = add(part.o[d], mul(p[j], vec[d]))
			}
		}
		keepAll(part.o, 40)
		part.l = Fold(p[:])
		parts = append(parts, part)
	}

	m := parts[0].m
	for _, part := range parts[1:] {
		m = max(m, part.m)
	}
	var sum float32
	for _, part := range parts {
		w := Exp(sub(part.m, m))
		sum = add(sum, mul(part.l, w))
		for d := range out {
			out[d] = add(out[d], mul(part.o[d], w))
		}
	}
	r := Recip(sum)
	for d := range out {
		out[d] = mul(out[d], r)
	}
	return true
}

// dot is the product of a query and a key in 16 lanes.
func dot(q, k []float32) float32 {
	var lanes [16]float32
	for d := range q {
		lanes[d%16] = add(lanes[d%16], mul(q[d], k[d]))
	}
	return Fold(lanes[:])
}

func addTo(x, y [][]float32) {
	for i := range x {
		for c, v := range y[i] {
			x[i][c] = add(x[i][c], v)
		}
	}
}

// parallel calls f on parts of 0..n on the instance's threads.
func (in *instance) parallel(n int, f func(from, to int)) {
	threads := min(in.o.Threads, n)
	if threads < 2 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() { f(n*i/threads, n*(i+1)/threads) })
	}
	wg.Wait()
}
