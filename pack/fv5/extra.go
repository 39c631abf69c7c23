package fv5

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"npack/gguf"
	"npack/pack"
	"npack/ternary"
)

// deviations are what a tensor of a container has and blocks do not say. The
// zero value is a tensor as publishers' tools write it.
type deviations struct {
	geometry        bool
	colsPad, stride int
	rsLo, rsHi      differences
	wsum            differences
	biasFlag        int32  // or 0 for the usual: 1 with a bias, 0 without
	padding         []byte // values past cols of a table, a row after the other
}

// extra holds the deviations of tensors by their index in [ternary.Model.Tensors].
type extra map[int]deviations

// difference is a stored integrity word that is not the row's sum.
type difference struct {
	row  int
	less int64 // the word less the sum
}

type differences []difference

// note adds a row if its word differs; rows come in order.
func (d *differences) note(row int, word int32, sum int) {
	if int(word) != sum {
		*d = append(*d, difference{row, int64(word) - int64(sum)})
	}
}

// apply turns the sums of rows from r0 on into the words.
func (d differences) apply(sums []int32, r0 int) {
	i, _ := slices.BinarySearchFunc(d, r0, func(x difference, row int) int { return cmp.Compare(x.row, row) })
	for _, x := range d[i:] {
		if x.row-r0 >= len(sums) {
			return
		}
		sums[x.row-r0] = int32(int64(sums[x.row-r0]) + x.less)
	}
}

// Entries of the record (§3).
const (
	extraVersion = 1

	entryGeometry = 1 // uvarint cols_pad, uvarint row_stride
	entryRSLo     = 2 // differences
	entryRSHi     = 3
	entryWSum     = 4
	entryBiasFlag = 5 // u32
	entryPadding  = 6 // rows · (row_stride - cols) bytes
)

// encode returns the record, or nil if nothing deviates.
func (x extra) encode() []byte {
	var b []byte
	index := make([]int, 0, len(x))
	for i := range x {
		index = append(index, i)
	}
	slices.Sort(index)
	for _, i := range index {
		d := x[i]
		entry := func(kind byte) { b = append(binary.AppendUvarint(b, uint64(i)), kind) }
		list := func(kind byte, l differences) {
			if len(l) == 0 {
				return
			}
			entry(kind)
			b = binary.AppendUvarint(b, uint64(len(l)))
			next := 0
			for _, e := range l {
				b = binary.AppendUvarint(b, uint64(e.row-next))
				b = binary.AppendVarint(b, e.less)
				next = e.row + 1
			}
		}
		if d.geometry {
			entry(entryGeometry)
			b = binary.AppendUvarint(b, uint64(d.colsPad))
			b = binary.AppendUvarint(b, uint64(d.stride))
		}
		list(entryRSLo, d.rsLo)
		list(entryRSHi, d.rsHi)
		list(entryWSum, d.wsum)
		if d.biasFlag != 0 {
			entry(entryBiasFlag)
			b = binary.LittleEndian.AppendUint32(b, uint32(d.biasFlag))
		}
		if d.padding != nil {
			entry(entryPadding)
			b = binary.AppendUvarint(b, uint64(len(d.padding)))
			b = append(b, d.padding...)
		}
	}
	if b == nil {
		return nil
	}
	return append([]byte{extraVersion}, b...)
}

var errShort = errors.New("the record ends too early")

// decodeExtra reads what encode writes. Lists grow as they are read, by entries
// of two bytes or more, so that no count is believed.
func decodeExtra(b []byte) (extra, error) {
	x := extra{}
	if len(b) == 0 {
		return x, nil
	}
	if b[0] != extraVersion {
		return nil, fmt.Errorf("version %d of the record, expected %d", b[0], extraVersion)
	}
	b = b[1:]
	var err error
	number := func(limit uint64) int {
		n, k := binary.Uvarint(b)
		if k <= 0 {
			err = cmp.Or(err, errShort)
			return 0
		}
		if b = b[k:]; n > limit {
			err = cmp.Or(err, fmt.Errorf("a number of the record is %d", n))
			return 0
		}
		return int(n)
	}
	last, lastKind := 0, byte(0)
	for len(b) > 0 && err == nil {
		i := number(math.MaxInt32)
		if err != nil || len(b) == 0 {
			return nil, cmp.Or(err, errShort)
		}
		kind := b[0]
		b = b[1:]
		if i < last || i == last && kind <= lastKind {
			return nil, fmt.Errorf("entry %d of tensor %d is out of order", kind, i)
		}
		last, lastKind = i, kind
		d := x[i]
		switch kind {
		case entryGeometry:
			d.geometry, d.colsPad, d.stride = true, number(ternary.MaxStride), number(ternary.MaxStride)
		case entryRSLo, entryRSHi, entryWSum:
			n, next := number(ternary.MaxVocab), 0
			var l differences
			for range n {
				row := next + number(ternary.MaxVocab)
				less, k := binary.Varint(b)
				if err != nil || k <= 0 {
					return nil, cmp.Or(err, errShort)
				}
				b = b[k:]
				if less < -1<<33 || less > 1<<33 || row > ternary.MaxVocab {
					return nil, fmt.Errorf("the word of row %d is off by %d", row, less)
				}
				l = append(l, difference{row, less})
				next = row + 1
			}
			*[...]*differences{&d.rsLo, &d.rsHi, &d.wsum}[kind-entryRSLo] = l
		case entryBiasFlag:
			if len(b) < 4 {
				return nil, errShort
			}
			d.biasFlag = int32(binary.LittleEndian.Uint32(b))
			b = b[4:]
		case entryPadding:
			n := number(math.MaxInt32)
			if n > len(b) {
				return nil, errShort
			}
			d.padding, b = b[:n:n], b[n:]
		default:
			return nil, fmt.Errorf("entry %d is not known", kind)
		}
		x[i] = d
	}
	return x, err
}

// readExtra reads what makes the container whole again.
func (f *File) readExtra() error {
	if v, ok := f.g.Value(keySHA256); ok {
		text, _ := v.Text()
		if len(text) != 64 {
			return f.fail(pack.ErrCorrupt, "key "+quote(keySHA256), "the value is "+v.Print(), "64 hex digits", hintDamaged)
		}
		f.sha256 = text
		n, _ := f.g.Value(keyBytes)
		if f.bytes, ok = n.Uint(); !ok || f.bytes > math.MaxInt64 {
			return f.fail(pack.ErrCorrupt, "key "+quote(keyBytes), "the value is "+n.Print(), "a u64", hintDamaged)
		}
	}
	v, ok := f.g.Value(keyExtra)
	if !ok {
		return nil
	}
	b, ok := v.Bytes()
	if !ok {
		return f.fail(pack.ErrCorrupt, "key "+quote(keyExtra), "the value is "+v.Print(), "an array of u8", hintDamaged)
	}
	var err error
	if f.extra, err = decodeExtra(b); err != nil {
		return f.fail(pack.ErrCorrupt, "key "+quote(keyExtra), err.Error(), "what npack writes", hintDamaged)
	}
	return nil
}

// matrix applies the deviations of a matrix's record, and refuses those that it
// cannot have.
func (d *deviations) matrix(w *ternary.Matrix) error {
	if d.geometry {
		w.ColsPad, w.Stride = d.colsPad, d.stride
	}
	if d.biasFlag != 0 {
		if w.Bias == nil {
			return errors.New("a bias flag and no bias")
		}
		w.BiasFlag = d.biasFlag
	}
	if d.wsum != nil || d.padding != nil {
		return errors.New("an entry of a table for a matrix")
	}
	return errors.Join(d.rsLo.inside(w.Rows), d.rsHi.inside(w.Rows), fits(w.Rows, w.Cols, 3*w.Stride, gguf.FV5Bytes))
}

func (d *deviations) table(q *ternary.Int8Matrix) error {
	if d.geometry {
		q.ColsPad, q.Stride = d.colsPad, d.stride
	}
	if d.rsLo != nil || d.rsHi != nil || d.biasFlag != 0 {
		return errors.New("an entry of a matrix for a table")
	}
	if d.padding != nil && int64(len(d.padding)) != int64(q.Rows)*int64(q.Stride-q.Cols) {
		return fmt.Errorf("%d values of padding in %d rows of %d", len(d.padding), q.Rows, q.Stride-q.Cols)
	}
	return errors.Join(d.wsum.inside(q.Rows), fits(q.Rows, q.Cols, q.Stride, gguf.FV5BBytes))
}

// fits bounds what a stride may ask for, in memory and on disk, to 16 times the
// bytes of a tensor's blocks.
func fits(rows, cols, stride, bytesPer256 int) error {
	have, want := int64(rows)*int64(cols/256)*int64(bytesPer256), int64(rows)*int64(stride)
	if want > 16*have+1<<20 {
		return fmt.Errorf("%d rows of %d bytes for %d columns", rows, stride, cols)
	}
	return nil
}

func (d differences) inside(rows int) error {
	if len(d) > 0 && d[len(d)-1].row >= rows {
		return fmt.Errorf("the word of row %d of %d", d[len(d)-1].row, rows)
	}
	return nil
}
