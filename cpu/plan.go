package cpu

import (
	"unsafe"

	"npack/runtime/backend"
	"npack/ternary"
)

// Plan implements [backend.Planner]: the sums of what place, prepare, reserve,
// attention and grow allocate. A test compares them with an instance.
func (b Backend) Plan(m *ternary.Model, o backend.Options, context, columns int) (mem backend.Memory) {
	k, err := choose(b.Kernel)
	if err != nil {
		k = &generic
	}
	if o.Activations == 0 {
		o.Activations = backend.Exact
	}
	c := &m.Config
	planes := int64(o.Activations)
	if c.Arch == ternary.BitNet {
		planes = 1
	}

	mapped := m.Rows == nil && m.Release != nil // and used as it lies there
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			d := matrix{rows: t.Ternary.Rows, blocks: roundUp(t.Ternary.Cols, blockCols) / blockCols}
			mem.Weights += int64(d.bytes(k.rows)) + 4*int64(len(t.Ternary.Bias))
			mem.Token += int64(d.rowsPad()/k.rows*d.tile(k.rows)) + 8*int64(t.Ternary.Rows)
		case t.Int8 != nil:
			rows, cols := int64(t.Int8.Rows), int64(t.Int8.Cols)
			mem.Weights += 4 * rows
			if t.Int8 != m.Embed || !mapped {
				mem.Weights += rows * int64(t.Int8.Stride)
			} // else it stays in the file but for the rows of a text's tokens
			if t.Int8 == m.Embed {
				mem.Token += cols + 4
			} else {
				mem.Token += rows * (cols + 4)
			}
		default:
			mem.Weights += 4 * int64(roundUp(len(t.Vector), blockCols))
			mem.Token += 4 * int64(len(t.Vector))
		}
	}
	if m.Rows == nil && !mapped { // what m was given in stays in memory
		mem.Weights += planeBytes(m)
	}

	shape := newCacheShape(c, o.KV)
	mem.Cache = int64(roundUp(context, step)/step) * int64(shape.bytes())

	pad := func(n int) int64 { return int64(roundUp(n, blockCols)) }
	hidden, q, kv, ffn, dim := pad(c.Hidden), pad(c.QDim()), pad(c.KVDim()), pad(c.Intermediate), int64(shape.dimPad)
	heads := int64(c.Heads) * dim
	floats := hidden + 2*q + 2*kv + heads + ffn + max(ffn, hidden)
	fixed := max(hidden*max(planes, int64(o.Activations)), max(q, ffn)*planes)
	mem.Buffers = int64(columns) * (4*floats + fixed + int64(unsafe.Sizeof(activations{})))
	mem.Buffers += hidden / blockCols * int64(k.int8Bytes(int(o.Activations))) // of the one column that wants logits

	worker := 4*(max(hidden, q, ffn)+pad(shape.dimPad)+2*chunk*dim) + segment*64*int64(k.rows) // prepare
	worker += int64(columns) * 2 * 3 * int64(k.rows) * 4                                       // reserve
	mem.Buffers += int64(max(o.Threads, 1)) * (worker + int64(unsafe.Sizeof(scratch{})))

	chunks := int64(roundUp(context, chunk) / chunk)
	column := int64(c.Heads) * chunks // partial results of a column
	round := min(int64(columns), max(1, partialFloats/max(1, column*dim)))
	mem.Buffers += round * column * (4*dim + int64(unsafe.Sizeof(partialSum{})))
	mem.Buffers += int64(context) * int64(c.RotaryDims/2) * 8 // cosines and sines
	return mem
}

// planeBytes is what the planes of all matrices take.
func planeBytes(m *ternary.Model) (n int64) {
	for t := range m.Tensors() {
		if w := t.Ternary; w != nil {
			n += 3 * int64(w.Rows) * int64(w.Stride)
		}
	}
	return n
}
