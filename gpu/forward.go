package gpu

import (
	"npack/gpu/kernels"
	"npack/runtime/backend"
	"npack/ternary"
)

// The places where a value can leave the range of float32, in the order in which
// a layer passes them. The kernels leave the smallest layer*faultPlaces + place in
// the first word of scratch.output.
const (
	faultAttnNorm = iota
	faultCache
	faultScores
	faultAttnOut
	faultFFNNorm
	faultDown
	faultPlaces = 8

	noFault = 0x7fffffff
)

var faultNames = [...]string{"attn_norm", "attn_k or attn_v", "attention scores", "attn_output", "ffn_norm", "ffn_down"}

// fault is the error for a code.
func (in *instance) fault(code int) error {
	layer := code / faultPlaces
	if layer >= in.c.Layers {
		return backend.Overflow(-1, "output_norm")
	}
	return backend.Overflow(layer, faultNames[code%faultPlaces])
}

// body launches the layers, for p.columns.
func (in *instance) body() {
	p, t, c := &in.pass, &in.scratch, in.c
	embed := &in.embed
	if embed.buf.Size == 0 {
		embed = &in.head
	}
	p.launch("embed", divUp(c.Hidden, 256), len(p.columns), 1,
		in.at(t.input), embed.rows.in(embed.buf), embed.scales.in(embed.buf), in.at(t.x), i32(embed.tiles), i32(c.Hidden), i32(c.Hidden))
	for l := range in.layers {
		if p.err == nil {
			p.err = p.ctx.Err()
		}
		in.layer(l)
	}
}

// at returns a place of scratch as an argument.
func (in *instance) at(p place) Arg { return p.in(in.scratch.buf) }

// layer adds transformer block l to x. Biases and the residual sum are parts of
// the linears, as is what happens between gate, up and down.
func (in *instance) layer(l int) {
	t, c, w := &in.scratch, in.c, &in.layers[l]
	code := l * faultPlaces
	x, y := in.at(t.x), in.at(t.y)
	bitnet := c.Arch == ternary.BitNet

	in.normQuant(x, c.Hidden, w.attnNorm.in(w.buf), c.Hidden, in.invHidden, code+faultAttnNorm)
	in.linear(w, qkv, y, in.yStride, 0)
	for i := range in.pass.segments {
		in.heads(&in.pass.segments[i], l)
	}
	for i := range in.pass.segments {
		in.attention(&in.pass.segments[i], l)
	}
	if bitnet {
		in.normQuant(y, in.yStride, w.attnSubNorm.in(w.buf), c.Hidden, in.invHidden, code+faultAttnOut) // QDim is Hidden
	} else {
		in.quant(c.QDim(), code+faultAttnOut)
	}
	in.linear(w, attnOut, x, c.Hidden, kernels.LinearAdd)

	in.normQuant(x, c.Hidden, w.ffnNorm.in(w.buf), c.Hidden, in.invHidden, code+faultFFNNorm)
	if bitnet {
		in.linear(w, gateUp, y, in.yStride, kernels.LinearSquareReLU)
		in.normQuant(y, in.yStride, w.ffnSubNorm.in(w.buf), c.Intermediate, in.invFFN, code+faultDown)
	} else {
		in.linear(w, gateUp, y, in.yStride, kernels.LinearSiLU)
		in.quant(c.Intermediate, code+faultDown)
	}
	in.linear(w, down, x, c.Hidden, kernels.LinearAdd)
}

// normQuant makes the norm of the n values at x, the columns being stride apart,
// with weight g, the activations. inv is 1/n.
func (in *instance) normQuant(x Arg, stride int, g Arg, n int, inv float32, code int) {
	p, t := &in.pass, &in.scratch
	p.launch("norm_quant", len(p.columns), 1, 1,
		x, g, Arg{}, in.at(t.digits), in.at(t.scales), in.at(t.largest), in.at(t.output),
		i32(n), i32(kernels.Tiles(n)), i32(stride), f32(inv), f32(in.c.RMSEps),
		i32(in.planes), i32(in.quantFlags()), i32(code))
}

// quant makes y, of n values, the activations.
func (in *instance) quant(n, code int) {
	p, t := &in.pass, &in.scratch
	tiles := kernels.Tiles(n)
	p.launch("quant", divUp(tiles, 4), len(p.columns), 1,
		in.at(t.y), in.at(t.largest), in.at(t.digits), in.at(t.scales), in.at(t.output),
		i32(n), i32(tiles), i32(in.yStride), i32(in.planes), i32(in.quantFlags()), i32(code))
}

func (in *instance) quantFlags() int {
	flags := 0
	if in.kernel() == "tern_bits" {
		flags |= kernels.QuantBits
	}
	if in.c.Arch == ternary.BitNet {
		flags |= kernels.QuantBitNet
	}
	return flags
}

// kernel is the one that runs the linears of the pass.
func (in *instance) kernel() string {
	return kernels.Linear(in.b.info.Capability, len(in.pass.columns), in.planes)
}

// linear launches a linear of a layer for all columns of the pass.
func (in *instance) linear(l *layer, which int, y Arg, stride, flags int) {
	p, t, w := &in.pass, &in.scratch, &l.linears[which]
	if in.c.Arch == ternary.BitNet {
		flags |= kernels.LinearBitNet
	}
	if w.bias.size > 0 {
		flags |= kernels.LinearBias
	}
	n, kernel := len(p.columns), in.kernel()
	gx, gy := w.strips, n
	switch kernel {
	case "tern_mma":
		gy = divUp(n*in.planes, 24)
	case "tern_many":
		gx, gy = divUp(w.strips, 8), divUp(n*in.planes, 72)
	}
	p.launch(kernel, gx, gy, 1,
		w.planes.in(l.buf), w.scales.in(l.buf), w.bias.in(l.buf), in.at(t.digits), in.at(t.scales), y, in.at(t.largest),
		i32(w.tiles), i32(w.strips), i32(w.rows), i32(n), i32(stride), i32(in.planes), i32(flags))
}

// names of the kernels for each type of cache.
var (
	headsKernels = [...]string{backend.KVF16: "heads_f16", backend.KVF32: "heads_f32", backend.KVInt8: "heads_i8"}
	attnKernels  = [...]string{backend.KVF16: "attn_f16", backend.KVF32: "attn_f32", backend.KVInt8: "attn_i8"}
)

// heads norms and rotates the queries and keys of a segment and stores its keys and
// values.
func (in *instance) heads(s *segment, l int) {
	p, t, c, w := &in.pass, &in.scratch, in.c, &in.layers[l]
	flags := 0
	if w.qNorm.size > 0 {
		flags = kernels.HeadsNorm
	}
	kv := &s.seq.layers[l]
	p.launch(headsKernels[in.o.KV], c.Heads+2*c.KVHeads, s.n, 1,
		in.at(t.y), w.qNorm.in(w.buf), w.kNorm.in(w.buf), in.positions(), Arg{Buf: in.cos}, Arg{Buf: in.sin},
		in.at(t.heads), Arg{Buf: kv.values}, Arg{Buf: kv.scales}, in.at(t.output),
		i32(c.Heads), i32(c.KVHeads), i32(c.HeadDim), i32(c.RotaryDims/2),
		i32(in.yStride), i32(c.QDim()), i32(c.QDim()+c.KVDim()), i32(s.first),
		f32(in.invHead), f32(c.RMSEps), i32(flags), i32(l*faultPlaces+faultCache))
}

// positions are those of the pass's columns, behind their ids.
func (in *instance) positions() Arg { return in.at(in.scratch.input).from(4 * len(in.pass.columns)) }

// attention writes y from the rotated queries of a segment, in rounds of as many
// columns as there is room for what the chunks give.
func (in *instance) attention(s *segment, l int) {
	p, t, c := &in.pass, &in.scratch, in.c
	kv := &s.seq.layers[l]
	round := in.round(s.n, s.chunks)
	part, _ := in.placePartial(round, s.chunks)
	sums, mix := part.sums.in(in.partials), part.mix.in(in.partials)
	for i := 0; i < s.n; i += round {
		first, n := s.first+i, min(round, s.n-i)
		p.launch(attnKernels[in.o.KV], s.chunks, in.headGroups(), n,
			in.at(t.heads), Arg{Buf: kv.values}, Arg{Buf: kv.scales}, in.positions(), sums, mix, in.at(t.output),
			i32(c.Heads), i32(c.KVHeads), i32(c.HeadDim), i32(first), i32(s.chunks), f32(in.invSqrtHead), i32(l*faultPlaces+faultScores))
		p.launch("attn_join", c.Heads, n, 1,
			sums, mix, in.positions(), in.at(t.y), in.at(t.largest),
			i32(c.Heads), i32(c.HeadDim), i32(first), i32(s.chunks), i32(in.yStride))
	}
}

// logits launches the output embedding for n of the wanted columns, from the
// first on, and ranks the logits if they are to be.
func (in *instance) logits(first, n int) {
	p, t, c, h := &in.pass, &in.scratch, in.c, &in.head
	list := in.at(t.input).from(4 * (2*len(p.columns) + first))
	p.launch("norm_quant", n, 1, 1,
		in.at(t.x), h.norm.in(h.buf), list, in.at(t.digits), in.at(t.scales), in.at(t.largest), in.at(t.output),
		i32(c.Hidden), i32(h.tiles), i32(c.Hidden), f32(in.invHidden), f32(c.RMSEps),
		i32(in.headPlanes), i32(kernels.QuantList), i32(c.Layers*faultPlaces))
	kernel, gy := kernels.Head(in.b.info.Capability, n), n
	if kernel == "head_mma" {
		gy = divUp(n*in.headPlanes, 24)
	}
	p.launch(kernel, h.strips, gy, 1,
		h.rows.in(h.buf), h.scales.in(h.buf), in.at(t.digits), in.at(t.scales), in.at(t.logits),
		i32(h.tiles), i32(h.strips), i32(c.Vocab), i32(n), i32(c.Vocab), i32(in.headPlanes))
	switch {
	case p.k == 1:
		in.largest(n)
	case p.k > 1:
		in.rank(n)
	}
}

// largest leaves the choice of each of n columns behind the fault. Where there is
// but one column, its choice is also the next pass's input: most often that is
// what comes.
func (in *instance) largest(n int) {
	p, t := &in.pass, &in.scratch
	slices, advance := divUp(in.c.Vocab, argmaxSlice), 0
	if len(p.columns) == 1 {
		advance = 1
	}
	p.launch("argmax", slices, n, 1, in.at(t.logits), in.at(t.ranked[0]), i32(in.c.Vocab), i32(in.c.Vocab))
	p.launch("argmax_join", n, 1, 1, in.at(t.ranked[0]), in.at(t.output).from(outputHead), in.at(t.input), in.positions(), i32(slices), i32(advance))
}

// rank leaves the k tokens that rank first in each of n columns behind the fault,
// in rank order: slice by slice, then the slices' own, until one is left.
func (in *instance) rank(n int) {
	p, t := &in.pass, &in.scratch
	from, count := Arg{}, in.c.Vocab
	for stage := 0; ; stage++ {
		slices := rankSlices(count)
		to := in.at(t.ranked[stage%2])
		if slices == 1 {
			to = in.at(t.output).from(outputHead)
		}
		p.launch("topk", divUp(slices, 8), n, 1, in.at(t.logits), from, to, i32(count), i32(in.c.Vocab), i32(p.k), i32(stage))
		if slices == 1 {
			return
		}
		from, count = to, slices*p.k
	}
}
