package ternary

import "fmt"

// CheckShapes reports whether m is put together as its configuration says:
// [Config.CheckDims] holds, every tensor is there with its shape, strides hold
// a row, and slices that are in memory (see [Model.Rows]) have the length that
// shape and stride ask for. It does not
// look at the weights and takes time by the number of tensors. The error is an
// [*Error].
func (m *Model) CheckShapes() error {
	if err := m.CheckDims(); err != nil {
		return err
	}
	if len(m.Layers) != m.Config.Layers {
		return fieldError("", "n_layers", fmt.Sprintf("%d layers are there", len(m.Layers)), fmt.Sprint(m.Config.Layers))
	}
	if m.Tied != (m.Embed == nil) {
		return fieldError("token_embd", "", fmt.Sprintf("a separate input embedding is there: %t", m.Embed != nil), fmt.Sprint(!m.Tied))
	}
	if m.Embed != nil {
		if err := m.Embed.checkShape("token_embd", &m.Config, m.Rows == nil); err != nil {
			return err
		}
	}
	shapes := m.LinearShapes()
	for i := range m.Layers {
		l := &m.Layers[i]
		for _, n := range l.Norms(&m.Config) {
			if err := checkLen(LayerName(i, n.Name), PartNorm, len(*n.Data), int64(n.Len)); err != nil {
				return err
			}
		}
		for j, w := range l.Linears() {
			if err := w.checkShape(LayerName(i, Projections[j]), shapes[j], m.Rows == nil); err != nil {
				return err
			}
		}
	}
	if err := checkLen("output_norm", PartNorm, len(m.FinalNorm), int64(m.Hidden)); err != nil {
		return err
	}
	name := "output"
	if m.Tied {
		name = "token_embd"
	}
	return m.Head.checkShape(name, &m.Config, m.Rows == nil)
}

func (m *Matrix) checkShape(name string, s Shape, inMemory bool) error {
	if m.Rows != s.Rows {
		return fieldError(name, "rows", fmt.Sprintf("rows is %d", m.Rows), fmt.Sprint(s.Rows))
	}
	if m.Cols != s.Cols {
		return fieldError(name, "cols", fmt.Sprintf("cols is %d", m.Cols), fmt.Sprint(s.Cols))
	}
	if m.ColsPad < m.Cols {
		return fieldError(name, "cols_pad", fmt.Sprintf("cols_pad is %d", m.ColsPad), fmt.Sprintf("at least cols, %d", m.Cols))
	}
	if int64(m.Stride)*8 < int64(m.ColsPad) || m.Stride > MaxStride {
		return fieldError(name, "row_stride", fmt.Sprintf("row_stride is %d", m.Stride), fmt.Sprintf("%d to %d bytes for cols_pad %d", (m.ColsPad+7)/8, MaxStride, m.ColsPad))
	}
	plane, rows := int64(m.Rows)*int64(m.Stride), int64(m.Rows)
	if !inMemory {
		plane, rows = 0, 0
	}
	for _, p := range []struct {
		part string
		got  int
		want int64
	}{
		{PartBP, len(m.BP), plane}, {PartBN, len(m.BN), plane}, {PartBR, len(m.BR), plane},
		{PartSLo, len(m.SLo), rows}, {PartSHi, len(m.SHi), rows},
		{PartRSLo, len(m.RSLo), rows}, {PartRSHi, len(m.RSHi), rows},
	} {
		if err := checkLen(name, p.part, p.got, p.want); err != nil {
			return err
		}
	}
	bias := int64(0)
	if m.BiasFlag != 0 {
		bias = int64(m.Rows)
	}
	return checkLen(name, PartBias, len(m.Bias), bias)
}

func (m *Int8Matrix) checkShape(name string, c *Config, inMemory bool) error {
	if m.Rows != c.Vocab {
		return fieldError(name, "rows", fmt.Sprintf("rows is %d", m.Rows), fmt.Sprint(c.Vocab))
	}
	if m.Cols != c.Hidden {
		return fieldError(name, "cols", fmt.Sprintf("cols is %d", m.Cols), fmt.Sprint(c.Hidden))
	}
	if m.ColsPad < m.Cols {
		return fieldError(name, "cols_pad", fmt.Sprintf("cols_pad is %d", m.ColsPad), fmt.Sprintf("at least cols, %d", m.Cols))
	}
	if m.Stride != m.ColsPad || m.Stride > MaxStride {
		return fieldError(name, "row_stride", fmt.Sprintf("row_stride is %d", m.Stride), fmt.Sprintf("cols_pad, %d, up to %d", m.ColsPad, MaxStride))
	}
	table, rows := int64(m.Rows)*int64(m.Stride), int64(m.Rows)
	if !inMemory {
		table, rows = 0, 0
	}
	if err := checkLen(name, PartQ, len(m.Q), table); err != nil {
		return err
	}
	if err := checkLen(name, PartScale, len(m.Scale), rows); err != nil {
		return err
	}
	return checkLen(name, PartWSum, len(m.WSum), rows)
}

// MaxStride is the largest row_stride, in bytes: what the container's field
// holds. With at most 2^24 rows, 3 * rows * stride stays below 2^57.
const MaxStride = 1<<31 - 1

func checkLen(tensor, part string, got int, want int64) error {
	if int64(got) != want {
		return fieldError(tensor, part, fmt.Sprintf("%s holds %d", part, got), fmt.Sprint(want))
	}
	return nil
}
