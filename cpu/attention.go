package cpu

import (
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
			// In whole steps, so that memory for them grows as the cache does.
			most := max(p.chunks, roundUp(p.batch[p.to].Pos+1, step)/chunk)
			if (p.to+1-from)*in.c.Heads*most*in.cache.dimPad > partialFloats && p.to > from {
				break
			}
			p.chunks = most
			p.to++
		}
		n := (p.to - from) * in.c.Heads * p.chunks
		p.partial, p.partials = resize(p.partial, n*in.cache.dimPad), resize(p.partials, n)
		tasks := in.gather()
		// A worker fetches the next chunk ahead, so it should be its own.
		in.pool.run(tasks, min(4, max(1, tasks/(4*len(in.pool.workers)))), in.sections.scores)
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

// slot is the index of a head's chunk in the round's partial results, [columns]
// [chunks][Heads]: heads that share keys are neighbours.
func (in *instance) slot(column, chunk, head int) int {
	return ((column-in.pass.from)*in.pass.chunks+chunk)*in.c.Heads + head
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
		if in.k.vec.scoresHalf != nil && in.o.KV == backend.KVF16 {
			in.chunkHalf(w, gr, head, at)
		} else {
			in.chunk(w, gr, head, at)
		}
	}
}

// positions is how many positions of chunk at column i sees; it may be negative.
func (in *instance) positions(i, at int) int { return min(chunk, in.pass.batch[i].Pos+1-at*chunk) }

// chunk does a chunk of a key/value head for the columns of a group, whose keys
// and values it converts once for all.
func (in *instance) chunk(w *worker, gr *group, head, at int) {
	p, v, dim := &in.pass, in.k.vec, in.cache.dimPad
	n := in.positions(gr.to-1, at)
	keys := gr.seq.load(w.keys, p.layer, 0, head, at*chunk, n)
	vals := gr.seq.load(w.vals, p.layer, 1, head, at*chunk, n)
	for i := gr.from; i < gr.to; i++ {
		n := in.positions(i, at)
		if n <= 0 {
			continue
		}
		for h := head * in.share; h < (head+1)*in.share; h++ {
			s := w.p[:chunk]
			v.scores(s[:n], p.heads[i*in.pad.heads+h*dim:][:dim], keys[:n*dim], in.invSqrtHead)
			slot := in.slot(i, at, h)
			in.softmax(s, n, slot)
			v.mix(p.partial[slot*dim:][:dim], s[:n], vals[:n*dim])
		}
	}
}

// chunkHalf is chunk on halves as they are in the cache, for all heads that
// share them at once.
func (in *instance) chunkHalf(w *worker, gr *group, head, at int) {
	p, v, dim := &in.pass, in.k.vec, in.cache.dimPad
	keys, vals := gr.seq.halves(p.layer, 0, head, at*chunk), gr.seq.halves(p.layer, 1, head, at*chunk)
	next := keys // there may be no next chunk
	if at+1 < gr.chunks {
		next = gr.seq.halves(p.layer, 0, head, (at+1)*chunk)
	}
	for i := gr.from; i < gr.to; i++ {
		n := in.positions(i, at)
		if n <= 0 {
			continue
		}
		s := w.p[:in.share*chunk]
		v.scoresHalf(s, p.heads[i*in.pad.heads+head*in.share*dim:][:in.share*dim], keys[:n*dim], vals, dim, in.invSqrtHead)
		slot := in.slot(i, at, head*in.share)
		for h := range in.share {
			in.softmax(s[h*chunk:], n, slot+h)
		}
		v.mixHalf(p.partial[slot*dim:][:in.share*dim], s, vals[:n*dim], next, dim)
	}
}

// softmax turns the n scores at s into weights and notes what putting chunks
// together needs.
func (in *instance) softmax(s []float32, n, slot int) {
	m, l, finite := in.k.vec.softmax((*[chunk]float32)(s), n)
	if !finite {
		in.pass.failed.Store(true)
	}
	in.pass.partials[slot] = partialSum{m, l}
}

// combine puts the chunks of heads together: heads count through the columns of
// the round.
func (in *instance) combine(w *worker, from, to int) {
	p, v, dim := &in.pass, in.k.vec, in.cache.dimPad
	for task := from; task < to; task++ {
		i, h := p.from+task/in.c.Heads, task%in.c.Heads
		chunks := p.batch[i].Pos/chunk + 1
		first := in.slot(i, 0, h)
		m := p.partials[first].m
		for k := 1; k < chunks; k++ {
			m = max(m, p.partials[first+k*in.c.Heads].m)
		}
		out := w.head[:dim]
		clear(out)
		var sum float32
		for k := range chunks {
			slot := first + k*in.c.Heads
			part := p.partials[slot]
			weight := reference.Exp(sub(part.m, m))
			sum = add(sum, mul(part.l, weight))
			v.addScaled(out, p.partial[slot*dim:][:dim], weight)
		}
		v.scale(out, reference.Recip(sum))
		copy(p.mix[i*in.pad.q+h*in.c.HeadDim:][:in.c.HeadDim], out)
	}
}
