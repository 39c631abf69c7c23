package native

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"npack/pack"
	"npack/ternary"
)

// parser walks the records of a file. Every length is compared with the bytes
// that are left before a slice is made of it.
//
// The few numbers that it needs are read from src. In a map each would be a page
// fault, which costs several times as much as a read and, if the disk fails,
// ends the program.
type parser struct {
	f      *File
	src    io.ReaderAt
	size   int64  // of the file
	data   []byte // all of it, unless it passes by (see Check)
	off    int64
	record string // name of the record that is being read
	buf    [headerSize]byte
}

// records reads records: from a file, or as they pass by. Each starts at the
// parser's off and moves it to its end.
type records interface {
	int8Record(name string, m *ternary.Int8Matrix, c *ternary.Config) error
	tritRecord(name string, m *ternary.Matrix, s ternary.Shape) error
	vector(name string, n int) ([]float32, error)
}

// parse fills f.model and f.records from f.data, whose bytes src gives too.
func (f *File) parse(src io.ReaderAt) error {
	p := &parser{f: f, src: src, size: int64(len(f.data)), data: f.data, record: "header"}
	return p.walk(p)
}

// walk reads the records of a container in order.
func (p *parser) walk(rs records) error {
	m := &p.f.model
	if err := p.header(&m.Config); err != nil {
		return err
	}
	if !m.Tied {
		m.Embed = new(ternary.Int8Matrix)
		if err := rs.int8Record("token_embd", m.Embed, &m.Config); err != nil {
			return err
		}
	}
	shapes := m.LinearShapes()
	for i := range m.Config.Layers {
		// Layers grow as they are read: their number is not believed.
		m.Layers = append(m.Layers, ternary.Layer{})
		l := &m.Layers[i]
		for _, n := range l.Norms(&m.Config) {
			v, err := rs.vector(ternary.LayerName(i, n.Name), n.Len)
			if err != nil {
				return err
			}
			*n.Data = v
		}
		for j, w := range l.Linears() {
			if err := rs.tritRecord(ternary.LayerName(i, ternary.Projections[j]), w, shapes[j]); err != nil {
				return err
			}
		}
	}
	var err error
	if m.FinalNorm, err = rs.vector("output_norm", m.Hidden); err != nil {
		return err
	}
	head := "output"
	if m.Tied {
		head = "token_embd"
	}
	if err := rs.int8Record(head, &m.Head, &m.Config); err != nil {
		return err
	}
	if left := p.left(); left != 0 {
		return p.fail(pack.ErrCorrupt, p.off, fmt.Sprintf("%d bytes follow the last record", left), fmt.Sprintf("the file to end at %d", p.off))
	}
	return nil
}

// header reads §1.
func (p *parser) header(c *ternary.Config) error {
	b, err := p.read(0, headerSize)
	if err != nil {
		return err
	}
	word := func(name string) uint32 {
		off, _ := headerOffset(name)
		return binary.LittleEndian.Uint32(b[off:])
	}
	field := func(name string) int { return int(int32(word(name))) }
	number := func(name string) float32 { return math.Float32frombits(word(name)) }
	if v := field("version"); v != 4 {
		err := p.fail(pack.ErrUnsupported, 4, fmt.Sprintf("version is %d", v), "4")
		err.Hint = "a newer program may be needed; if the file should be version 4 it is damaged"
		return err
	}
	*c = ternary.Config{
		Arch:         ternary.Arch(field("arch")),
		Layers:       field("n_layers"),
		Hidden:       field("hidden"),
		Heads:        field("n_heads"),
		KVHeads:      field("n_kv_heads"),
		HeadDim:      field("head_dim"),
		RotaryDims:   field("rotary_dims"),
		Intermediate: field("intermediate"),
		Vocab:        field("vocab"),
		MaxPosition:  field("max_position"),
		RMSEps:       number("rms_norm_eps"),
		RopeTheta:    number("rope_theta"),
		Tied:         field("eok") == 1,
	}
	if err := c.CheckDims(); err != nil {
		return p.f.Place(err)
	}
	if eok := field("eok"); eok != 1 && eok != 2 {
		return p.fail(pack.ErrCorrupt, 56, fmt.Sprintf("eok is %d", eok), "1 (tied embedding) or 2 (separate)")
	}
	p.f.records = append(p.f.records, Record{Name: "header", Kind: KindHeader, Size: headerSize})
	p.off = headerSize
	return nil
}

// geometry reads the four numbers that start a matrix (§3, §4).
func (p *parser) geometry(r *Record, s ternary.Shape) error {
	b, err := p.read(p.off, geometry)
	if err != nil {
		return err
	}
	for i, f := range []struct {
		name string
		to   *int
		want int // or 0
	}{{"rows", &r.Rows, s.Rows}, {"cols", &r.Cols, s.Cols}, {"cols_pad", &r.ColsPad, 0}, {"row_stride", &r.Stride, 0}} {
		*f.to = int(int32(binary.LittleEndian.Uint32(b[4*i:])))
		if f.want != 0 && *f.to != f.want {
			return p.fail(pack.ErrCorrupt, p.off+int64(4*i), fmt.Sprintf("%s is %d", f.name, *f.to), fmt.Sprintf("%d, from the header", f.want))
		}
	}
	if r.ColsPad < r.Cols {
		return p.fail(pack.ErrCorrupt, p.off+8, fmt.Sprintf("cols_pad is %d", r.ColsPad), fmt.Sprintf("at least cols, %d", r.Cols))
	}
	return nil
}

// tritGeometry reads what starts a trit record.
func (p *parser) tritGeometry(r *Record, s ternary.Shape) error {
	if err := p.geometry(r, s); err != nil {
		return err
	}
	if int64(r.Stride)*8 < int64(r.ColsPad) {
		return p.fail(pack.ErrCorrupt, p.off+12, fmt.Sprintf("row_stride is %d bytes", r.Stride), fmt.Sprintf("at least %d for cols_pad %d", (int64(r.ColsPad)+7)/8, r.ColsPad))
	}
	return nil
}

// tritRecord reads §3.
func (p *parser) tritRecord(name string, m *ternary.Matrix, s ternary.Shape) error {
	r := Record{Name: name, Kind: KindTrit, Offset: p.off}
	p.record = name
	if err := p.tritGeometry(&r, s); err != nil {
		return err
	}
	// rows <= 2^20 and row_stride < 2^31, so these stay below 2^53.
	rows, plane := int64(r.Rows), int64(r.Rows)*int64(r.Stride)
	size := geometry + 3*plane + 4*4*rows + 4
	if err := p.need(size); err != nil {
		return err
	}
	b, err := p.read(p.off+size-4, 4)
	if err != nil {
		return err
	}
	r.BiasFlag = int32(binary.LittleEndian.Uint32(b))
	if r.BiasFlag != 0 {
		size += 4 * rows
		if err := p.need(size); err != nil {
			return err
		}
	}
	p.off += geometry
	*m = ternary.Matrix{
		Rows: r.Rows, Cols: r.Cols, ColsPad: r.ColsPad, Stride: r.Stride,
		BP: p.take(plane), BN: p.take(plane), BR: p.take(plane),
		SLo: floats(p.take(4 * rows)), SHi: floats(p.take(4 * rows)),
		RSLo: ints(p.take(4 * rows)), RSHi: ints(p.take(4 * rows)),
		BiasFlag: r.BiasFlag,
	}
	p.off += 4
	if r.BiasFlag != 0 {
		m.Bias = floats(p.take(4 * rows))
	}
	r.Size = size
	p.f.records = append(p.f.records, r)
	return nil
}

// tableGeometry reads what starts an int8 record.
func (p *parser) tableGeometry(r *Record, c *ternary.Config) error {
	if err := p.geometry(r, ternary.Shape{Rows: c.Vocab, Cols: c.Hidden}); err != nil {
		return err
	}
	if r.Stride != r.ColsPad {
		return p.fail(pack.ErrCorrupt, p.off+12, fmt.Sprintf("row_stride is %d", r.Stride), fmt.Sprintf("cols_pad, %d", r.ColsPad))
	}
	return nil
}

// int8Record reads §4.
func (p *parser) int8Record(name string, m *ternary.Int8Matrix, c *ternary.Config) error {
	r := Record{Name: name, Kind: KindInt8, Offset: p.off}
	p.record = name
	if err := p.tableGeometry(&r, c); err != nil {
		return err
	}
	// rows <= 2^24 and row_stride < 2^31.
	rows, table := int64(r.Rows), int64(r.Rows)*int64(r.Stride)
	r.Size = geometry + table + 8*rows
	if err := p.need(r.Size); err != nil {
		return err
	}
	p.off += geometry
	*m = ternary.Int8Matrix{
		Rows: r.Rows, Cols: r.Cols, ColsPad: r.ColsPad, Stride: r.Stride,
		Q: int8s(p.take(table)), Scale: floats(p.take(4 * rows)), WSum: ints(p.take(4 * rows)),
	}
	p.f.records = append(p.f.records, r)
	return nil
}

// vector reads n float32 values (§2).
func (p *parser) vector(name string, n int) ([]float32, error) {
	r := Record{Name: name, Kind: KindVector, Offset: p.off, Size: 4 * int64(n), Rows: n}
	p.record = name
	if err := p.need(r.Size); err != nil {
		return nil, err
	}
	p.f.records = append(p.f.records, r)
	return floats(p.take(r.Size)), nil
}

func (p *parser) left() int64 { return p.size - p.off }

// need reports whether n bytes of the current record, which starts at p.off,
// are there.
func (p *parser) need(n int64) error {
	if n <= p.left() {
		return nil
	}
	e := p.fail(pack.ErrTruncated, p.off, fmt.Sprintf("truncated: the record needs %d bytes, %d are there", n, p.left()),
		fmt.Sprintf("a file of at least %d bytes (it has %d); is the download incomplete?", p.off+n, p.size))
	e.Hint = "compare the size with the publisher's and fetch the rest"
	return e
}

// take returns the next n bytes, which need has found to be there.
func (p *parser) take(n int64) []byte {
	b := p.data[p.off : p.off+n : p.off+n]
	p.off += n
	return b
}

// read returns n bytes at off, valid until the next call.
func (p *parser) read(off, n int64) ([]byte, error) {
	if end := off + n; end > p.size {
		return nil, p.need(end - p.off)
	}
	b := p.buf[:n]
	if _, err := p.src.ReadAt(b, off); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%q: byte %d: %w", p.f.name, off, err)
	}
	return b, nil
}

func (p *parser) fail(kind error, off int64, found, expected string) *pack.Error {
	place := p.record
	if place != "header" {
		place = fmt.Sprintf("tensor %q", place)
	}
	return &pack.Error{Kind: kind, File: p.f.name, Place: place, Offset: off, Found: found, Expected: expected, Hint: hintDamaged}
}
