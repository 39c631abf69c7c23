package cpu

import (
	"math"

	"npack/runtime/backend"
	"npack/runtime/reference"
)

// partialFloats bounds the memory for what chunks give before it is put
// together, in float32 (16 MiB), unless one column alone needs more.
const partialFloats = 4 << 20

// attention writes mix from the rotated queries, in rounds of columns. Each
// round has two sections: every chunk of keys and values is read once for all
// columns and heads that share it; then the chunks of each head are put together
// in their order.
func (in *instance) attention() error {
	p := &in.pass
	for from := 0; from < len(p.batch); from = p.to {
		p.from, p.to, p.chunks = from, from, 0
		for p.to < len(p.batch) {
			most := max(p.chunks, p.batch[p.to].Pos/chunk+1)
			if (p.to+1-from)*in.c.Heads*most*in.cache.dimPad > partialFloats && p.to > from {
				break
			}
			p.chunks = most
			p.to++
		}
		n := (p.to - from) * in.c.Heads * p.chunks
		p.partial, p.partials = resize(p.partial, n*in.cache.dimPad), resize(p.partials, n)
		in.pool.run(in.gather(), 1, in.sections.scores)
		if in.pass.failed.Load() {
			return backend.Overflow(p.layer, "attention scores")
		}
		heads := (p.to - from) * in.c.Heads
		in.pool.run(heads, max(1, heads/(4*len(in.pool.workers))), in.sections.combine)
	}
	return nil
}

// gather lists the round's sequences and returns the number of tasks: a chunk
// of a key/value head of a sequence is one.
func (in *instance) gather() (tasks int) {
	p := &in.pass
	p.groups = p.groups[:0]
	for i := p.from; i < p.to; {
		g := group{seq: p.seqs[p.batch[i].Run], from: i, first: tasks}
		for run := p.batch[i].Run; i < p.to && p.batch[i].Run == run; i++ {
		}
		g.to = i
		g.chunks = p.batch[i-1].Pos/chunk + 1 // positions rise
		tasks += g.chunks * in.c.KVHeads
		p.groups = append(p.groups, g)
	}
	return tasks
}

// slot is the index of a head's chunk in the round's partial results.
func (in *instance) slot(column, head, chunk int) int {
	return ((column-in.pass.from)*in.c.Heads+head)*in.pass.chunks + chunk
}

// scores does chunks: for each column and head, the largest score, the sum of
// the exponentials and the mix of the values.
func (in *instance) scores(w *worker, from, to int) {
	p := &in.pass
	for task, g := from, 0; task < to; task++ {
		for g+1 < len(p.groups) && p.groups[g+1].first <= task {
			g++
		}
		gr := &p.groups[g]
		head, at := (task-gr.first)/gr.chunks, (task-gr.first)%gr.chunks
		last := p.batch[gr.to-1].Pos
		n := min(chunk, last+1-at*chunk)
		keys := gr.seq.load(w.keys, p.layer, 0, head, at*chunk, n)
		vals := gr.seq.load(w.vals, p.layer, 1, head, at*chunk, n)
		share := in.c.Heads / in.c.KVHeads
		for i := gr.from; i < gr.to; i++ {
			n := min(chunk, p.batch[i].Pos+1-at*chunk)
			if n <= 0 {
				continue
			}
			for h := head * share; h < (head+1)*share; h++ {
				in.part(w, in.slot(i, h, at), p.heads[i*in.pad.heads+h*in.cache.dimPad:][:in.cache.dimPad], keys, vals, n)
			}
		}
	}
}

// part computes n positions of a chunk for one query.
func (in *instance) part(w *worker, slot int, q, keys, vals []float32, n int) {
	p, v, dim := &in.pass, in.k.vec, in.cache.dimPad
	s := w.p[:n]
	v.scores(s, q, keys[:n*dim], in.invSqrtHead)
	m := s[0]
	for _, x := range s {
		if math.Float32bits(x)&infBits == infBits {
			p.failed.Store(true)
			return
		}
		if x > m {
			m = x
		}
	}
	for j := n; j < chunk; j++ {
		w.p[j] = m
	}
	v.expSub(w.p[:], m)
	clear(w.p[n:])
	w.fold = w.p
	p.partials[slot] = partialSum{m, reference.Fold(w.fold[:])}
	v.mix(p.partial[slot*dim:][:dim], s, vals[:n*dim])
}

// combine puts the chunks of heads together: heads count through the columns of
// the round.
func (in *instance) combine(w *worker, from, to int) {
	p, v, dim := &in.pass, in.k.vec, in.cache.dimPad
	for task := from; task < to; task++ {
		i, h := p.from+task/in.c.Heads, task%in.c.Heads
		chunks := p.batch[i].Pos/chunk + 1
		first := in.slot(i, h, 0)
		parts := p.partials[first : first+chunks]
		m := parts[0].m
		for _, part := range parts[1:] {
			m = max(m, part.m)
		}
		out := w.head[:dim]
		clear(out)
		var sum float32
		for j, part := range parts {
			weight := reference.Exp(sub(part.m, m))
			sum = add(sum, mul(part.l, weight))
			v.addScaled(out, p.partial[(first+j)*dim:][:dim], weight)
		}
		v.scale(out, reference.Recip(sum))
		copy(p.mix[i*in.pad.q+h*in.c.HeadDim:][:in.c.HeadDim], out)
	}
}
