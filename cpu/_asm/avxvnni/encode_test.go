package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	. "github.com/mmcloughlin/avo/reg"
)

// TestEncoding has the GNU assembler encode the text of every encoded instruction,
// and of others that try all registers and displacements.
func TestEncoding(t *testing.T) {
	for _, tool := range []string{"as", "objcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s (Debian: binutils)", tool)
		}
	}
	var list []encoded
	f, err := program().Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := pass.Concat(pass.Compile, pass.FunctionPass(encode)).Execute(f); err != nil {
		t.Fatal(err)
	}
	for _, function := range f.Functions() {
		for _, i := range function.Instructions() {
			if i.Opcode == vpdpbusd {
				t.Errorf("%s: left to Go's assembler: %v", function.Name, i.Operands)
			}
			if len(i.Operands) == 1 {
				if e, ok := i.Operands[0].(encoded); ok {
					list = append(list, e)
				}
			}
		}
	}
	t.Logf("%d instructions", len(list))
	if len(list) < 100 {
		t.Fatal("is this the program?")
	}
	general := []Register{RAX, RCX, RDX, RBX, RBP, RSI, RDI, R8, R9, R10, R11, R13, R14, R15}
	ymm := []Register{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}
	for i, y := range ymm {
		for j, z := range ymm {
			sources := []Op{ymm[(i+3*j)%16]}
			for _, disp := range []int{0, 1, 127, 128, -128, -129, 4096, 1 << 20} {
				sources = append(sources, Mem{Base: general[(i+5*j)%len(general)], Disp: disp})
			}
			for _, source := range sources {
				e, err := encodeVEX([]Op{source, y, z})
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, e)
			}
		}
	}

	var text bytes.Buffer
	for _, e := range list {
		fmt.Fprintln(&text, e.text)
	}
	dir := t.TempDir()
	source, object, flat := filepath.Join(dir, "x.s"), filepath.Join(dir, "x.o"), filepath.Join(dir, "x")
	if err := os.WriteFile(source, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{exec.Command("as", "--64", "-o", object, source), exec.Command("objcopy", "-O", "binary", "-j", ".text", object, flat)} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	code, err := os.ReadFile(flat)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if n := min(len(e.bytes), len(code)); !bytes.Equal(code[:n], e.bytes) {
			t.Fatalf("%s: % x, should be % x...", e.text, e.bytes, code[:n])
		}
		code = code[len(e.bytes):]
	}
	if len(code) > 0 {
		t.Errorf("%d bytes more", len(code))
	}
}

// TestRefused: what the encoding has no room for is not encoded as something else.
func TestRefused(t *testing.T) {
	for _, m := range []Mem{
		{Base: RSP}, {Base: R12}, {Base: RAX, Index: RCX, Scale: 1}, {Base: StackPointer}, NewDataAddr(NewStaticSymbol("x"), 0), NewParamAddr("x", 8),
	} {
		f := ir.NewFunction("f")
		f.AddInstruction(&ir.Instruction{Opcode: vpdpbusd, Operands: []Op{m, Y1, Y2}})
		if err := encode(f); err == nil {
			t.Errorf("%s is taken", m.Asm())
		}
	}
}
