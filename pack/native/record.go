package native

import "npack/ternary"

// Kind tells the records of a container apart (§2 to §4).
type Kind int

const (
	KindHeader Kind = iota
	KindVector      // float32 values: a norm
	KindTrit        // a ternary matrix
	KindInt8        // an embedding table
)

// String returns the name that inspect prints.
func (k Kind) String() string {
	return [...]string{"header", "vector", "trit", "int8"}[k]
}

// Record is one part of the file.
type Record struct {
	Name         string // "header", or as [ternary.Tensor.Name]
	Kind         Kind
	Offset, Size int64 // bytes, within the file

	// The record's own header; a vector has Rows alone.
	Rows, Cols, ColsPad, Stride int
	BiasFlag                    int32 // the has_bias word of a trit record
}

const (
	headerSize = 60
	geometry   = 16 // rows, cols, cols_pad, row_stride
)

// headerFields are the header's fields from offset 0, four bytes each (§1).
var headerFields = [...]string{"magic", "version", "arch", "n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim",
	"rotary_dims", "intermediate", "vocab", "max_position", "rms_norm_eps", "rope_theta", "eok"}

func headerOffset(field string) (int64, bool) {
	for i, name := range headerFields {
		if name == field {
			return int64(4 * i), true
		}
	}
	return 0, false
}

// PartOffset returns where in the file a part of the record starts: a field of
// its header ("rows") or one of the ternary.Part names.
func (r *Record) PartOffset(part string) (int64, bool) {
	off := r.Offset
	if r.Kind == KindHeader {
		o, ok := headerOffset(part)
		return off + o, ok
	}
	if r.Kind == KindVector {
		return off, part == ternary.PartNorm
	}
	for i, name := range []string{"rows", "cols", "cols_pad", "row_stride"} {
		if part == name {
			return off + int64(4*i), true
		}
	}
	off += geometry
	for _, p := range r.parts() {
		if p.name == part {
			return off, true
		}
		off += p.size
	}
	return 0, false
}

type part struct {
	name string
	size int64
}

// parts are what follows the geometry of a trit or int8 record, in order.
func (r *Record) parts() []part {
	data, word := int64(r.Rows)*int64(r.Stride), 4*int64(r.Rows)
	if r.Kind == KindInt8 {
		return []part{{ternary.PartQ, data}, {ternary.PartScale, word}, {ternary.PartWSum, word}}
	}
	p := []part{{ternary.PartBP, data}, {ternary.PartBN, data}, {ternary.PartBR, data},
		{ternary.PartSLo, word}, {ternary.PartSHi, word}, {ternary.PartRSLo, word}, {ternary.PartRSHi, word},
		{"has_bias", 4}}
	if r.BiasFlag != 0 {
		p = append(p, part{ternary.PartBias, word})
	}
	return p
}

// within is how far into a part the value at row and col lies, in bytes.
func (r *Record) within(part string, row, col int) int64 {
	if row < 0 {
		return 0
	}
	switch part {
	case ternary.PartBP, ternary.PartBN, ternary.PartBR:
		return int64(row)*int64(r.Stride) + int64(max(col, 0)/8)
	case ternary.PartQ:
		return int64(row)*int64(r.Stride) + int64(max(col, 0))
	}
	return 4 * int64(row)
}
