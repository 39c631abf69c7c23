package gguf

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// Kind is the type of a metadata value, with the format's numbers.
type Kind uint32

const (
	KindUint8 Kind = iota
	KindInt8
	KindUint16
	KindInt16
	KindUint32
	KindInt32
	KindFloat32
	KindBool
	KindString
	KindArray
	KindUint64
	KindInt64
	KindFloat64
)

// kinds has names, and bytes of a value or 0 where they vary.
var kinds = [...]struct {
	name string
	size int
}{
	{"u8", 1}, {"i8", 1}, {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4}, {"bool", 1},
	{"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
}

// String returns the name of the kind: "u32".
func (k Kind) String() string {
	if k < Kind(len(kinds)) {
		return kinds[k].name
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// KV is one entry of the metadata.
type KV struct {
	Key   string
	Value Value
}

// Value is a metadata value: a number, a string or an array of one of them. It
// holds the file's bytes as they are, so that reading a file costs the same
// whatever its vocabulary, and writing gives the same bytes again. Values of an
// open file are views of it and valid until it is closed. The zero Value, which
// lookups return for keys that are not there, is of no kind that its methods
// give.
type Value struct {
	Kind Kind
	Elem Kind // of an array
	Len  int  // of an array
	// raw is a number's bytes, a string's contents or an array's elements as
	// the file has them.
	raw []byte
}

// String, Uint32 and so on make values to write.
func String(s string) Value { return Value{Kind: KindString, raw: []byte(s)} }
func Uint16(n uint16) Value {
	return Value{Kind: KindUint16, raw: binary.LittleEndian.AppendUint16(nil, n)}
}
func Uint32(n uint32) Value {
	return Value{Kind: KindUint32, raw: binary.LittleEndian.AppendUint32(nil, n)}
}
func Int32(n int32) Value {
	return Value{Kind: KindInt32, raw: binary.LittleEndian.AppendUint32(nil, uint32(n))}
}
func Uint64(n uint64) Value {
	return Value{Kind: KindUint64, raw: binary.LittleEndian.AppendUint64(nil, n)}
}
func Float32(f float32) Value {
	return Value{Kind: KindFloat32, raw: binary.LittleEndian.AppendUint32(nil, math.Float32bits(f))}
}

// Bool returns a value to write.
func Bool(b bool) Value {
	v := Value{Kind: KindBool, raw: []byte{0}}
	if b {
		v.raw[0] = 1
	}
	return v
}

// Strings returns an array to write.
func Strings(s []string) Value {
	n := 0
	for _, e := range s {
		n += 8 + len(e)
	}
	raw := make([]byte, 0, n)
	for _, e := range s {
		raw = append(binary.LittleEndian.AppendUint64(raw, uint64(len(e))), e...)
	}
	return Value{Kind: KindArray, Elem: KindString, Len: len(s), raw: raw}
}

// Int32s returns an array to write.
func Int32s(v []int32) Value {
	raw := make([]byte, 0, 4*len(v))
	for _, n := range v {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(n))
	}
	return Value{Kind: KindArray, Elem: KindInt32, Len: len(v), raw: raw}
}

// Bytes returns an array to write; b is kept.
func Bytes(b []byte) Value { return Value{Kind: KindArray, Elem: KindUint8, Len: len(b), raw: b} }

// Text returns a string's contents, copied. ok is false for other kinds.
func (v Value) Text() (s string, ok bool) { return string(v.raw), v.Kind == KindString }

// Uint returns an integer of any kind that is not negative.
func (v Value) Uint() (n uint64, ok bool) {
	if i, ok := v.Int(); ok {
		return uint64(i), i >= 0
	}
	if v.Kind == KindUint64 && v.raw != nil {
		return binary.LittleEndian.Uint64(v.raw), true
	}
	return 0, false
}

// Int returns an integer of any kind that fits.
func (v Value) Int() (n int64, ok bool) {
	if v.raw == nil {
		return 0, false
	}
	return integer(v.Kind, v.raw)
}

// integer decodes a number of kind k.
func integer(k Kind, b []byte) (n int64, ok bool) {
	switch k {
	case KindUint8:
		return int64(b[0]), true
	case KindInt8:
		return int64(int8(b[0])), true
	case KindUint16:
		return int64(binary.LittleEndian.Uint16(b)), true
	case KindInt16:
		return int64(int16(binary.LittleEndian.Uint16(b))), true
	case KindUint32:
		return int64(binary.LittleEndian.Uint32(b)), true
	case KindInt32:
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	case KindInt64:
		return int64(binary.LittleEndian.Uint64(b)), true
	case KindUint64:
		n = int64(binary.LittleEndian.Uint64(b))
		return n, n >= 0
	}
	return 0, false
}

// Float returns a float32, or a float64 as a float64.
func (v Value) Float() (f float64, ok bool) {
	switch v.Kind {
	case KindFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.raw))), true
	case KindFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw)), true
	}
	return 0, false
}

// Bool returns a bool.
func (v Value) Bool() (b, ok bool) { return v.Kind == KindBool && v.raw[0] != 0, v.Kind == KindBool }

// Bytes returns an array of u8, which is not copied.
func (v Value) Bytes() (b []byte, ok bool) {
	if v.Kind != KindArray || v.Elem != KindUint8 {
		return nil, false
	}
	return v.raw, true
}

// Ints yields an array of integers of any kind; elements that do not fit an
// int64 wrap. It yields nothing for other arrays.
func (v Value) Ints() iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		if v.Kind != KindArray || v.Elem > KindFloat64 {
			return
		}
		size := kinds[v.Elem].size
		for i := range v.Len {
			n, ok := integer(v.Elem, v.raw[i*size:])
			if !ok && v.Elem != KindUint64 || !yield(i, n) {
				return
			}
		}
	}
}

// Strings returns an array of strings. They share one copy of the file's bytes:
// two allocations, however many there are.
func (v Value) Strings() (s []string, ok bool) {
	if v.Kind != KindArray || v.Elem != KindString {
		return nil, false
	}
	all := string(v.raw)
	s = make([]string, v.Len)
	at := 0
	for i := range s {
		// The lengths were checked when the file was read.
		n := int(binary.LittleEndian.Uint64(v.raw[at:]))
		s[i] = all[at+8 : at+8+n]
		at += 8 + n
	}
	return s, true
}

// encodedLen is how many bytes the value takes in a file, its kind included.
func (v *Value) encodedLen() int64 {
	switch v.Kind {
	case KindString:
		return 4 + 8 + int64(len(v.raw))
	case KindArray:
		return 4 + 4 + 8 + int64(len(v.raw))
	}
	return 4 + int64(len(v.raw))
}

// append adds the value as it stands in a file.
func (v *Value) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(v.Kind))
	switch v.Kind {
	case KindString:
		b = binary.LittleEndian.AppendUint64(b, uint64(len(v.raw)))
	case KindArray:
		b = binary.LittleEndian.AppendUint32(b, uint32(v.Elem))
		b = binary.LittleEndian.AppendUint64(b, uint64(v.Len))
	}
	return append(b, v.raw...)
}

// Print returns the value for people: arrays by their length, long strings cut.
func (v Value) Print() string {
	switch v.Kind {
	case KindUint8:
		if v.raw == nil {
			return "not there"
		}
	case KindString:
		if len(v.raw) > 80 {
			return fmt.Sprintf("%.80q… (%d bytes)", v.raw, len(v.raw))
		}
		return fmt.Sprintf("%q", v.raw)
	case KindArray:
		return fmt.Sprintf("%d × %v", v.Len, v.Elem)
	case KindBool:
		return fmt.Sprint(v.raw[0] != 0)
	}
	if n, ok := v.Uint(); ok {
		return fmt.Sprint(n)
	}
	if n, ok := v.Int(); ok {
		return fmt.Sprint(n)
	}
	f, _ := v.Float()
	if v.Kind == KindFloat32 {
		return fmt.Sprint(float32(f))
	}
	return fmt.Sprint(f)
}
