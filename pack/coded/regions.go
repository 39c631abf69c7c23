package coded

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"npack/pack"
	"npack/ternary"
)

// Region is a part of a container that is coded on its own (§1): the three
// planes of a ternary matrix or the values of a table. What lies between
// regions is gaps.
type Region struct {
	Tensor string // as [ternary.Tensor.Name]
	Layer  int    // -1 outside the layers
	Method Method // T5Q or Byte

	Rows, Cols int64
	Stride     int64 // bytes of a row, in each plane
	Offset     int64 // in the container
	Size       int64 // bytes: 3 or 1 times Rows*Stride
}

// walker finds the regions of a container. It reads what tells where they are,
// some 20 bytes a matrix, and nothing else.
type walker struct {
	name    string
	src     io.ReaderAt
	size    int64
	packed  bool // the source is in packed form (§8)
	off     int64
	regions []Region
}

// walkContainer returns the regions of the container of size bytes in src. It
// asks for as much structure as the coder needs, less than [native.Open] does:
// it is what the publisher's program takes.
func walkContainer(name string, src io.ReaderAt, size int64) ([]Region, error) {
	w := walker{name: name, src: src, size: size}
	return w.regions, w.walk()
}

func (w *walker) walk() error {
	var head [15]int64
	if err := w.words(head[:], "header"); err != nil {
		return err
	}
	if uint32(head[0]) != binary.LittleEndian.Uint32([]byte("TRTC")) {
		e := w.fail(pack.ErrNotModel, "header", 0, "this is no native container", "one, which starts with \"TRTC\"")
		e.Hint = "\"npack inspect\" tells what a file is"
		return e
	}
	arch, layers, hidden, headDim, intermediate, eok := head[2], head[3], head[4], head[7], head[9], head[14]
	for _, f := range []struct {
		name      string
		at        int64
		min, most int64
	}{
		{"version", 1, 4, 4}, {"arch", 2, 1, 3}, {"n_layers", 3, 1, math.MaxInt32 / 7}, {"hidden", 4, 1, math.MaxInt32},
		{"head_dim", 7, 1, math.MaxInt32}, {"intermediate", 9, 1, math.MaxInt32}, {"eok", 14, 1, 2},
	} {
		if v := head[f.at]; (v < f.min || v > f.most) && (f.name != "head_dim" || arch == int64(ternary.Qwen3)) {
			kind := pack.ErrCorrupt
			if f.name == "version" {
				kind = pack.ErrUnsupported
			}
			return w.fail(kind, "header", 4*f.at, fmt.Sprintf("%s is %d", f.name, v), fmt.Sprintf("%d to %d", f.min, f.most))
		}
	}
	if eok == 2 {
		if err := w.table("token_embd"); err != nil {
			return err
		}
	}
	norms := 2 * hidden
	switch ternary.Arch(arch) {
	case ternary.BitNet:
		norms += hidden + intermediate
	case ternary.Qwen3:
		norms += 2 * headDim
	}
	for i := range int(layers) {
		if err := w.skip(4*norms, ternary.LayerName(i, "norms")); err != nil {
			return err
		}
		for _, p := range ternary.Projections {
			if err := w.matrix(ternary.LayerName(i, p), i); err != nil {
				return err
			}
		}
	}
	if err := w.skip(4*hidden, "output_norm"); err != nil {
		return err
	}
	last := "output"
	if eok == 1 {
		last = "token_embd"
	}
	if err := w.table(last); err != nil {
		return err
	}
	if w.off != w.size {
		return w.fail(pack.ErrCorrupt, "end", w.off, fmt.Sprintf("%d bytes follow the last record", w.size-w.off), fmt.Sprintf("the file to end at %d", w.off))
	}
	return nil
}

// words reads i32 values.
func (w *walker) words(to []int64, place string) error {
	var b [60]byte
	n := 4 * len(to)
	if err := w.need(int64(n), place); err != nil {
		return err
	}
	if k, err := w.src.ReadAt(b[:n], w.off); k < n {
		return fmt.Errorf("%q: byte %d: %w", w.name, w.off, err)
	}
	for i := range to {
		to[i] = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	w.off += int64(n)
	return nil
}

// need refuses n bytes at w.off that are not there; n is below 2^63 / 2.
func (w *walker) need(n int64, place string) error {
	if left := w.size - w.off; n > left {
		e := w.fail(pack.ErrTruncated, place, w.off, fmt.Sprintf("truncated: %d bytes are needed, %d are there", n, left), "")
		e.Hint = hintIncomplete
		return e
	}
	return nil
}

func (w *walker) skip(n int64, place string) error {
	if err := w.need(n, place); err != nil {
		return err
	}
	w.off += n
	return nil
}

// geometry reads the four numbers that start a matrix.
func (w *walker) geometry(r *Region, unit int64) error {
	var g [4]int64
	at := w.off
	if err := w.words(g[:], r.Tensor); err != nil {
		return err
	}
	if g[0] < 1 {
		return w.fail(pack.ErrCorrupt, r.Tensor, at, fmt.Sprintf("rows is %d", g[0]), "at least 1")
	}
	if g[3] < 1 || g[3]%unit != 0 {
		return w.fail(pack.ErrUnsupported, r.Tensor, at+12, fmt.Sprintf("row_stride is %d bytes", g[3]), fmt.Sprintf("a multiple of %d, which the coder asks for", unit))
	}
	r.Rows, r.Cols, r.Stride, r.Offset = g[0], g[1], g[3], w.off
	return nil
}

func (w *walker) matrix(name string, layer int) error {
	r := Region{Tensor: name, Layer: layer, Method: T5Q}
	if err := w.geometry(&r, 64); err != nil {
		return err
	}
	plane := r.Rows * r.Stride // below 2^62
	stored := plane
	if w.packed {
		if plane > w.size { // before it is multiplied by 8
			return w.need(plane, name)
		}
		stored = symbolsOf(plane)
	} else {
		if plane > w.size/3 {
			return w.need(plane, name)
		}
		stored *= 3
	}
	r.Size = 3 * plane
	if err := w.skip(stored, name); err != nil {
		return err
	}
	if err := w.skip(16*r.Rows, name); err != nil {
		return err
	}
	var bias [1]int64
	if err := w.words(bias[:], name); err != nil {
		return err
	}
	if bias[0] != 0 {
		if err := w.skip(4*r.Rows, name); err != nil {
			return err
		}
	}
	w.regions = append(w.regions, r)
	return nil
}

func (w *walker) table(name string) error {
	r := Region{Tensor: name, Layer: -1, Method: Byte}
	if err := w.geometry(&r, 1); err != nil {
		return err
	}
	r.Size = r.Rows * r.Stride
	if err := w.skip(r.Size, name); err != nil {
		return err
	}
	w.regions = append(w.regions, r)
	return w.skip(8*r.Rows, name)
}

func (w *walker) fail(kind error, place string, off int64, found, expected string) *pack.Error {
	if place != "header" && place != "end" {
		place = fmt.Sprintf("tensor %q", place)
	}
	return &pack.Error{Kind: kind, File: w.name, Place: place, Offset: off, Found: found, Expected: expected, Hint: hintDamaged}
}
