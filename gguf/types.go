package gguf

import (
	"fmt"
	"math/bits"
)

// Type is the type of a tensor's values: an id of llama.cpp's ggml_type, or of a
// fork's addition to it.
type Type uint32

// The types whose blocks this package decodes.
const (
	F32   Type = 0
	F16   Type = 1
	Q4_0  Type = 2
	Q5_0  Type = 6
	Q8_0  Type = 8
	Q6_K  Type = 14
	BF16  Type = 30
	TQ1_0 Type = 34
	TQ2_0 Type = 35
	I2_S  Type = 36 // of the BitNet fork; upstream's 36 was removed
	Q2_0  Type = 42
	FV5   Type = 43 // of the fermion fork
	FV5B  Type = 44 // of the fermion fork

	// Q2_0G128 is a fork's Q2_0, which has the same id: one scale for 128 values,
	// not 64. The space between tensors tells them apart.
	Q2_0G128 Type = sameID | Q2_0
)

// sameID marks a type whose id in a file is another one's.
const sameID Type = 1 << 31

// ID is the number that a file has for the type.
func (t Type) ID() uint32 {
	if t == Q2_0G128 {
		return uint32(Q2_0)
	}
	return uint32(t)
}

// layout is one way to store the values of a type.
type layout struct {
	weights, bytes int    // of a block
	who            string // who uses the id like this, where it is not the table's
}

// typeInfo is a line of the table of types.
type typeInfo struct {
	id   Type
	name string
	layout
	// note, where set, says whose the id is or what became of it.
	note string
	// others are other layouts that files in the wild have under the same id.
	others []layout
}

// types is the table of all ids that are known (FORMAT.md §5), by id. I2_S has
// 32 bytes more at the end of a tensor.
var types = []typeInfo{
	{id: F32, name: "F32", layout: layout{1, 4, ""}},
	{id: F16, name: "F16", layout: layout{1, 2, ""}},
	{id: Q4_0, name: "Q4_0", layout: layout{32, 18, ""}},
	{id: 3, name: "Q4_1", layout: layout{32, 20, ""}},
	{id: 4, name: "Q4_2", layout: layout{16, 10, ""}, note: removed},
	{id: 5, name: "Q4_3", layout: layout{16, 12, ""}, note: removed},
	{id: Q5_0, name: "Q5_0", layout: layout{32, 22, ""}},
	{id: 7, name: "Q5_1", layout: layout{32, 24, ""}},
	{id: Q8_0, name: "Q8_0", layout: layout{32, 34, ""}},
	{id: 9, name: "Q8_1", layout: layout{32, 36, ""}},
	{id: 10, name: "Q2_K", layout: layout{256, 84, ""}},
	{id: 11, name: "Q3_K", layout: layout{256, 110, ""}},
	{id: 12, name: "Q4_K", layout: layout{256, 144, ""}},
	{id: 13, name: "Q5_K", layout: layout{256, 176, ""}},
	{id: Q6_K, name: "Q6_K", layout: layout{256, 210, ""}},
	{id: 15, name: "Q8_K", layout: layout{256, 292, ""}},
	{id: 16, name: "IQ2_XXS", layout: layout{256, 66, ""}},
	{id: 17, name: "IQ2_XS", layout: layout{256, 74, ""}},
	{id: 18, name: "IQ3_XXS", layout: layout{256, 98, ""}},
	{id: 19, name: "IQ1_S", layout: layout{256, 50, ""}},
	{id: 20, name: "IQ4_NL", layout: layout{32, 18, ""}},
	{id: 21, name: "IQ3_S", layout: layout{256, 110, ""}},
	{id: 22, name: "IQ2_S", layout: layout{256, 82, ""}},
	{id: 23, name: "IQ4_XS", layout: layout{256, 136, ""}},
	{id: 24, name: "I8", layout: layout{1, 1, ""}},
	{id: 25, name: "I16", layout: layout{1, 2, ""}},
	{id: 26, name: "I32", layout: layout{1, 4, ""}},
	{id: 27, name: "I64", layout: layout{1, 8, ""}},
	{id: 28, name: "F64", layout: layout{1, 8, ""}},
	{id: 29, name: "IQ1_M", layout: layout{256, 56, ""}},
	{id: BF16, name: "BF16", layout: layout{1, 2, ""}},
	{id: 31, name: "Q4_0_4_4", layout: layout{32, 18, ""}, note: removed},
	{id: 32, name: "Q4_0_4_8", layout: layout{32, 18, ""}, note: removed},
	{id: 33, name: "Q4_0_8_8", layout: layout{32, 18, ""}, note: removed},
	{id: TQ1_0, name: "TQ1_0", layout: layout{256, 54, ""}},
	{id: TQ2_0, name: "TQ2_0", layout: layout{256, 66, ""}},
	{id: I2_S, name: "I2_S", layout: layout{128, 32, ""}, note: "of the BitNet fork",
		others: []layout{{32, 18, "the removed IQ4_NL_4_4"}}},
	{id: 37, name: "IQ4_NL_4_8", layout: layout{32, 18, ""}, note: removed},
	{id: 38, name: "IQ4_NL_8_8", layout: layout{32, 18, ""}, note: removed},
	{id: 39, name: "MXFP4", layout: layout{32, 17, ""}},
	{id: 40, name: "NVFP4", layout: layout{64, 36, ""}},
	{id: 41, name: "Q1_0", layout: layout{128, 18, ""}},
	{id: Q2_0, name: "Q2_0", layout: layout{64, 18, ""}, others: []layout{{128, 34, "a fork's Q2_0"}}},
	{id: FV5, name: "FV5", layout: layout{256, 104, ""}, note: "of the fermion fork",
		others: []layout{{256, 46, "another fork's type"}, {128, 18, "another fork's type"}}},
	{id: FV5B, name: "FV5B", layout: layout{256, 260, ""}, note: "of the fermion fork"},
}

const removed = "removed from llama.cpp"

var q2G128 = typeInfo{id: Q2_0G128, name: "Q2_0 in groups of 128", layout: layout{128, 34, ""}, note: "of a fork"}

func (t Type) info() *typeInfo {
	if t == Q2_0G128 {
		return &q2G128
	}
	if uint64(t) < uint64(len(types)) {
		return &types[t]
	}
	return nil
}

// Known reports whether the id is in the table of types.
func (t Type) Known() bool { return t.info() != nil }

// Name returns the name that the table has for the id, or "".
func (t Type) Name() string {
	if i := t.info(); i != nil {
		return i.name
	}
	return ""
}

// String returns name and id: "FV5 (43)", "type 142".
func (t Type) String() string {
	if i := t.info(); i != nil {
		return fmt.Sprintf("%s (%d)", i.name, t.ID())
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Note says whose the id is if it is not upstream's, or that upstream removed
// it; else it is empty.
func (t Type) Note() string {
	if i := t.info(); i != nil {
		return i.note
	}
	return ""
}

// Block returns how many values a block has and how many bytes, or zeros for an
// id that is not in the table. Rows are whole blocks.
func (t Type) Block() (weights, bytes int) {
	if i := t.info(); i != nil {
		return i.weights, i.bytes
	}
	return 0, 0
}

// tail is what a tensor has after its last block, in bytes: I2_S has its one
// scale there.
func (t Type) tail() uint64 {
	if t == I2_S {
		return i2sTail
	}
	return 0
}

// Size returns the bytes of a tensor of these dimensions, fastest first. It
// refuses ids that are not in the table, rows that are not whole blocks, and
// sizes past 2^63. The error is an [*Error] without file and place.
func (t Type) Size(dims []uint64) (int64, error) {
	i := t.info()
	if i == nil {
		return 0, unknownID(uint32(t))
	}
	blocks, err := i.blocks(dims)
	if err != nil {
		return 0, err
	}
	hi, size := bits.Mul64(blocks, uint64(i.bytes))
	if blocks > 0 {
		var carry uint64
		size, carry = bits.Add64(size, t.tail(), 0)
		hi += carry
	}
	if hi != 0 || size > maxSize {
		return 0, tooLarge(t, dims)
	}
	return int64(size), nil
}

func unknownID(id uint32) *Error {
	return &Error{Kind: ErrUnsupported, Offset: -1, Found: fmt.Sprintf("type id %d is in no table of this program", id),
		Expected: fmt.Sprintf("an id up to %d", len(types)-1),
		Hint:     "a newer version of this program, or the program that made the file, may know it; the download is not at fault"}
}

// maxSize keeps sizes, and sizes with padding, inside an int64.
const maxSize = 1<<63 - 1 - maxAlignment

// blocks counts the blocks of a tensor.
func (i *typeInfo) blocks(dims []uint64) (uint64, error) {
	cols := uint64(1)
	if len(dims) > 0 {
		cols = dims[0]
	}
	if cols%uint64(i.weights) != 0 {
		return 0, &Error{Kind: ErrCorrupt, Offset: -1, Found: fmt.Sprintf("rows of %d values in type %v", cols, i.id),
			Expected: fmt.Sprintf("a multiple of its block, %d", i.weights), Hint: hintDamaged}
	}
	// A dimension of 0 makes the product 0, whatever the others are.
	n, over := cols/uint64(i.weights), false
	for _, d := range dims[min(1, len(dims)):] {
		hi, lo := bits.Mul64(n, d)
		if n, over = lo, over || hi != 0; d == 0 {
			return 0, nil
		}
	}
	if over {
		return 0, tooLarge(i.id, dims)
	}
	return n, nil
}

func tooLarge(t Type, dims []uint64) error {
	return &Error{Kind: ErrCorrupt, Offset: -1, Found: fmt.Sprintf("dimensions %v of type %v come to more than 2^63 bytes", dims, t),
		Expected: "a tensor that fits into the file", Hint: hintDamaged}
}

const hintDamaged = "the file is damaged or was made wrongly: compare its sha256 with the publisher's and fetch it again"
