package foreign

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"npack/pack"
	"npack/pack/safetensors"
	"npack/ternary"
)

// RowsName is the file beside the safetensors of an exported container that
// holds what values do not tell: the two magnitudes of rows that use one or none,
// the scales of embeddings, and the sums that a container keeps (see FORMAT.md
// §4). Weights are read from the model's own file all the same.
const RowsName = "npack-rows.safetensors"

// Keys of the metadata of RowsName.
const (
	keySHA256 = "npack.container.sha256"
	keyBytes  = "npack.container.bytes"
)

// The tensors of RowsName are named TENSOR.PART.
const (
	partLo    = "s_lo"
	partHi    = "s_hi"
	partRSLo  = "rs_lo"
	partRSHi  = "rs_hi"
	partScale = "scale"
	partWSum  = "wsum"
)

// hints are what is known of the rows of a tensor.
type hints struct {
	lo, hi, scale    []float32
	rsLo, rsHi, wsum []int32
}

// hint is what is known of a row.
type hint struct {
	lo, hi, scale    float32
	rsLo, rsHi, wsum int32
}

// row returns what is known of row r, or nil.
func (h *hints) row(r int) *hint {
	switch {
	case h == nil:
		return nil
	case h.scale != nil:
		return &hint{scale: h.scale[r], wsum: h.wsum[r]}
	}
	return &hint{lo: h.lo[r], hi: h.hi[r], rsLo: h.rsLo[r], rsHi: h.rsHi[r]}
}

// openHints opens the hints in dir, if there are any.
func (h *hf) openHints(dir string) error {
	f, err := safetensors.Open(filepath.Join(dir, RowsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	h.hints = f
	return err
}

// rowHints reads what is known of the rows of a linear or table.
func (h *hf) rowHints(name string, rows int, linear bool) (*hints, error) {
	if h.hints == nil {
		return nil, nil
	}
	floats := func(part string) ([]float32, error) {
		t, err := h.hint(name, part, safetensors.F32, rows)
		if err != nil {
			return nil, err
		}
		return t.Floats()
	}
	ints := func(part string) ([]int32, error) {
		t, err := h.hint(name, part, safetensors.I32, rows)
		if err != nil {
			return nil, err
		}
		b := make([]byte, t.Size)
		if _, err := t.ReadAt(b, 0); err != nil {
			return nil, err
		}
		v := make([]int32, rows)
		for i := range v {
			v[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
		return v, nil
	}
	x := new(hints)
	var errs [4]error
	if linear {
		x.lo, errs[0] = floats(partLo)
		x.hi, errs[1] = floats(partHi)
		x.rsLo, errs[2] = ints(partRSLo)
		x.rsHi, errs[3] = ints(partRSHi)
	} else {
		x.scale, errs[0] = floats(partScale)
		x.wsum, errs[1] = ints(partWSum)
	}
	return x, errors.Join(errs[:]...)
}

func (h *hf) hint(name, part string, typ safetensors.DType, rows int) (*safetensors.Tensor, error) {
	t := h.hints.Tensor(name + "." + part)
	if t == nil || t.DType != typ || len(t.Shape) != 1 || t.Shape[0] != int64(rows) {
		return nil, &pack.Error{Kind: pack.ErrCorrupt, File: h.hints.Files()[0], Place: fmt.Sprintf("tensor %q", name+"."+part), Offset: -1,
			Found: "the tensor is not there as it should be", Expected: fmt.Sprintf("%v of shape [%d]", typ, rows), Hint: "remove the file: the container can be made without it, if not the same one"}
	}
	return t, nil
}

// WriteRows writes the contents of RowsName for m, the model of the container
// with that sha256, in hex, and length. m need not be in memory.
func WriteRows(w io.Writer, m *ternary.Model, sha256 string, bytes int64) error {
	h := safetensors.Header{Metadata: []safetensors.KV{{Key: keySHA256, Value: sha256}, {Key: keyBytes, Value: fmt.Sprint(bytes)}}}
	add := func(name, part string, typ safetensors.DType, rows int) {
		h.Tensors = append(h.Tensors, safetensors.Tensor{Name: name + "." + part, DType: typ, Shape: []int64{int64(rows)}})
	}
	for t := range m.Tensors() {
		switch {
		case t.Ternary != nil:
			add(t.Name, partLo, safetensors.F32, t.Ternary.Rows)
			add(t.Name, partHi, safetensors.F32, t.Ternary.Rows)
			add(t.Name, partRSLo, safetensors.I32, t.Ternary.Rows)
			add(t.Name, partRSHi, safetensors.I32, t.Ternary.Rows)
		case t.Int8 != nil:
			add(t.Name, partScale, safetensors.F32, t.Int8.Rows)
			add(t.Name, partWSum, safetensors.I32, t.Int8.Rows)
		}
	}
	x, err := safetensors.NewWriter(w, &h)
	if err != nil {
		return err
	}
	var part ternary.Part
	for t := range m.Tensors() {
		if t.Vector != nil {
			continue
		}
		var lo, hi []float32
		var rsLo, rsHi []int32
		for r0, r1 := range t.Chunks() {
			p, err := m.ReadRows(&part, t, r0, r1)
			if err != nil {
				return err
			}
			if w := p.Ternary; w != nil {
				lo, hi, rsLo, rsHi = append(lo, w.SLo...), append(hi, w.SHi...), append(rsLo, w.RSLo...), append(rsHi, w.RSHi...)
			} else {
				lo, rsLo = append(lo, p.Int8.Scale...), append(rsLo, p.Int8.WSum...)
			}
		}
		for _, v := range []any{lo, hi, rsLo, rsHi} {
			if err := binary.Write(x, binary.LittleEndian, v); err != nil {
				return err
			}
		}
		m.ReleaseTensor(t)
	}
	return x.Close()
}

// container returns what the hints say of the container that was exported.
func (f *File) container() (sha256 string, bytes int64) {
	if f.hints == nil {
		return "", 0
	}
	value := func(key string) string {
		if i := slices.IndexFunc(f.hints.Metadata, func(kv safetensors.KV) bool { return kv.Key == key }); i >= 0 {
			return f.hints.Metadata[i].Value
		}
		return ""
	}
	_, _ = fmt.Sscan(value(keyBytes), &bytes) // 0 if it is no number
	return value(keySHA256), bytes
}
