package cpu

import (
	"unsafe"

	"npack/runtime/backend"
	"npack/ternary"
)

// Plan implements [backend.Planner]: the sums of what place, prepare, reserve,
// attention and grow allocate. A test compares them with an instance.
func (b Backend) Plan(m *ternary.Model, o backend.Options, context, columns int) (mem backend.Memory) {
	k, err := b.choose()
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
	l := k.linear[planes]

	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			d := matrix{rows: t.Ternary.Rows, blocks: roundUp(t.Ternary.Cols, blockCols) / blockCols}
			read := int64(d.wBytes(l))
			if b.ZeroCopy {
				d.planes = t.Ternary
				read = 3 * int64(t.Ternary.Rows) * int64((t.Ternary.Cols+7)/8)
				mem.Weights += matrixBytes(t.Ternary)
			}
			mem.Weights += int64(d.bytes(l)) + 4*int64(len(t.Ternary.Bias))
			mem.Token += read + 8*int64(t.Ternary.Rows)
		case t.Int8 == m.Embed && t.Int8 != nil:
			if m.Rows != nil {
				mem.Weights += tableBytes(t.Int8)
			} // else of the file the rows of a text's tokens
			mem.Token += int64(t.Int8.Cols) + 4
		case t.Int8 != nil:
			mem.Weights += tableBytes(t.Int8)
			mem.Token += int64(t.Int8.Rows) * (int64(t.Int8.Cols) + 4)
		default:
			mem.Weights += 4 * int64(roundUp(len(t.Vector), l.unit()))
			mem.Token += 4 * int64(len(t.Vector))
		}
	}
	if m.Rows == nil && m.Release == nil { // what m was given in stays in memory
		for t := range m.Tensors() {
			if t.Int8 != nil && (t.Int8 == m.Embed || !b.ZeroCopy) {
				mem.Weights += tableBytes(t.Int8)
			} else if t.Ternary != nil && !b.ZeroCopy {
				mem.Weights += matrixBytes(t.Ternary)
			}
		}
	}

	shape := newCacheShape(c, o.KV)
	mem.Cache = int64(roundUp(context, step)/step) * int64(shape.bytes())

	pad := func(n int) int64 { return int64(roundUp(n, l.unit())) }
	hidden, q, kv, ffn, dim := pad(c.Hidden), pad(c.QDim()), pad(c.KVDim()), pad(c.Intermediate), int64(shape.dimPad)
	heads := int64(c.Heads) * dim
	floats := hidden + 2*q + 2*kv + heads + ffn + max(ffn, hidden)
	fixed := max(hidden*max(planes, int64(o.Activations)), max(q, ffn)*planes)
	pass := l.of(columns)
	widest := int(max(hidden, q, ffn))
	formed := int64(max(l.formed(widest), pass.formed(widest)))
	mem.Buffers = int64(columns) * (4*floats + fixed + formed + int64(unsafe.Sizeof(activations{})))
	mem.Buffers += hidden / blockCols * int64(k.int8Bytes(int(o.Activations))) // of the one column that wants logits

	worker := 4 * (max(hidden, q, ffn) + int64(roundUp(shape.dimPad, blockCols)) + 2*chunk*dim) // prepare
	together := min(columns, mostTogether)
	worker += int64(together)*2*planes*int64(l.rows)*4 + int64(max(l.scratch(together), pass.scratch(together))) // reserve
	if b.ZeroCopy {
		worker += int64(l.arrangedTogether(widest))
		mem.Buffers += int64(min(columns, l.inPlace.direct)) * int64(inPlaceBytes(int(planes), widest/blockCols))
	}
	mem.Buffers += int64(max(o.Threads, 1)) * (worker + int64(unsafe.Sizeof(scratch{})))

	positions := int64(roundUp(context, step))
	chunks := positions / chunk
	column := int64(c.Heads) * chunks // partial results of a column
	round := min(int64(columns), max(1, partialFloats/max(1, column*dim)))
	mem.Buffers += round * column * (4*dim + int64(unsafe.Sizeof(partialSum{})))
	mem.Buffers += positions * int64(c.RotaryDims/2) * 8 // cosines and sines
	return mem
}

// matrixBytes is what the planes, magnitudes and sums of a matrix take.
func matrixBytes(m *ternary.Matrix) int64 { return int64(m.Rows) * (3*int64(m.Stride) + 16) }

// tableBytes is what the values and scales of an embedding table take.
func tableBytes(t *ternary.Int8Matrix) int64 { return int64(t.Rows) * (int64(t.Stride) + 4) }
