package mlx

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"npack/pack/safetensors"
	"npack/ternary"
)

// buffers hold what the file has of some rows; reads go on in parallel.
type buffers struct {
	first                  int // row of the part that the first one is
	weight, scales, biases []byte
	q                      []byte // codes, or planes, of a row
}

var pool = sync.Pool{New: func() any { return new(buffers) }}

// blockBytes is about what is read of a file at once.
const blockBytes = 1 << 20

// readRows reads rows of a matrix or table; see [ternary.Model.Rows].
func (f *File) readRows(p *ternary.Part, t ternary.Tensor, r0, r1 int) error {
	s := f.sources[t.Name]
	p.Size(t, r1-r0)
	if f.rows != nil {
		if err := f.rows.Scales(t, p, r0); err != nil {
			return err
		}
	}
	b := pool.Get().(*buffers)
	defer pool.Put(b)
	step := max(1, blockBytes/s.rowBytes)
	for r := r0; r < r1; r += step {
		n := min(step, r1-r)
		if err := b.read(s, r, n); err != nil {
			return err
		}
		b.first = r - r0
		if err := f.block(s, p, b, r0, n); err != nil {
			return err
		}
	}
	return nil
}

// read fills b with n rows from row r of the tensor on.
func (b *buffers) read(s *source, r, n int) error {
	for _, x := range []struct {
		to   *[]byte
		from *safetensors.Tensor
		size int
	}{{&b.weight, s.weight, s.rowBytes}, {&b.scales, s.scales, s.scale}, {&b.biases, s.biases, s.scale}} {
		*x.to = grow(*x.to, n*x.size)
		if _, err := x.from.ReadAt(*x.to, int64(r)*int64(x.size)); err != nil {
			return err
		}
	}
	return nil
}

// block fills in the n rows of p that b holds.
func (f *File) block(s *source, p *ternary.Part, b *buffers, r0, n int) error {
	for r := b.first; r < b.first+n; r++ {
		if err := s.checkScales(b, r0, r); err != nil {
			return err
		}
	}
	if s.t.Int8 != nil {
		return f.table(s, p, b, r0, n)
	}
	br, err := f.br(s.t, r0+b.first, n)
	if err != nil {
		return err
	}
	m := &p.Ternary
	for r := b.first; r < b.first+n; r++ {
		if s.planes {
			err = f.twoPlanes(s, m, b, r0, r)
		} else {
			err = f.affine(s, m, b, br, r0, r)
		}
		if err != nil {
			return err
		}
		lo, hi, err := m.RowSums(s.t.Name, r0, r)
		if err != nil {
			return err
		}
		if f.rows == nil {
			m.RSLo[r], m.RSHi[r] = int32(lo), int32(hi)
		}
	}
	return nil
}

func (f *File) br(t ternary.Tensor, r0, n int) ([]byte, error) {
	if f.rows == nil {
		return nil, nil
	}
	return f.rows.BR(t, r0, n)
}

// row returns the bytes of weights of row r of the part.
func (b *buffers) row(s *source, r int) []byte {
	return b.weight[(r-b.first)*s.rowBytes : (r-b.first+1)*s.rowBytes]
}

func (s *source) scaleAt(b *buffers, r, group int) float32 { return s.float(b.scales, b, r, group) }
func (s *source) biasAt(b *buffers, r, group int) float32  { return s.float(b.biases, b, r, group) }

func (s *source) float(from []byte, b *buffers, r, group int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(from[(r-b.first)*s.scale+4*group:]))
}

// checkScales checks that the groups of row r, or of each half of it in two
// planes, have one scale, and the bias that belongs to it.
func (s *source) checkScales(b *buffers, r0, r int) error {
	part, half := ternary.PartScale, s.groups
	if s.t.Ternary != nil {
		part = ternary.PartSLo
	}
	if s.planes {
		half /= 2
	}
	for g := range s.groups {
		scale := s.scaleAt(b, r, g/half*half)
		bias := s.biasAt(b, r, g)
		if g >= half {
			part = ternary.PartSHi
		}
		switch {
		case !(abs(scale) <= math.MaxFloat32/256):
			return scaleFits(s.t.Name, part, r0+r, scale)
		case math.Float32bits(s.scaleAt(b, r, g)) != math.Float32bits(scale):
			return s.wrong(part, r0+r, g*s.group, fmt.Sprintf("scale %v", s.scaleAt(b, r, g)), fmt.Sprintf("that of the row's first group, %v", scale))
		case math.Float32bits(bias) != math.Float32bits(-float32(zero(s.bits))*scale):
			return s.wrong(part, r0+r, g*s.group, fmt.Sprintf("bias %v", bias), fmt.Sprintf("-%d times the scale, %v", zero(s.bits), scale))
		}
	}
	return nil
}

func (s *source) wrong(part string, row, col int, found, expected string) error {
	return &ternary.Error{Tensor: s.t.Name, Part: part, Row: row, Col: col, Found: found, Expected: expected}
}

// table fills in n rows of int8 values.
func (f *File) table(s *source, p *ternary.Part, b *buffers, r0, n int) error {
	m := &p.Int8
	var padding []byte
	if f.rows != nil {
		var err error
		if padding, err = f.rows.Padding(s.t, r0+b.first, n); err != nil {
			return err
		}
	}
	for r := b.first; r < b.first+n; r++ {
		scale := s.scaleAt(b, r, 0)
		if f.rows != nil && math.Float32bits(scale) != math.Float32bits(m.Scale[r]) {
			return s.wrong(ternary.PartScale, r0+r, -1, fmt.Sprintf("scale %v", scale), fmt.Sprintf("%v, by the rows' file", m.Scale[r]))
		}
		m.Scale[r] = scale
		to := m.Q[r*m.Stride : (r+1)*m.Stride]
		for i, q := range b.row(s, r) {
			to[i] = int8(q ^ 0x80)
		}
		clear(to[m.Cols:])
		if padding != nil {
			at := (r - b.first) * (m.Stride - m.Cols)
			for i := range to[m.Cols:] {
				to[m.Cols+i] = int8(padding[at+i])
			}
		}
		if f.rows == nil {
			m.WSum[r] = int32(ternary.SumInt8(m.Row(r)))
		}
	}
	return nil
}

// twoPlanes fills row r of m, which holds rows from r0 on.
func (f *File) twoPlanes(s *source, m *ternary.Matrix, b *buffers, r0, r int) error {
	lo, hi := s.scaleAt(b, r, 0), s.scaleAt(b, r, s.groups/2)
	if f.rows != nil && (math.Float32bits(lo) != math.Float32bits(m.SLo[r]) || math.Float32bits(hi) != math.Float32bits(m.SHi[r])) {
		return s.wrong(ternary.PartSLo, r0+r, -1, fmt.Sprintf("scales %v and %v", lo, hi), fmt.Sprintf("%v and %v, by the rows' file", m.SLo[r], m.SHi[r]))
	}
	m.SLo[r], m.SHi[r] = lo, hi
	n := m.Cols / 8
	bp, bn, br := planesOf(m, r)
	b.q = grow(b.q, 2*n)
	hp, hn := b.q[:n], b.q[n:]
	src := b.row(s, r)
	for half, to := range [2][2][]byte{{bp[:n], bn[:n]}, {hp, hn}} {
		if c := decodeTrits(to[0], to[1], src[2*n*half:2*n*(half+1)]); c >= 0 {
			return s.wrong(ternary.PartBP, r0+r, c+half*m.Cols, "code 3", "0, 1 or 2")
		}
	}
	for i := range n {
		high := hp[i] | hn[i]
		if both := high & (bp[i] | bn[i]); both != 0 {
			return s.wrong(ternary.PartBR, r0+r, 8*i, "a weight that is in both planes", "one plane for each")
		}
		bp[i], bn[i], br[i] = bp[i]|hp[i], bn[i]|hn[i], high
	}
	return nil
}

// planesOf returns the planes of row r, with what is behind the columns cleared.
func planesOf(m *ternary.Matrix, r int) (bp, bn, br []byte) {
	at := r * m.Stride
	bp, bn, br = m.BP[at:at+m.Stride], m.BN[at:at+m.Stride], m.BR[at:at+m.Stride]
	for _, p := range [][]byte{bp, bn, br} {
		clear(p[(m.Cols+7)/8:])
	}
	return bp, bn, br
}

// affine fills row r of m: a code is a multiple of the row's step, and that is
// one of the row's magnitudes or the negative of one. hints is the plane br of
// the rows' file, or nil.
func (f *File) affine(s *source, m *ternary.Matrix, b *buffers, hints []byte, r0, r int) error {
	step := s.scaleAt(b, r, 0)
	b.q = grow(b.q, m.Cols)
	unpackCodes(b.q, b.row(s, r), s.bits)
	var used [256]bool
	for _, q := range b.q {
		used[q] = true
	}
	if f.rows == nil {
		m.SLo[r], m.SHi[r] = magnitudes(&used, step, s.bits)
	}
	// By code: bit 0 in bp, 1 in bn, 2 in br; 3 more for the other reading, where
	// the magnitudes are the same or each other's negatives.
	var bits [256]byte
	z := zero(s.bits)
	lo, hi := m.SLo[r], m.SHi[r]
	for q := range 1 << s.bits {
		if !used[q] || q == z {
			continue
		}
		v := float32(q-z) * step
		is := func(w float32) byte {
			switch v {
			case w:
				return 1
			case -w:
				return 2
			}
			return 0
		}
		low, high := is(lo), is(hi)
		if low|high == 0 || max(q-z, z-q) > most(s.bits) {
			col := 0
			for b.q[col] != byte(q) {
				col++
			}
			return s.wrong(ternary.PartBP, r0+r, col, fmt.Sprintf("weight %v", v), fmt.Sprintf("0, ±%v or ±%v", lo, hi))
		}
		if high != 0 {
			high |= 4
		}
		if low == 0 {
			low = high
		} else if high == 0 {
			high = low
		}
		bits[q] = low | high<<3
	}
	bp, bn, br := planesOf(m, r)
	for i := range m.Cols / 8 {
		var p, n, h byte
		for k, q := range b.q[8*i : 8*i+8] {
			x := bits[q]
			if hints != nil && hints[(r-b.first)*m.Stride+i]>>k&1 != 0 {
				x >>= 3
			}
			p, n, h = p|x&1<<k, n|x>>1&1<<k, h|x>>2&1<<k
		}
		bp[i], bn[i], br[i] = p, n, h
	}
	return nil
}

// magnitudes are those of a row by its codes alone: the smaller multiple of the
// step that is used is the low one. One that is not used is the other.
func magnitudes(used *[256]bool, step float32, bits int) (lo, hi float32) {
	z := zero(bits)
	var found []float32
	for n := 1; n <= z && len(found) < 2; n++ {
		if used[z-n] || z+n < 256 && used[z+n] {
			found = append(found, float32(n)*step)
		}
	}
	switch len(found) {
	case 0:
		return step, step
	case 1:
		return found[0], found[0]
	}
	return found[0], found[1]
}
