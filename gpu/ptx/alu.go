package ptx

import (
	"fmt"
	"math"
	"math/bits"

	"npack/runtime/reference"
)

// cut returns v as a value of the PTX type: cut to its width, signed types
// extended to 64 bits.
func cut(ty string) func(v uint64) uint64 {
	switch ty {
	case "u32", "b32", "f32":
		return func(v uint64) uint64 { return uint64(uint32(v)) }
	case "s32":
		return func(v uint64) uint64 { return uint64(int64(int32(v))) }
	case "u64", "b64", "s64", "pred":
		return func(v uint64) uint64 { return v }
	case "u16", "b16", "f16":
		return func(v uint64) uint64 { return uint64(uint16(v)) }
	case "s16":
		return func(v uint64) uint64 { return uint64(int64(int16(v))) }
	case "u8", "b8":
		return func(v uint64) uint64 { return uint64(uint8(v)) }
	case "s8":
		return func(v uint64) uint64 { return uint64(int64(int8(v))) }
	}
	return nil
}

// width is the size of a PTX type in bits.
func width(ty string) uint64 {
	switch ty[1:] {
	case "8":
		return 8
	case "16":
		return 16
	case "32":
		return 32
	}
	return 64
}

// alu returns the function of an instruction that works on a lane's registers, and
// the number of its operands.
func (k *kernel) alu(op []string) (f func(a, b, c uint64) uint64, n int, err error) {
	ty := op[len(op)-1]
	if ty == "f32" || ty == "f16" {
		if f, n = k.float(op); f == nil {
			err = fmt.Errorf("unknown, or f32 arithmetic that is not rounded to nearest")
		}
		return f, n, err
	}
	if op[0] == "cvt" {
		if f = k.convert(op); f == nil {
			err = fmt.Errorf("unknown conversion")
		}
		return f, 1, err
	}
	if f, n = integer(op, ty); f == nil {
		err = fmt.Errorf("unknown instruction")
	}
	return f, n, err
}

// integer is alu for types without a fraction.
func integer(op []string, ty string) (func(a, b, c uint64) uint64, int) {
	as := cut(ty)
	if as == nil {
		return nil, 0
	}
	low := cut("b" + fmt.Sprint(width(ty))) // of results: zeros above
	if ty == "pred" {
		low = as
	}
	if ty == "u32" || ty == "s32" || ty == "b32" { // the most frequent
		switch op[0] {
		case "add":
			return func(a, b, _ uint64) uint64 { return uint64(uint32(a) + uint32(b)) }, 2
		case "and":
			return func(a, b, _ uint64) uint64 { return uint64(uint32(a) & uint32(b)) }, 2
		case "or":
			return func(a, b, _ uint64) uint64 { return uint64(uint32(a) | uint32(b)) }, 2
		case "mov":
			return func(a, _, _ uint64) uint64 { return uint64(uint32(a)) }, 1
		}
	}
	signed := ty[0] == 's'
	switch op[0] {
	case "mov":
		return func(a, _, _ uint64) uint64 { return low(a) }, 1
	case "cvta":
		return func(a, _, _ uint64) uint64 { return a }, 1
	case "add":
		return func(a, b, _ uint64) uint64 { return low(a + b) }, 2
	case "sub":
		return func(a, b, _ uint64) uint64 { return low(a - b) }, 2
	case "neg":
		return func(a, _, _ uint64) uint64 { return low(-a) }, 1
	case "and":
		return func(a, b, _ uint64) uint64 { return low(a & b) }, 2
	case "or":
		return func(a, b, _ uint64) uint64 { return low(a | b) }, 2
	case "xor":
		return func(a, b, _ uint64) uint64 { return low(a ^ b) }, 2
	case "not":
		if ty == "pred" {
			return func(a, _, _ uint64) uint64 { return a ^ 1 }, 1
		}
		return func(a, _, _ uint64) uint64 { return low(^a) }, 1
	case "mul", "mad":
		return product(op[0] == "mad", op[1], as, low)
	case "div", "rem":
		if !signed {
			if op[0] == "rem" {
				return func(a, b, _ uint64) uint64 { return low(as(a) % max(1, as(b))) }, 2
			}
			return func(a, b, _ uint64) uint64 { return low(as(a) / max(1, as(b))) }, 2
		}
	case "min", "max":
		less := func(a, b uint64) bool { return as(a) < as(b) }
		if signed {
			less = func(a, b uint64) bool { return int64(as(a)) < int64(as(b)) }
		}
		if op[0] == "max" {
			return func(a, b, _ uint64) uint64 {
				if less(a, b) {
					return low(b)
				}
				return low(a)
			}, 2
		}
		return func(a, b, _ uint64) uint64 {
			if less(b, a) {
				return low(b)
			}
			return low(a)
		}, 2
	case "shl":
		w := width(ty)
		return func(a, n, _ uint64) uint64 { return low(a << min(uint64(uint32(n)), w)) }, 2
	case "shr":
		w := width(ty)
		if signed {
			return func(a, n, _ uint64) uint64 { return low(uint64(int64(as(a)) >> min(uint64(uint32(n)), w))) }, 2
		}
		return func(a, n, _ uint64) uint64 { return as(a) >> min(uint64(uint32(n)), w) }, 2
	case "shf":
		if len(op) == 4 && op[1] == "r" && op[2] == "wrap" {
			return func(a, b, n uint64) uint64 { return uint64(uint32((b<<32 | a) >> (n & 31))) }, 3
		}
	case "bfe":
		if width(ty) == 32 {
			return func(a, at, n uint64) uint64 {
				at, n = at&255, n&255
				if signed {
					v := int64(as(a)) >> min(at, 32)
					return low(uint64(v << (64 - min(n, 32)) >> (64 - min(n, 32))))
				}
				return as(a) >> at & (1<<min(n, 32) - 1)
			}, 3
		}
	case "prmt":
		if len(op) == 2 {
			return permute, 3
		}
	case "dp4a":
		if len(op) == 3 && op[1] == "s32" && signed {
			return func(a, b, c uint64) uint64 { return uint64(dp4a(uint32(a), uint32(b), uint32(c))) }, 3
		}
	case "popc":
		return func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(as(a))) }, 1
	case "selp":
		return func(a, b, p uint64) uint64 {
			if p != 0 {
				return low(a)
			}
			return low(b)
		}, 3
	case "setp":
		if c := compare(op[1], signed); c != nil && len(op) == 3 {
			return func(a, b, _ uint64) uint64 { return truth(c(as(a), as(b))) }, 2
		}
	}
	return nil, 0
}

// product is mul or mad, keeping the low half or all of the bits.
func product(add bool, part string, as, low func(uint64) uint64) (func(a, b, c uint64) uint64, int) {
	switch {
	case part == "lo" && add:
		return func(a, b, c uint64) uint64 { return low(a*b + c) }, 3
	case part == "lo":
		return func(a, b, _ uint64) uint64 { return low(a * b) }, 2
	case part == "wide" && add:
		return func(a, b, c uint64) uint64 { return as(a)*as(b) + c }, 3
	case part == "wide":
		if low(1<<16) == 0 { // of 16 bits: 32 bits
			return func(a, b, _ uint64) uint64 { return uint64(uint32(as(a) * as(b))) }, 2
		}
		return func(a, b, _ uint64) uint64 { return as(a) * as(b) }, 2
	case part == "hi" && low(1<<32) == 0:
		return func(a, b, _ uint64) uint64 { return low(as(a) * as(b) >> 32) }, 2
	}
	return nil, 0
}

// permute picks four bytes of a and b by the nibbles of s; a nibble's top bit asks
// for the byte's sign instead.
func permute(a, b, s uint64) uint64 {
	v := b<<32 | a
	var r uint64
	for i := range 4 {
		n := s >> (4 * i)
		c := v >> (8 * (n & 7)) & 255
		if n&8 != 0 {
			c = c >> 7 * 255
		}
		r |= c << (8 * i)
	}
	return r
}

// dp4a returns c plus the products of the four signed bytes of a and b.
func dp4a(a, b, c uint32) uint32 {
	s := int32(c)
	s += int32(int8(a)) * int32(int8(b))
	s += int32(int8(a>>8)) * int32(int8(b>>8))
	s += int32(int8(a>>16)) * int32(int8(b>>16))
	s += int32(int8(a>>24)) * int32(int8(b>>24))
	return uint32(s)
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// compare returns a comparison of integers.
func compare(op string, signed bool) func(a, b uint64) bool {
	switch {
	case op == "eq":
		return func(a, b uint64) bool { return a == b }
	case op == "ne":
		return func(a, b uint64) bool { return a != b }
	case op == "lt" && signed:
		return func(a, b uint64) bool { return int64(a) < int64(b) }
	case op == "le" && signed:
		return func(a, b uint64) bool { return int64(a) <= int64(b) }
	case op == "gt" && signed:
		return func(a, b uint64) bool { return int64(a) > int64(b) }
	case op == "ge" && signed:
		return func(a, b uint64) bool { return int64(a) >= int64(b) }
	case op == "lt":
		return func(a, b uint64) bool { return a < b }
	case op == "le":
		return func(a, b uint64) bool { return a <= b }
	case op == "gt":
		return func(a, b uint64) bool { return a > b }
	case op == "ge":
		return func(a, b uint64) bool { return a >= b }
	}
	return nil
}

// float is alu for f32, whose arithmetic has to say how it rounds: ptxas may
// contract or flush what does not. Results and operands that are subnormal are
// counted.
func (k *kernel) float(op []string) (func(a, b, c uint64) uint64, int) {
	d := k.device
	arithmetic := func(f func(a, b float32) float32) (func(a, b, c uint64) uint64, int) {
		if len(op) != 3 || op[1] != "rn" {
			return nil, 0
		}
		return func(a, b, _ uint64) uint64 { return d.number(f(d.value(a), d.value(b))) }, 2
	}
	switch op[0] {
	case "add":
		return arithmetic(func(a, b float32) float32 { return a + b })
	case "sub":
		return arithmetic(func(a, b float32) float32 { return a - b })
	case "mul":
		return arithmetic(func(a, b float32) float32 { return a * b })
	case "mov":
		return func(a, _, _ uint64) uint64 { return uint64(uint32(a)) }, 1
	case "abs":
		return func(a, _, _ uint64) uint64 { return a & 0x7fffffff }, 1
	case "neg":
		return func(a, _, _ uint64) uint64 { return a&0xffffffff ^ 0x80000000 }, 1
	case "selp":
		return func(a, b, p uint64) uint64 {
			if p != 0 {
				return uint64(uint32(a))
			}
			return uint64(uint32(b))
		}, 3
	case "setp":
		if c := compareFloats(op[1]); c != nil && len(op) == 3 {
			return func(a, b, _ uint64) uint64 { return truth(c(d.value(a), d.value(b))) }, 2
		}
	case "cvt":
		if f := k.convert(op); f != nil {
			return f, 1
		}
	}
	return nil, 0
}

// compareFloats returns a comparison of f32; those with u hold for NaN too.
func compareFloats(op string) func(a, b float32) bool {
	switch op {
	case "eq":
		return func(a, b float32) bool { return a == b }
	case "ne":
		return func(a, b float32) bool { return a < b || a > b }
	case "lt":
		return func(a, b float32) bool { return a < b }
	case "le":
		return func(a, b float32) bool { return a <= b }
	case "gt":
		return func(a, b float32) bool { return a > b }
	case "ge":
		return func(a, b float32) bool { return a >= b }
	case "equ":
		return func(a, b float32) bool { return !(a < b || a > b) }
	case "neu":
		return func(a, b float32) bool { return a != b }
	case "ltu":
		return func(a, b float32) bool { return !(a >= b) }
	case "leu":
		return func(a, b float32) bool { return !(a > b) }
	case "gtu":
		return func(a, b float32) bool { return !(a <= b) }
	case "geu":
		return func(a, b float32) bool { return !(a < b) }
	}
	return nil
}

// convert is alu for cvt.
func (k *kernel) convert(op []string) func(a, b, c uint64) uint64 {
	d := k.device
	to, from := op[len(op)-2], op[len(op)-1]
	mode := op[1]
	if len(op) == 3 {
		mode = ""
	}
	as := cut(from)
	switch {
	case as == nil || cut(to) == nil || len(op) > 4:
		return nil
	case to == "f32" && from == "f16" && mode == "":
		return func(a, _, _ uint64) uint64 { return uint64(math.Float32bits(reference.F16toF32(uint16(a)))) }
	case to == "f16" && from == "f32" && mode == "rn":
		return func(a, _, _ uint64) uint64 { return uint64(reference.F32toF16(d.value(a))) }
	case to == "f32" && from[0] == 's' && mode == "rn":
		return func(a, _, _ uint64) uint64 { return d.number(float32(int64(as(a)))) }
	case to == "f32" && from[0] == 'u' && mode == "rn":
		return func(a, _, _ uint64) uint64 { return d.number(float32(as(a))) }
	case to == "s32" && from == "f32" && mode == "rni":
		return func(a, _, _ uint64) uint64 { return uint64(uint32(roundInt32(d.value(a)))) }
	case to[0] != 'f' && from[0] != 'f' && mode == "":
		low := cut("b" + fmt.Sprint(width(to)))
		return func(a, _, _ uint64) uint64 { return low(as(a)) }
	}
	return nil
}

// roundInt32 rounds halves to even and saturates; NaN gives 0.
func roundInt32(x float32) int32 {
	v := math.RoundToEven(float64(x))
	switch {
	case v != v:
		return 0
	case v >= math.MaxInt32:
		return math.MaxInt32
	case v <= math.MinInt32:
		return math.MinInt32
	}
	return int32(v)
}

// value reads an operand of f32 arithmetic, number writes its result. Both count
// subnormal values and, with Flush, make them zero, as some cards do.
func (d *Device) value(v uint64) float32 { return math.Float32frombits(d.checked(uint32(v))) }
func (d *Device) number(x float32) uint64 {
	return uint64(d.checked(math.Float32bits(x)))
}

func (d *Device) checked(b uint32) uint32 {
	if b<<1-1 < 1<<24-1 {
		return d.subnormal(b)
	}
	return b
}

func (d *Device) subnormal(b uint32) uint32 {
	d.Subnormals++
	if d.Flush {
		return b & (1 << 31)
	}
	return b
}
