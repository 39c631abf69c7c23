package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// dpbusd adds to each of 8 sums the products of four unsigned bytes with four
// signed ones, which may be in memory.
//
// Go's assembler has the instruction, but as one of AVX-512 only: with a prefix
// that processors without AVX-512 do not know. So encode writes its bytes.
func (a asm) dpbusd(signed Op, unsigned, sum Register) {
	a.Instruction(&ir.Instruction{
		Opcode: vpdpbusd, Operands: []Op{signed, unsigned, sum},
		Inputs: []Op{signed, unsigned, sum}, Outputs: []Op{sum},
		ISA: []string{"AVXVNNI"},
	})
}

const vpdpbusd = "VPDPBUSD"

// encode replaces the instructions of a function that the assembler would take
// for others, once their registers are known.
func encode(f *ir.Function) error {
	for _, i := range f.Instructions() {
		if i.Opcode == vpdpbusd {
			code, err := encodeVEX(i.Operands)
			if err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			i.Opcode, i.Operands = "LONG", []Op{code}
		}
	}
	return nil
}

// encoded is an instruction as bytes, and its text in GNU syntax.
type encoded struct {
	bytes []byte
	text  string
}

// Asm writes the prefix and the opcode, ModRM, and the displacement.
func (e encoded) Asm() string {
	b := e.bytes
	s := fmt.Sprintf("$0x%02x%02x%02x%02x; BYTE $0x%02x", b[3], b[2], b[1], b[0], b[4])
	switch len(b) {
	case 6:
		s += fmt.Sprintf("; BYTE $0x%02x", b[5])
	case 9:
		s += fmt.Sprintf("; LONG $0x%02x%02x%02x%02x", b[8], b[7], b[6], b[5])
	}
	return s + " // " + e.text
}

// encodeVEX encodes VPDPBUSD, VEX.256.66.0F38.W0 50 /r (Intel's manual, volume 2,
// sections 2.1.5 and 2.3): sum in ModRM.reg, the unsigned bytes in VEX.vvvv, the
// signed ones in ModRM.rm.
func encodeVEX(operands []Op) (encoded, error) {
	sum, unsigned := number(operands[2].(Register)), number(operands[1].(Register))
	// Set bits of R, X and B, and those of vvvv, mean registers below 8.
	rxb, modRM := byte(0xe0), sum&7<<3
	if sum >= 8 {
		rxb &^= 0x80
	}
	var rm byte
	var source string
	var disp []byte
	switch signed := operands[0].(type) {
	case Register:
		rm = number(signed)
		modRM |= 0xc0
		source = fmt.Sprintf("%%ymm%d", rm)
	case Mem:
		if signed.Index != nil || signed.Base == nil || signed.Base.Kind() != KindGP {
			return encoded{}, fmt.Errorf("%s: only a general register and a displacement can be encoded", signed.Asm())
		}
		rm = number(signed.Base)
		if rm&7 == 4 {
			return encoded{}, fmt.Errorf("%s: would need a byte SIB", signed.Asm())
		}
		switch d := signed.Disp; {
		case d == 0 && rm&7 != 5: // 5 would be relative to the instruction
		case d == int(int8(d)):
			modRM |= 0x40
			disp = []byte{byte(d)}
		default:
			modRM |= 0x80
			disp = []byte{byte(d), byte(d >> 8), byte(d >> 16), byte(d >> 24)}
		}
		source = fmt.Sprintf("%d(%%%s)", signed.Disp, names[rm])
	}
	if rm >= 8 {
		rxb &^= 0x20
	}
	const map0F38, prefix66, long = 2, 1, 4
	code := []byte{0xc4, rxb | map0F38, ^unsigned&15<<3 | long | prefix66, 0x50, modRM | rm&7}
	return encoded{append(code, disp...), fmt.Sprintf("{vex} vpdpbusd %s, %%ymm%d, %%ymm%d", source, unsigned, sum)}, nil
}

var names = [16]string{"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

// number is that of a register in encodings.
func number(r Register) byte { return byte(r.(Physical).PhysicalIndex()) }
