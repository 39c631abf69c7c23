package gputest

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"npack/gpu/kernels"
	"npack/runtime/backend"
	"npack/runtime/reference"
)

// table has the kernels by name, with the number of their arguments.
var table = map[string]struct {
	args int
	run  func(c *call)
}{
	"embed": {7, embed}, "norm_quant": {15, normQuant}, "quant": {11, quant},
	"tern_dot": {14, linear}, "tern_bits": {14, linear}, "tern_mma": {14, linear}, "tern_many": {14, linear},
	"head_dot": {11, head}, "head_mma": {11, head},
	"heads_f16": {22, heads}, "heads_f32": {22, heads}, "heads_i8": {22, heads},
	"attn_f16": {14, attention}, "attn_f32": {14, attention}, "attn_i8": {14, attention},
	"attn_join": {10, join}, "argmax": {4, argmax}, "argmax_join": {6, argmaxJoin}, "topk": {7, topk}, "probe": {6, probe},
}

func add(x, y float32) float32 { return float32(x + y) }
func sub(x, y float32) float32 { return float32(x - y) }
func mul(x, y float32) float32 { return float32(x * y) }

func finite(x float32) bool { return math.Float32bits(x)>>23&0xff != 0xff }

// fault leaves the smallest code.
func fault(m mem, code int) {
	if code < m.i32(0) {
		m.setU32(0, uint32(code))
	}
}

func divUp(x, n int) int { return (x + n - 1) / n }

// tableByte is where column col of a row lies in a table (layout.go).
func tableByte(row, col, tiles int) int {
	i, t, h := col>>7&1*4+col&3, col>>5&3, col>>4&1
	word := (i*32+4*(row%8)+t)*4 + h*2 + row%16/8
	return ((row/16*tiles+col/256)*1024+word)*4 + col>>2&3
}

func embed(c *call) {
	ids, w, scale, x := c.bytes(0), c.bytes(1), c.bytes(2), c.bytes(3)
	tiles, hidden, stride := c.num(4), c.num(5), c.num(6)
	c.wantGrid(divUp(hidden, 256), c.grid(1), 1)
	for i := range c.grid(1) {
		id := ids.i32(i)
		for j := range hidden {
			x.setF32(i*stride+j, mul(float32(int8(w[tableByte(id, j, tiles)])), scale.f32(id)))
		}
	}
}

// norm is NUMERICS.md's, of x [n] with weight g.
func norm(x []float32, g mem, inv, eps float32) {
	var lanes [256]float32
	for i, v := range x {
		x[i] = reference.Keep(v, 50)
		lanes[i%256] = add(lanes[i%256], mul(x[i], x[i]))
	}
	r := reference.RSqrt(add(mul(reference.Fold(lanes[:]), inv), eps))
	for i, v := range x {
		x[i] = reference.Keep(mul(mul(v, r), g.f32(i)), 50)
	}
}

// setDigits writes the fixed-point form of column i, whose largest magnitude has
// the bits most. Its digits lie side by side, which is not the layout of the cards'
// kernels: none but these reads them.
func (c *call) setDigits(i int, x []float32, most uint32, digits, scales, faults mem, tiles, planes, flags, code int) {
	q := make([]int32, len(x))
	m, scale := math.Float32frombits(most), float32(1)
	switch {
	case !finite(m):
		fault(faults, code)
		return
	case flags&kernels.QuantBitNet != 0:
		scale = reference.QuantizeInt8(q, x, max(m, 1e-5))
	case m >= 0x1p-40:
		var up float32
		up, scale = reference.FixedScale(m, backend.Activations(planes))
		for j, v := range x {
			q[j] = int32(math.RoundToEven(float64(v) * float64(up)))
		}
	}
	scales.setF32(i, scale)
	to := digits[i*planes*tiles*kernels.TileCols:][:planes*tiles*kernels.TileCols]
	clear(to)
	for j, v := range q {
		for p := range planes {
			to[j*planes+p] = byte(v)
			v = (v - int32(int8(v))) >> 8
		}
	}
}

func normQuant(c *call) {
	x, g, digits, scales, largest, faults := c.bytes(0), c.bytes(1), c.bytes(3), c.bytes(4), c.bytes(5), c.bytes(6)
	n, tiles, stride, planes, flags, code := c.num(7), c.num(8), c.num(9), c.num(12), c.num(13), c.num(14)
	c.wantGrid(c.grid(0), 1, 1)
	for i := range c.grid(0) {
		from := i
		if flags&kernels.QuantList != 0 {
			from = c.bytes(2).i32(i)
		}
		v := x.floats(from*stride, n)
		norm(v, g, c.real(10), c.real(11))
		c.setDigits(i, v, largestOf(v), digits, scales, faults, tiles, planes, flags, code)
		largest.setU32(i, 0)
	}
}

func quant(c *call) {
	x, largest, digits, scales, faults := c.bytes(0), c.bytes(1), c.bytes(2), c.bytes(3), c.bytes(4)
	n, tiles, stride, planes, flags, code := c.num(5), c.num(6), c.num(7), c.num(8), c.num(9), c.num(10)
	c.wantGrid(divUp(tiles, 4), c.grid(1), 1)
	for i := range c.grid(1) {
		c.setDigits(i, x.floats(i*stride, n), largest.u32(i), digits, scales, faults, tiles, planes, flags, code)
	}
}

// largestOf returns the bits of the largest magnitude in x, NaN above all.
func largestOf(x []float32) (most uint32) {
	for _, v := range x {
		most = max(most, math.Float32bits(v)&^(1<<31))
	}
	return most
}

// columnOf returns the fixed-point activations of column i.
func columnOf(digits mem, i, tiles, planes int) []int64 {
	x := make([]int64, tiles*kernels.TileCols)
	from := digits[i*planes*len(x):]
	for j := range x {
		for p := planes - 1; p >= 0; p-- {
			x[j] = x[j]<<8 + int64(int8(from[j*planes+p]))
		}
	}
	return x
}

// signs lists the columns of a ternary row by weight: +lo, -lo, +hi, -hi.
type signs [4][]int32

// planes returns the rows of the matrix that is argument i. They are kept until
// something else is uploaded there.
func (c *call) planes(i, strips, tiles int) []signs {
	key := c.l.Args[i]
	if rows := c.d.linears[key]; rows != nil {
		return rows
	}
	w, rows := c.bytes(i), make([]signs, 16*strips)
	for r := range rows {
		for word := range tiles * 8 {
			at := (r/16*tiles+word/8)*384 + (4*(r%8)+word%4)*4 + word/4%2*2 + r%16/8
			bp, bn, br := w.u32(at), w.u32(at+128), w.u32(at+256)
			for kind, b := range [4]uint32{bp &^ br, bn &^ br, bp & br, bn & br} {
				for ; b != 0; b &= b - 1 {
					rows[r][kind] = append(rows[r][kind], int32(32*word+bits.TrailingZeros32(b)))
				}
			}
		}
	}
	c.d.linears[key] = rows
	return rows
}

// table is planes for int8 rows.
func (c *call) table(i, rows, tiles int) [][]int8 {
	key := c.l.Args[i]
	if t := c.d.tables[key]; t != nil {
		return t
	}
	w, t := c.bytes(i), make([][]int8, rows)
	for r := range t {
		t[r] = make([]int8, tiles*kernels.TileCols)
		for k := range t[r] {
			t[r][k] = int8(w[tableByte(r, k, tiles)])
		}
	}
	c.d.tables[key] = t
	return t
}

func linear(c *call) {
	s, digits, scales, y, largest := c.bytes(1), c.bytes(3), c.bytes(4), c.bytes(5), c.bytes(6)
	tiles, strips, rows, n, stride, planes, flags := c.num(7), c.num(8), c.num(9), c.num(10), c.num(11), c.num(12), c.num(13)
	switch c.l.Kernel {
	case "tern_dot", "tern_bits":
		c.wantGrid(strips, n, 1)
	case "tern_mma":
		c.wantGrid(strips, divUp(n*planes, 24), 1)
	case "tern_many":
		c.wantGrid(divUp(strips, 8), divUp(n*planes, 72), 1)
	}
	x := make([][]int64, n) // fixed-point activations
	for i := range x {
		x[i] = columnOf(digits, i, tiles, planes)
	}
	out := make([]float32, n*strips*16)
	for r, cols := range c.planes(0, strips, tiles) {
		lo, hi := s.f32(2*r), s.f32(2*r+1)
		for i := range n {
			var sums [4]int64
			for kind, at := range cols {
				var sum int64
				for _, j := range at {
					sum += x[i][j]
				}
				sums[kind] = sum
			}
			low, high, scale := float32(sums[0]-sums[1]), float32(sums[2]-sums[3]), scales.f32(i)
			var v float32
			if flags&kernels.LinearBitNet != 0 {
				v = mul(add(mul(low, lo), mul(high, hi)), scale)
			} else {
				v = add(mul(low, mul(lo, scale)), mul(high, mul(hi, scale)))
			}
			if flags&kernels.LinearBias != 0 {
				v = add(v, c.bytes(2).f32(r))
			}
			out[i*strips*16+r] = v
		}
	}
	for i := range n {
		row := out[i*strips*16:][:strips*16]
		for r := range rows {
			switch {
			case flags&(kernels.LinearSiLU|kernels.LinearSquareReLU) != 0:
				v, u := row[kernels.Gate.Row(r)], reference.Keep(row[kernels.Up.Row(r)], 50)
				if flags&kernels.LinearSiLU != 0 {
					v = mul(reference.Keep(reference.SiLU(v), 50), u)
				} else {
					v = reference.Keep(max(v, 0), 50)
					v = mul(mul(v, v), u)
				}
				y.setF32(i*stride+r, v)
				largest.setU32(i, max(largest.u32(i), math.Float32bits(v)&^(1<<31)))
			case flags&kernels.LinearAdd != 0:
				y.setF32(i*stride+r, add(y.f32(i*stride+r), row[r]))
			default:
				y.setF32(i*stride+r, row[r])
			}
		}
	}
}

func head(c *call) {
	s, digits, scales, y := c.bytes(1), c.bytes(2), c.bytes(3), c.bytes(4)
	tiles, strips, rows, n, stride, planes := c.num(5), c.num(6), c.num(7), c.num(8), c.num(9), c.num(10)
	if c.l.Kernel == "head_dot" {
		c.wantGrid(strips, n, 1)
	} else {
		c.wantGrid(strips, divUp(n*planes, 24), 1)
	}
	x := make([][]int64, n)
	for i := range x {
		x[i] = columnOf(digits, i, tiles, planes)
	}
	for r, row := range c.table(0, rows, tiles) {
		for j := range x {
			var sum int64
			for k, v := range row {
				sum += int64(v) * x[j][k]
			}
			y.setF32(j*stride+r, mul(float32(sum), mul(s.f32(r), scales.f32(j))))
		}
	}
}

// ranking is a logit's order as an integer: 0 is the same as -0.
func ranking(v float32) uint32 {
	b := math.Float32bits(add(v, 0))
	if b>>31 == 1 {
		return ^b
	}
	return b | 1<<31
}

type candidate struct{ key, id uint32 }

func byRank(a, b candidate) int { return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.id, b.id)) }

func argmax(c *call) {
	logits, best, rows, stride := c.bytes(0), c.bytes(1), c.num(2), c.num(3)
	slices := divUp(rows, 4096)
	c.wantGrid(slices, c.grid(1), 1)
	for i := range c.grid(1) {
		for s := range slices {
			var top candidate
			for r := s * 4096; r < min(rows, (s+1)*4096); r++ {
				if k := ranking(logits.f32(i*stride + r)); k > top.key {
					top = candidate{k, uint32(r)}
				}
			}
			best.setU32((i*slices+s)*2, top.key)
			best.setU32((i*slices+s)*2+1, top.id)
		}
	}
}

func argmaxJoin(c *call) {
	best, choice, ids, pos, slices, advance := c.bytes(0), c.bytes(1), c.bytes(2), c.bytes(3), c.num(4), c.num(5)
	c.wantGrid(c.grid(0), 1, 1)
	for i := range c.grid(0) {
		var top candidate
		for s := range slices {
			if k := best.u32((i*slices + s) * 2); k > top.key {
				top = candidate{k, best.u32((i*slices+s)*2 + 1)}
			}
		}
		choice.setU32(2*i, top.key)
		choice.setU32(2*i+1, top.id)
		if advance != 0 {
			ids.setU32(i, top.id)
			pos.setU32(i, pos.u32(i)+1)
		}
	}
}

func topk(c *call) {
	to, count, stride, k, stage := c.bytes(2), c.num(3), c.num(4), c.num(5), c.num(6)
	n := divUp(count, 512)
	c.wantGrid(divUp(n, 8), c.grid(1), 1)
	for i := range c.grid(1) {
		for s := range n {
			var all []candidate
			for j := s * 512; j < min(count, (s+1)*512); j++ {
				if stage == 0 {
					all = append(all, candidate{ranking(c.bytes(0).f32(i*stride + j)), uint32(j)})
				} else {
					all = append(all, candidate{c.bytes(1).u32((i*count + j) * 2), c.bytes(1).u32((i*count+j)*2 + 1)})
				}
			}
			slices.SortFunc(all, byRank)
			all = append(all, make([]candidate, k)...)[:k]
			for j, v := range all {
				to.setU32(((i*n+s)*k+j)*2, v.key)
				to.setU32(((i*n+s)*k+j)*2+1, v.id)
			}
		}
	}
}
