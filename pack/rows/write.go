package rows

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"

	"npack/pack/safetensors"
	"npack/ternary"
)

// odd are the tensors that need more than columns of numbers.
type odd struct {
	mu      sync.Mutex
	br      map[string]bool // planes that are not the usual ones (§3)
	padding map[string]bool // tables with values behind their columns
}

// Write writes the file of m, which was read from, or makes, the container with
// this sha256, in hex, and length. It reads all weights twice.
func Write(ctx context.Context, w io.Writer, m *ternary.Model, sha256 string, bytes int64) error {
	o := odd{br: map[string]bool{}, padding: map[string]bool{}}
	if err := m.Walk(ctx, ternary.WalkOptions{}, 1, func(t, part ternary.Tensor, _ int) error {
		o.look(t, part)
		m.ReleaseTensor(part)
		return nil
	}); err != nil {
		return err
	}
	h := safetensors.Header{Metadata: []safetensors.KV{{Key: keySHA256, Value: sha256}, {Key: keyBytes, Value: fmt.Sprint(bytes)}}}
	for t := range m.Tensors() {
		h.Tensors = append(h.Tensors, o.entries(t)...)
	}
	x, err := safetensors.NewWriter(w, &h)
	if err != nil {
		return err
	}
	for t := range m.Tensors() {
		if t.Vector != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := o.tensor(x, m, t); err != nil {
			return err
		}
	}
	return x.Close()
}

// look finds out about some rows of a tensor.
func (o *odd) look(t, part ternary.Tensor) {
	switch {
	case part.Ternary != nil:
		m := part.Ternary
		for r := range m.Rows {
			if twins(m, r) && !zero(m.BR[r*m.Stride:(r+1)*m.Stride]) {
				o.note(o.br, t.Name)
			}
		}
	case part.Int8 != nil:
		m := part.Int8
		for r := range m.Rows {
			for _, q := range m.Q[r*m.Stride+m.Cols : (r+1)*m.Stride] {
				if q != 0 {
					o.note(o.padding, t.Name)
					break
				}
			}
		}
	}
}

func (o *odd) note(set map[string]bool, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	set[name] = true
}

// twins reports whether a row has one magnitude under both names, so that its
// weights do not tell which one they have.
func twins(m *ternary.Matrix, r int) bool {
	return math.Abs(float64(m.SLo[r])) == math.Abs(float64(m.SHi[r]))
}

func zero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// entries are the tensors of the file for one of the model, in the order in
// which tensor writes them.
func (o *odd) entries(t ternary.Tensor) (list []safetensors.Tensor) {
	if t.Vector != nil {
		return nil
	}
	add := func(part string, d safetensors.DType, shape ...int) {
		x := safetensors.Tensor{Name: t.Name + "." + part, DType: d}
		for _, n := range shape {
			x.Shape = append(x.Shape, int64(n))
		}
		list = append(list, x)
	}
	_, colsPad, stride := layout(t)
	if pad, s := usual(t); pad != *colsPad || s != *stride {
		add("layout", safetensors.I64, 2)
	}
	if w := t.Ternary; w != nil {
		for _, part := range []string{"s_lo", "s_hi"} {
			add(part, safetensors.F32, w.Rows)
		}
		for _, part := range []string{"rs_lo", "rs_hi"} {
			add(part, safetensors.I32, w.Rows)
		}
		if w.Bias != nil && w.BiasFlag != 1 {
			add("bias_flag", safetensors.I32, 1)
		}
		if o.br[t.Name] {
			add("br", safetensors.U8, w.Rows, w.Stride)
		}
		return list
	}
	w := t.Int8
	add("scale", safetensors.F32, w.Rows)
	add("wsum", safetensors.I32, w.Rows)
	if o.padding[t.Name] {
		add("padding", safetensors.U8, w.Rows, w.Stride-w.Cols)
	}
	return list
}

func (o *odd) tensor(w io.Writer, m *ternary.Model, t ternary.Tensor) error {
	var head []byte
	_, colsPad, stride := layout(t)
	if pad, s := usual(t); pad != *colsPad || s != *stride {
		head = binary.LittleEndian.AppendUint64(head, uint64(*colsPad))
		head = binary.LittleEndian.AppendUint64(head, uint64(*stride))
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	var columns [4][]byte // scales and words of all rows
	var rest []byte       // of rows, what only odd tensors have
	var p ternary.Part
	for r0, r1 := range t.Chunks() {
		part, err := m.ReadRows(&p, t, r0, r1)
		if err != nil {
			return err
		}
		for r := range r1 - r0 {
			if x := part.Ternary; x != nil {
				put(&columns, math.Float32bits(x.SLo[r]), math.Float32bits(x.SHi[r]), uint32(x.RSLo[r]), uint32(x.RSHi[r]))
				if o.br[t.Name] {
					rest = append(rest, x.BR[r*x.Stride:(r+1)*x.Stride]...)
				}
				continue
			}
			x := part.Int8
			put(&columns, math.Float32bits(x.Scale[r]), uint32(x.WSum[r]))
			if o.padding[t.Name] {
				for _, q := range x.Q[r*x.Stride+x.Cols : (r+1)*x.Stride] {
					rest = append(rest, byte(q))
				}
			}
		}
		m.ReleaseTensor(part)
	}
	if x := t.Ternary; x != nil && x.Bias != nil && x.BiasFlag != 1 {
		rest = append(binary.LittleEndian.AppendUint32(nil, uint32(x.BiasFlag)), rest...)
	}
	for _, b := range append(columns[:], rest) {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func put(columns *[4][]byte, words ...uint32) {
	for i, w := range words {
		columns[i] = binary.LittleEndian.AppendUint32(columns[i], w)
	}
}
