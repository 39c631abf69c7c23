package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"npack/gguf"
)

// DType is the type of a tensor's values. The zero DType is none.
type DType uint8

// The types of the format.
const (
	BOOL DType = iota + 1
	F4
	F6E2M3
	F6E3M2
	U8
	I8
	F8E5M2
	F8E4M3
	F8E8M0
	F8E5M2FNUZ
	F8E4M3FNUZ
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	C64
	F64
	I64
	U64
)

// dtypes are the names in headers and the bits of a value.
var dtypes = [...]struct {
	name string
	bits int
}{
	BOOL: {"BOOL", 8}, F4: {"F4", 4}, F6E2M3: {"F6_E2M3", 6}, F6E3M2: {"F6_E3M2", 6}, U8: {"U8", 8}, I8: {"I8", 8},
	F8E5M2: {"F8_E5M2", 8}, F8E4M3: {"F8_E4M3", 8}, F8E8M0: {"F8_E8M0", 8},
	F8E5M2FNUZ: {"F8_E5M2FNUZ", 8}, F8E4M3FNUZ: {"F8_E4M3FNUZ", 8},
	I16: {"I16", 16}, U16: {"U16", 16}, F16: {"F16", 16}, BF16: {"BF16", 16}, I32: {"I32", 32}, U32: {"U32", 32}, F32: {"F32", 32},
	C64: {"C64", 64}, F64: {"F64", 64}, I64: {"I64", 64}, U64: {"U64", 64},
}

// String returns the name that headers have.
func (d DType) String() string {
	if d == 0 || int(d) >= len(dtypes) {
		return fmt.Sprintf("dtype(%d)", d)
	}
	return dtypes[d].name
}

// Bits is the width of a value in bits.
func (d DType) Bits() int { return dtypes[d].bits }

func dtypeNamed(name string) (DType, bool) {
	for d := range dtypes {
		if d > 0 && dtypes[d].name == name {
			return DType(d), true
		}
	}
	return 0, false
}

func (d DType) isFloat() bool { return d == F32 || d == BF16 || d == F16 }

// Float32s decodes len(dst) values of type F32, BF16 or F16 from src, exactly.
// It panics for another type.
func (d DType) Float32s(dst []float32, src []byte) {
	switch d {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	case F16:
		for i := range dst {
			dst[i] = gguf.Float16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		panic("safetensors: " + d.String() + " has no exact float32 values")
	}
}

// size returns the bytes of a tensor of this type and shape; false if they are
// more than an int64 holds or not
// whole.
func (d DType) size(shape []int64) (int64, bool) {
	if d == 0 || int(d) >= len(dtypes) {
		return 0, false
	}
	if slices.Contains(shape, 0) {
		return 0, true
	}
	n := int64(1)
	for _, s := range shape {
		if s < 0 || n > math.MaxInt64/s {
			return 0, false
		}
		n *= s
	}
	bits := int64(d.Bits())
	if n > math.MaxInt64/bits || n*bits%8 != 0 {
		return 0, false
	}
	return n * bits / 8, true
}
