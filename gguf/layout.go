package gguf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// layOut finds each tensor's data behind the metadata, which ends at end, and
// checks (§4) that it is in the file, that tensors do not overlap, and that types
// whose ids have several meanings have blocks of the size that this package
// means. The tensor that starts first in the file is blamed.
func (f *File) layOut(end int64) error {
	size := int64(len(f.data))
	start := alignUp(end, f.Alignment) // end and the alignment are far from wrapping
	if start > size && len(f.Tensors) > 0 {
		// Tensors of no bytes may come without the padding before them.
		start = max(end, size)
	}
	f.dataStart = start
	order := make([]*Tensor, len(f.Tensors))
	for i := range f.Tensors {
		order[i] = &f.Tensors[i]
	}
	// Empty tensors come before the one that starts in the same place.
	slices.SortStableFunc(order, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(min(a.Size, 1), min(b.Size, 1)))
	})
	data := max(0, size-start) // bytes in the data section
	for i, t := range order {
		limit := data
		var next *Tensor
		if i+1 < len(order) {
			next = order[i+1]
			limit = min(limit, next.Offset)
		}
		if t.Size == 0 {
			// Nothing is read, wherever it is.
			t.Data, t.FileAt = f.data[size:], min(start+min(t.Offset, data), size)
			continue
		}
		there := max(0, limit-t.Offset)
		if err := f.checkSpace(t, next, there, limit == data); err != nil {
			return err
		}
		t.FileAt = start + t.Offset
		t.Data = f.data[t.FileAt : t.FileAt+t.Size : t.FileAt+t.Size]
	}
	last := int64(0)
	for i := range f.Tensors {
		last = max(last, f.Tensors[i].Offset+f.Tensors[i].Size)
	}
	f.Unpadded = last > 0 && data == last && last%int64(f.Alignment) != 0
	return nil
}

// checkSpace compares the bytes from t's start to the next tensor, or to the
// end of the file if atEnd, with the size that t has by its type.
func (f *File) checkSpace(t, next *Tensor, there int64, atEnd bool) error {
	e := &Error{Kind: ErrCorrupt, File: f.name, Place: fmt.Sprintf("tensor %q", t.Name), Offset: f.dataStart + t.Offset, Hint: hintDamaged}
	info := t.Type.info()
	fits := there >= t.Size
	// The gap tells which of several layouts an id has. There is no telling at
	// the end of a file that may be cut short, unless another layout fits.
	if len(info.others) > 0 || t.Type == FV5B {
		padded := alignUp(t.Size, f.Alignment)
		exact := there == padded || atEnd && there == t.Size
		other := f.otherLayout(t, there, atEnd)
		if !exact && other != "" && t.Type == Q2_0 { // the one other layout that is read
			t.Type = Q2_0G128
			t.Size, _ = t.Type.Size(t.Dims) // otherLayout has computed it
			return nil
		}
		if !exact && (fits || other != "" || !atEnd) {
			e.Kind = ErrUnsupported
			e.Found = fmt.Sprintf("blocks of type %v take %s", t.Type, f.measured(t, there, other))
			e.Expected = fmt.Sprintf("%d bytes for %d values", info.bytes, info.weights)
			e.Hint = fmt.Sprintf("id %d has more than one meaning: the file was made for another program, which is the one to run it", uint32(t.Type))
			return e
		}
	}
	switch {
	case fits:
		return nil
	case atEnd:
		e.Kind, e.Found = ErrTruncated, fmt.Sprintf("the tensor needs %d bytes, %d are there", t.Size, there)
		e.Expected = fmt.Sprintf("a file of at least %d bytes (it has %d); is the download incomplete?", uint64(f.dataStart)+uint64(t.Offset)+uint64(t.Size), len(f.data))
		e.Hint = hintIncomplete
	default:
		e.Found = fmt.Sprintf("the tensor needs %d bytes of type %v, tensor %q starts %d bytes behind its start", t.Size, t.Type, next.Name, there)
		e.Expected = "tensors that do not overlap"
	}
	return e
}

// otherLayout names the other layout of t's id that fills the space, if any.
func (f *File) otherLayout(t *Tensor, there int64, atEnd bool) string {
	for _, l := range t.Type.info().others {
		o := typeInfo{id: t.Type, layout: l}
		n, err := o.blocks(t.Dims)
		if err != nil || n > uint64(there) {
			continue
		}
		size := int64(n) * int64(l.bytes) // n < 2^63/bytes is not promised
		if size/int64(l.bytes) != int64(n) {
			continue
		}
		if alignUp(size, f.Alignment) == there || atEnd && size == there {
			return fmt.Sprintf("%d bytes for %d values (%s)", l.bytes, l.weights, l.who)
		}
	}
	return ""
}

// measured words the bytes of a block of t, by the space that it has.
func (f *File) measured(t *Tensor, there int64, other string) string {
	if other != "" {
		return other
	}
	info := t.Type.info()
	blocks, _ := info.blocks(t.Dims) // worked when its size was computed
	n := max(1, int64(blocks))
	// The space is the data with up to a whole alignment of padding.
	lo, hi := max(0, there-int64(f.Alignment)+n)/n, there/n
	var b strings.Builder
	fmt.Fprintf(&b, "%d", hi)
	if lo < hi {
		b.Reset()
		fmt.Fprintf(&b, "%d to %d", lo, hi)
	}
	fmt.Fprintf(&b, " bytes for %d values (%d bytes for %d blocks)", info.weights, there, blocks)
	return b.String()
}

// alignUp rounds n, which is at most maxSize, up to a multiple of a.
func alignUp(n int64, a int) int64 { return (n + int64(a) - 1) &^ (int64(a) - 1) }
