package gputest

import (
	"math"

	"npack/gpu"
	"npack/gpu/kernels"
	"npack/runtime/reference"
)

// cacheVector is the index of a head vector in a layer's cache (cache.k).
func cacheVector(pos, value, head, kvHeads int) int {
	return ((pos/256*2+value)*kvHeads+head)*256 + pos%256
}

// vector is the place of elements of a head vector in a cache of some type. The
// order of a key's elements is not that of the cards' kernels: none but these read
// them.
type vector struct {
	kind string // "f16", "f32" or "i8"
	kv   mem
	kvs  mem
	i    int // of the vector
	pad  int
}

func (v *vector) store(x []float32) bool {
	finiteAll, most := true, float32(0)
	for i, f := range x {
		x[i] = reference.Keep(f, 50)
		finiteAll = finiteAll && finite(f)
		most = max(most, float32(math.Abs(float64(f))))
	}
	if !finiteAll {
		return false
	}
	switch v.kind {
	case "f32":
		for i, f := range x {
			v.kv.setF32(v.i*v.pad+i, f)
		}
	case "f16":
		for i, f := range x {
			h := reference.F32toF16(f)
			v.kv[2*(v.i*v.pad+i)], v.kv[2*(v.i*v.pad+i)+1] = byte(h), byte(h>>8)
		}
		return most < 65520
	default:
		q, scale := make([]int32, len(x)), float32(0)
		if most >= 0x1p-40 {
			scale = reference.QuantizeInt8(q, x, most)
		}
		v.kvs.setF32(v.i, scale)
		for i, f := range q {
			v.kv[v.i*v.pad+i] = byte(f)
		}
	}
	return true
}

func (v *vector) load(dim int) []float32 {
	x := make([]float32, dim)
	for i := range x {
		at := v.i*v.pad + i
		switch v.kind {
		case "f32":
			x[i] = v.kv.f32(at)
		case "f16":
			x[i] = reference.F16toF32(uint16(v.kv[2*at]) | uint16(v.kv[2*at+1])<<8)
		default:
			x[i] = mul(float32(int8(v.kv[at])), v.kvs.f32(v.i))
		}
	}
	return x
}

// cache returns a vector of a layer's cache, whose values and scales are arguments
// kv and kv+1.
func (c *call) cache(kv, dim int) vector {
	v := vector{kind: c.l.Kernel[len(c.l.Kernel)-3:], kv: c.bytes(kv), pad: kernels.HeadPad(dim)}
	if v.kind == "_i8" {
		v.kvs = c.bytes(kv + 1)
	}
	return v
}

func heads(c *call) {
	y, positions, cos, sin, qh, faults := c.bytes(0), c.bytes(3), c.bytes(4), c.bytes(5), c.bytes(6), c.bytes(9)
	nh, nkv, dim, pairs, stride, koff, voff, col0 := c.num(10), c.num(11), c.num(12), c.num(13), c.num(14), c.num(15), c.num(16), c.num(17)
	flags, code := c.num(20), c.num(21)
	c.wantGrid(nh+2*nkv, c.grid(1), 1)
	pad := kernels.HeadPad(dim)
	rotated := func(at, weight, pos int) []float32 {
		x := y.floats(at, dim)
		if flags&kernels.HeadsNorm != 0 {
			norm(x, c.bytes(weight), c.real(18), c.real(19))
		}
		for i, v := range x {
			x[i] = reference.Keep(v, 50)
		}
		for i := range pairs {
			a, b, co, si := x[i], x[i+pairs], cos.f32(pos*pairs+i), sin.f32(pos*pairs+i)
			x[i] = sub(mul(a, co), mul(b, si))
			x[i+pairs] = add(mul(b, co), mul(a, si))
		}
		return x
	}
	for j := range c.grid(1) {
		col := col0 + j
		pos := positions.i32(col)
		for h := range nh {
			for i, v := range rotated(col*stride+h*dim, 1, pos) {
				qh.setF32((col*nh+h)*pad+i, reference.Keep(v, 50))
			}
		}
		for h := range nkv {
			v := c.cache(7, dim)
			v.i = cacheVector(pos, 0, h, nkv)
			ok := v.store(rotated(col*stride+koff+h*dim, 2, pos))
			v.i = cacheVector(pos, 1, h, nkv)
			if !v.store(y.floats(col*stride+voff+h*dim, dim)) || !ok {
				fault(faults, code)
			}
		}
	}
}

func attention(c *call) {
	qh, positions, part, po, faults := c.bytes(0), c.bytes(3), c.bytes(4), c.bytes(5), c.bytes(6)
	nh, nkv, dim, col0, chunks, code := c.num(7), c.num(8), c.num(9), c.num(10), c.num(11), c.num(13)
	c.wantGrid(chunks, nkv*divUp(nh/nkv, 4), c.grid(2))
	pad := kernels.HeadPad(dim)
	for j := range c.grid(2) {
		pos := positions.i32(col0 + j)
		c.must(pos/64 < chunks, "number of chunks")
		for h := range nh {
			q := qh.floats(((col0+j)*nh+h)*pad, dim)
			for k := range pos/64 + 1 {
				n := min(64, pos+1-64*k)
				var p [64]float32
				o, m := make([]float32, dim), float32(0)
				at := c.cache(1, dim)
				for i := range n {
					at.i = cacheVector(64*k+i, 0, h/(nh/nkv), nkv)
					var lanes [16]float32
					for d, key := range at.load(dim) {
						lanes[d%16] = add(lanes[d%16], mul(q[d], key))
					}
					p[i] = mul(reference.Fold(lanes[:]), c.real(12))
					if !finite(p[i]) {
						fault(faults, code)
					}
					if i == 0 || p[i] > m {
						m = p[i]
					}
				}
				for i := range n {
					p[i] = reference.Exp(sub(p[i], m))
					at.i = cacheVector(64*k+i, 1, h/(nh/nkv), nkv)
					for d, v := range at.load(dim) {
						o[d] = add(o[d], mul(p[i], v))
					}
				}
				slot := (j*chunks+k)*nh + h
				for d, v := range o {
					po.setF32(slot*pad+d, reference.Keep(v, 40))
				}
				part.setF32(2*slot, m)
				part.setF32(2*slot+1, reference.Fold(p[:]))
			}
		}
	}
}

func join(c *call) {
	part, po, positions, out, largest := c.bytes(0), c.bytes(1), c.bytes(2), c.bytes(3), c.bytes(4)
	nh, dim, col0, chunks, stride := c.num(5), c.num(6), c.num(7), c.num(8), c.num(9)
	c.wantGrid(nh, c.grid(1), 1)
	pad := kernels.HeadPad(dim)
	for j := range c.grid(1) {
		col := col0 + j
		n := positions.i32(col)/64 + 1
		for h := range nh {
			slot := func(k int) int { return (j*chunks+k)*nh + h }
			m := part.f32(2 * slot(0))
			for k := 1; k < n; k++ {
				m = max(m, part.f32(2*slot(k)))
			}
			o, sum := make([]float32, dim), float32(0)
			for k := range n {
				w := reference.Exp(sub(part.f32(2*slot(k)), m))
				sum = add(sum, mul(part.f32(2*slot(k)+1), w))
				for d := range o {
					o[d] = add(o[d], mul(po.f32(slot(k)*pad+d), w))
				}
			}
			r := reference.Recip(sum)
			for d, v := range o {
				v = mul(v, r)
				out.setF32(col*stride+h*dim+d, v)
				largest.setU32(col, max(largest.u32(col), math.Float32bits(v)&^(1<<31)))
			}
		}
	}
}

// probe does one operation on bit patterns.
func probe(c *call) {
	a, b, x, y, n := c.bytes(0), c.bytes(1), c.bytes(2), c.bytes(3), c.num(4)
	c.wantGrid(divUp(n, 128), 1, 1)
	for i := range n {
		y.setU32(i, gpu.Operate(c.num(5), a.u32(i), b.u32(i), x.u32(i)))
	}
}
