// Package rows reads and writes npack-rows.safetensors, the file beside a model
// in a format of other programs that holds what only the native container has:
// the scales of rows as they are stored, integrity words, and unusual layouts.
// With it the container comes back byte for byte. FORMAT.md beside this file is
// the description; "§" in comments names a section of it.
//
// What the file says is a hint: whoever reads weights compares them with what
// the model's own tensors hold.
package rows

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"npack/pack"
	"npack/pack/safetensors"
	"npack/ternary"
)

// Name is the file's name. It must not begin with "model": mlx-lm reads all
// files that do.
const Name = "npack-rows.safetensors"

// Keys of the metadata.
const (
	keySHA256 = "npack.container.sha256"
	keyBytes  = "npack.container.bytes"
)

// File is an open file.
type File struct {
	f      *safetensors.File
	sha256 string
	bytes  int64
}

// Open opens the file in dir. If there is none, the error wraps
// [io/fs.ErrNotExist]; errors about the content are [*pack.Error].
func Open(dir string) (*File, error) {
	f, err := safetensors.Open(filepath.Join(dir, Name))
	if err != nil {
		return nil, err
	}
	r := &File{f: f}
	for _, kv := range f.Metadata {
		switch kv.Key {
		case keySHA256:
			r.sha256 = kv.Value
		case keyBytes:
			r.bytes, err = strconv.ParseInt(kv.Value, 10, 64)
		}
	}
	if sum, hexErr := hex.DecodeString(r.sha256); err != nil || hexErr != nil || len(sum) != 32 || r.bytes < 1 {
		f.Close()
		return nil, &pack.Error{Kind: pack.ErrCorrupt, File: f.Name(), Place: "metadata", Offset: -1, Found: fmt.Sprintf("sha256 %q, %d bytes", r.sha256, r.bytes),
			Expected: "those of a container", Hint: hintDamaged}
	}
	return r, nil
}

// Close closes the file.
func (r *File) Close() error { return r.f.Close() }

// Container returns the sha256, in hex, and the length in bytes of the container
// that the model was made of.
func (r *File) Container() (sha256 string, bytes int64) { return r.sha256, r.bytes }

// Layout sets the strides and the bias flag of a tensor of the model, a matrix
// or table, whose shape and bias are known. r may be nil: they are then the
// usual ones.
func (r *File) Layout(t ternary.Tensor) error {
	cols, colsPad, stride := layout(t)
	*colsPad, *stride = usual(t)
	if t.Ternary != nil && t.Ternary.Bias != nil {
		t.Ternary.BiasFlag = 1
	}
	if r == nil {
		return nil
	}
	if x := r.f.Tensor(t.Name + ".layout"); x != nil {
		b, err := r.read(x, safetensors.I64, []int64{2}, 0, 16)
		if err != nil {
			return err
		}
		pad, bytes := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		// A stride asks for memory: it is held to 16 times the usual.
		least, most := uint64(cols), 16*uint64(*stride)+1<<10
		width := bytes
		if t.Ternary != nil {
			width *= 8
		}
		if pad < least || width < pad || bytes > most || t.Int8 != nil && bytes != pad {
			return r.fail(x, fmt.Sprintf("cols_pad %d and row_stride %d", pad, bytes), fmt.Sprintf("those of %d columns, at most %d bytes a row", cols, most))
		}
		*colsPad, *stride = int(pad), int(bytes)
	}
	if x := r.f.Tensor(t.Name + ".bias_flag"); x != nil && t.Ternary != nil && t.Ternary.Bias != nil {
		b, err := r.read(x, safetensors.I32, []int64{1}, 0, 4)
		if err != nil {
			return err
		}
		if t.Ternary.BiasFlag = int32(binary.LittleEndian.Uint32(b)); t.Ternary.BiasFlag == 0 {
			return r.fail(x, "the bias flag is 0", "another number, as there is a bias")
		}
	}
	return nil
}

// Scales fills in the scales and integrity words of p, which holds rows of t
// from r0 on.
func (r *File) Scales(t ternary.Tensor, p *ternary.Part, r0 int) error {
	if t.Int8 != nil {
		if err := r.floats(t.Name+".scale", p.Int8.Scale, r0, t.Int8.Rows); err != nil {
			return err
		}
		return r.ints(t.Name+".wsum", p.Int8.WSum, r0, t.Int8.Rows)
	}
	m, n := &p.Ternary, t.Ternary.Rows
	if err := r.floats(t.Name+".s_lo", m.SLo, r0, n); err != nil {
		return err
	}
	if err := r.floats(t.Name+".s_hi", m.SHi, r0, n); err != nil {
		return err
	}
	if err := r.ints(t.Name+".rs_lo", m.RSLo, r0, n); err != nil {
		return err
	}
	return r.ints(t.Name+".rs_hi", m.RSHi, r0, n)
}

// BR returns the plane br of n rows of a matrix from r0 on, or nil if it is the
// usual one (§3).
func (r *File) BR(t ternary.Tensor, r0, n int) ([]byte, error) {
	return r.optional(t.Name+".br", r0, n, t.Ternary.Rows, t.Ternary.Stride)
}

// Padding returns the values behind the columns of n rows of a table from r0 on,
// or nil if they are 0.
func (r *File) Padding(t ternary.Tensor, r0, n int) ([]byte, error) {
	return r.optional(t.Name+".padding", r0, n, t.Int8.Rows, t.Int8.Stride-t.Int8.Cols)
}

func (r *File) optional(name string, r0, n, rows, width int) ([]byte, error) {
	x := r.f.Tensor(name)
	if x == nil {
		return nil, nil
	}
	return r.read(x, safetensors.U8, []int64{int64(rows), int64(width)}, int64(r0)*int64(width), n*width)
}

func (r *File) floats(name string, v []float32, r0, rows int) error {
	b, err := r.column(name, safetensors.F32, r0, len(v), rows)
	if err == nil {
		safetensors.F32.Float32s(v, b)
	}
	return err
}

func (r *File) ints(name string, v []int32, r0, rows int) error {
	b, err := r.column(name, safetensors.I32, r0, len(v), rows)
	if err == nil {
		for i := range v {
			v[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	return err
}

// column reads n numbers from r0 on of a tensor that has one for each row.
func (r *File) column(name string, d safetensors.DType, r0, n, rows int) ([]byte, error) {
	x := r.f.Tensor(name)
	if x == nil {
		return nil, &pack.Error{Kind: pack.ErrCorrupt, File: r.f.Name(), Place: fmt.Sprintf("tensor %q", name), Offset: -1, Found: "the tensor is not there",
			Expected: fmt.Sprintf("%v of %d rows", d, rows), Hint: hintDamaged}
	}
	return r.read(x, d, []int64{int64(rows)}, 4*int64(r0), 4*n)
}

// read reads n bytes of a tensor that must have this type and shape.
func (r *File) read(x *safetensors.Tensor, d safetensors.DType, shape []int64, off int64, n int) ([]byte, error) {
	if x.DType != d || !slices.Equal(x.Shape, shape) {
		return nil, r.fail(x, fmt.Sprintf("%v of shape %v", x.DType, x.Shape), fmt.Sprintf("%v of shape %v", d, shape))
	}
	b := make([]byte, n)
	_, err := x.ReadAt(b, off)
	return b, err
}

func (r *File) fail(x *safetensors.Tensor, found, expected string) error {
	return &pack.Error{Kind: pack.ErrCorrupt, File: r.f.Name(), Place: fmt.Sprintf("tensor %q", x.Name), Offset: x.FileAt(), Found: found, Expected: expected, Hint: hintDamaged}
}

const hintDamaged = "the file is damaged or belongs to another model: write the model again, or remove the file to go without"

// usual is the layout that publishers' tools give a matrix or table.
func usual(t ternary.Tensor) (colsPad, stride int) {
	up := func(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }
	if t.Ternary != nil {
		pad := up(t.Ternary.Cols, 512)
		return pad, pad / 8
	}
	pad := up(t.Int8.Cols, 64)
	return pad, pad
}

// layout returns what Layout sets.
func layout(t ternary.Tensor) (cols int, colsPad, stride *int) {
	if t.Ternary != nil {
		return t.Ternary.Cols, &t.Ternary.ColsPad, &t.Ternary.Stride
	}
	return t.Int8.Cols, &t.Int8.ColsPad, &t.Int8.Stride
}
